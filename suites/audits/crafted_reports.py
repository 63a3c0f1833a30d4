"""Audit a local randomiser with the two inputs whose reports are easiest to distinguish; no model is trained.

A claim about what a client sends holds for every update that it might send, so also for these. The subject's row is the
present or the absent one of a pair, every other client's is the absent one, and the observer knows all of them. The
score is the log-likelihood ratio by the law that the defense publishes for one report.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...audit.check import FITS, CheckResult
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.finding import Weakness
from ...audit.measurement import Measurement
from ...audit.observer import SHUFFLED
from ...checks.canaries import COORDINATE, JOINT, rows_that_differ
from ...checks.shuffled import report_checks
from ...fl.laws.law import Mixing, ReportLaw
from ...fl.partitions.sampling import FixedSize
from ...fl.plan import Plan
from ..config.tables.suite import AuditSpec
from ..jobs.block_job import AuditRequest, BlockJob
from ..jobs.planned_audit import PlannedAudit
from ..results.store import Store
from .audited_federation import federation_of
from .crafted_trial import CraftedBatch, CraftedTrial, batch_of_trials, check_noise
from .replicas import ARMS, Arms, ReplicaMethod, kept_arrays

_NARROW = 30
"""How many times as many trials a claim about one coordinate gets: only that coordinate is drawn."""
_NUMBERS = 2**22
"""Numbers that one call of the hooks holds at most; more would not fit into memory."""


class CraftedReports(ReplicaMethod):
    """An audit method for claims about client reports; the defense must publish the distribution of one client's
    report.

    The claim's observer must see reports.
    """

    attack = "crafted_reports"
    # Before canaries: a report's own law scores it better than a projection does, and no model needs training.
    precedence = 10
    chosen_by_suite = False
    own_federation = False

    def covers(self, request: AuditRequest) -> bool:
        return report_law(request) is not None

    def out_of_scope(self, request: AuditRequest) -> str:
        unit, part = request.claim.unit, request.claim.part
        if unit in (Unit.REPORT, Unit.CLIENT) or (unit is Unit.COORDINATE and part == COORDINATE):
            return ""
        # With lots of one sample the report is of one record, drawn at the rate that the claim states.
        if unit is Unit.SAMPLE and "rate" in request.claim.parameters and federation_of(request)[1].lot == FixedSize(1):
            return ""
        return f"no report is crafted for one {unit}, {part}: this claim is not audited"

    def budget(self, claim: Claim, audit: AuditSpec) -> AuditSpec:
        # Trials of one coordinate then cost no more than those of whole reports.
        narrow = claim.part == COORDINATE
        return audit.model_copy(update={"replicas": audit.replicas * _NARROW}) if narrow else audit

    def trials(self, job: BlockJob) -> tuple[Arms, Mapping[str, NDArray[Any]]]:
        more: dict[str, NDArray[Any]] = {}
        batches = crafted_evidence(job, _law(job))
        for name, side in zip(ARMS, batches, strict=True):
            more[f"{name}_place"] = np.concatenate([batch.place for batch in side])
            more[f"{name}_odd"] = np.concatenate([batch.odd for batch in side])
        return [[batch.ratios for batch in side] for side in batches], more

    def witness(self, audit: PlannedAudit) -> str:
        claim, law = audit.claim, _law(audit.blocks[0])
        where = {Mixing.NONE: "", Mixing.ROWS: ", rows shuffled", Mixing.COORDINATES: ", each coordinate shuffled"}
        part = "" if claim.part == JOINT else f" in {claim.part}"
        mixed = where[law.mixing] if claim.observer.rank == SHUFFLED.rank else ""
        return f"reports on the two rows that differ most{part}{mixed}, scored by their log-likelihood ratio"

    def checks(self, audit: PlannedAudit, store: Store) -> tuple[CheckResult, ...]:
        block = audit.blocks[0]
        shuffled = block.claim.observer.rank == SHUFFLED.rank
        clients = federation_of(block)[1].clients if shuffled else None
        shown = report_checks(kept_arrays(audit, store), audit.claim, exact=_is_exact(block), clients=clients)
        return (*super().checks(audit, store), *shown)

    def weakness(self, audit: PlannedAudit, measured: Measurement, checks: Sequence[CheckResult]) -> Weakness:
        misfits = [check.words for check in checks if check.name == FITS and check.passed is False]
        return Weakness(unseen=f"the published law does not score these reports ({misfits[0]})" if misfits else "")


def report_law(request: AuditRequest) -> ReportLaw | None:
    """Return the published distribution of one client's report; None if the observer receives no reports or the defense
    publishes no distribution.

    Raises:
        ValueError: for a law that cannot be evaluated, or a claim that names an impossible client or rate.
    """
    if request.claim.observer.rank < SHUFFLED.rank:
        return None
    _, plan = federation_of(request)
    try:
        law = request.protection.law(request.claim.observer, plan, subject(request.claim, plan))
        of_reports = law if isinstance(law, ReportLaw) else None
    except ValueError:
        raise
    except Exception as error:  # A user's own part may raise anything; the run must end with a message that names it.
        raise ValueError(
            "the defense's method law(), which returns the distribution of one report, failed: "
            f"{type(error).__name__}: {error}"
        ) from error
    if of_reports is not None:
        rate_of(request.claim)
    return of_reports


def subject(claim: Claim, plan: Plan) -> int:
    """Return the number (index) of the client that the claim protects; raise ValueError if the federation has no such
    client.
    """
    # True and False are ints in Python, and no client.
    client = claim.parameters.get("client", 0)
    if isinstance(client, bool) or not isinstance(client, int) or not 0 <= client < plan.clients:
        raise ValueError(
            f"the claim's parameter client must be a client number from 0 to {plan.clients - 1}, got {client!r}"
        )
    return client


def rate_of(claim: Claim) -> float:
    """Return the probability with which a client's report is computed from the protected record; raise ValueError
    unless it is in (0, 1].
    """
    rate = claim.parameters.get("rate", 1.0) if claim.unit is Unit.SAMPLE else 1.0
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1:
        raise ValueError(f"the claim's parameter rate is a probability and must be in (0, 1], got {rate!r}")
    return float(rate)


def crafted_evidence(job: BlockJob, law: ReportLaw) -> tuple[list[CraftedBatch], list[CraftedBatch]]:
    """Run ``job.replicas`` trials without the canary and as many with it; return both sets of scores.

    Raises:
        ValueError: for a law or hooks that give no numbers of the right shape, for replicas that share their noise,
            and for noise that the streams do not move.
    """
    task, plan = federation_of(job)
    trial = _trial(job, law, plan)
    # Before the trials: shared noise would make them dependent, and every bound wrong.
    check_noise(job, trial, task, plan)
    most = _NUMBERS // (len(trial.senders) * len(trial.present))
    # Another size would draw other trials, so it depends on the suite alone and not on this machine's free memory.
    size = max(1, min(most, job.audit.batch, job.replicas))
    whole, rest = divmod(job.replicas, size)
    sizes = list(enumerate([size] * whole + ([rest] if rest else []), job.first_batch))
    out, within = ([batch_of_trials(job, trial, task, plan, arm, n, number) for number, n in sizes] for arm in (0, 1))
    return out, within


def _law(job: BlockJob) -> ReportLaw:
    law = report_law(job)
    if law is None:
        raise ValueError(
            f"an audit of the claim {job.claim.describe()} needs a defense that publishes the distribution of one "
            "client's report (ReportLaw), got none"
        )
    return law


def _trial(job: BlockJob, law: ReportLaw, plan: Plan) -> CraftedTrial:
    claim, client = job.claim, subject(job.claim, plan)
    shuffled = claim.observer.rank == SHUFFLED.rank
    if shuffled and law.mixing is Mixing.NONE:
        raise ValueError(
            "for a claim behind a shuffler, mixing of the defense's ReportLaw must state what is shuffled, either "
            "whole reports (Mixing.ROWS) or coordinates (Mixing.COORDINATES), got Mixing.NONE"
        )
    # An observer that can assign the reports to clients learns nothing about one of them from the others.
    senders = tuple(range(plan.clients)) if shuffled else (client,)
    absent, present = rows_that_differ(claim, law, plan)
    if claim.part == COORDINATE and shuffled and law.mixing is Mixing.COORDINATES:
        # Coordinates that are noised and shuffled separately are distributed alike whether others are drawn or not.
        absent, present = absent[:1], present[:1]
    return CraftedTrial(
        law=law,
        shuffled=shuffled,
        senders=senders,
        row=senders.index(client),
        absent=absent,
        present=present,
        rate=rate_of(claim),
    )


def _is_exact(block: BlockJob) -> bool:
    """Whether the score is the likelihood ratio itself: all clients share the subject's law, and nothing is drawn."""
    _, plan = federation_of(block)
    if block.claim.adjacency is Adjacency.ADD_REMOVE or rate_of(block.claim) < 1 or plan.cohort_rate < 1:
        return False
    if block.claim.observer.rank > SHUFFLED.rank:
        return True
    # Behind a shuffler any client's report may be the subject's, so one client with another law spoils the ratio.
    law = report_law(block)
    others = (block.protection.law(block.claim.observer, plan, client) for client in range(plan.clients))
    return all(other == law for other in others)


METHOD = CraftedReports()
