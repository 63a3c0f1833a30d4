"""Audit a local randomiser with the two inputs whose reports are easiest to distinguish; no model is trained.

A claim about what a client sends holds for every update that it might send, so also for these. The subject's row is the
present or the absent one of a pair, every other client's is the absent one, and the observer knows all of them. The
score is the log-likelihood ratio by the law that the defense publishes for one report.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor

from ...audit.arrays import BoolArray, FloatArray
from ...audit.check import FITS, CheckResult
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.evidence import Projections, Setting
from ...audit.finding import Weakness
from ...audit.measurement import Measurement
from ...audit.observer import SHUFFLED
from ...checks.canaries import COORDINATE, JOINT, rows_that_differ
from ...checks.law import law_of_all_rounds
from ...checks.shuffled import report_checks
from ...fl.laws import Mixing, ReportLaw
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.rounds import Round, Rounds
from ...fl.sampling import Epoch, FixedSize
from ...fl.streams import Runs, Streams, uniform
from ...fl.task import Task
from ..config.tables.suite import AuditSpec
from ..results.store import Store
from .audit_method import BlockJob, PlannedAudit
from .case import Case
from .replicas import ALONE, ARMS, Arms, ReplicaMethod, kept_arrays

_CHANCE = 1e-9
"""Chance below which independent rows that repeat each other so often are refused."""
_LARGE = 100_000
"""Numbers of a message from which fewer calls are compared."""
_GUARD = 2**30
"""Calls that only check the noise are numbered from here: no counted trial shares a draw with them."""
_CERTAIN = 1e4
"""Stands for a log-ratio of infinity: scores are finite, and their order is all that counts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CraftedTrial:
    """A pair of inputs for the audit of one claim. What the observer receives is scored by the likelihood ratio between
    the two inputs.

    Args:
        senders: clients with reports that are drawn; ``row``: the subject's place among them.
        absent, present: the subject's raw rows ``(d,)`` without and with the canary.
        rate: probability that the report is of the record that differs, where one record is drawn per report.
    """

    law: ReportLaw
    shuffled: bool
    senders: tuple[int, ...]
    row: int
    absent: Tensor
    present: Tensor
    rate: float

    def drawn(self, updates: Message, rng: np.random.Generator) -> Message:
        """Return the updates after the protected client has sampled a record for its report. In trials in which this
        client does not sample the canary, the client's update is the one without the canary.
        """
        if self.rate == 1:
            return updates
        values = updates.values.clone()
        values[uniform(rng, (len(values),)) >= self.rate, self.row] = self.absent.to(values)
        return updates.with_values(values)

    def updates(self, arm: int, replicas: int, adjacency: Adjacency) -> Message:
        """Return the updates that clients would send without protection; ``arm`` is 1 with the canary, 0 without."""
        values = self.absent.expand(replicas, len(self.senders), -1).clone()
        there = torch.ones(values.shape[:2], dtype=torch.bool)
        if arm == 1:
            values[:, self.row] = self.present
        elif adjacency is Adjacency.ADD_REMOVE:
            values[:, self.row], there[:, self.row] = 0, False
        return Message(values=values, present=there, senders=self.senders)

    def read(self, seen: Message, arm: int) -> "RoundScores":
        """Return the scores of the client reports ``seen`` in one round; the scores are exact likelihood ratios if all
        clients use the same mechanism.
        """
        if not self.shuffled:
            report, there = seen.values[:, self.row], seen.present[:, self.row]
            both = self._logs(report, self.law.log_density)
            # With a drawn record the report may be of the other row, so density zero proves nothing there.
            odd = both[arm].isneginf() & there if self.rate == 1 else torch.zeros_like(there)
            ratio = _ratio(*both).masked_fill(~there, 0)
            return RoundScores(ratio=ratio, place=torch.zeros_like(ratio), odd=odd)
        split = self.law.mixing is Mixing.COORDINATES
        ratios = _ratio(*self._logs(seen.values, self.law.log_densities if split else self.law.log_density))
        there = seen.present.unsqueeze(-1) if split else seen.present
        # Each place is equally likely to hold the subject's report: the likelihood ratio is the mean over all of them.
        mean = ratios.masked_fill(~there, -math.inf).logsumexp(1) - there.sum(1).clamp_min(1).log()
        # A round in which no report arrived is evidence of neither arm.
        mean, own = mean.masked_fill(there.sum(1) == 0, 0), ratios[:, self.row].sigmoid()
        ratio, place = (mean.sum(-1), own.mean(-1)) if split else (mean, own)
        return RoundScores(ratio=ratio, place=place, odd=torch.zeros(len(ratio), dtype=torch.bool))

    def _logs(self, seen: Tensor, log_density: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Log densities under the absent and the present row; ValueError for NaN, infinity or a wrong shape."""
        absent, present = (
            torch.as_tensor(log_density(seen, self.law.contribution(row.expand_as(seen))))
            for row in (self.absent, self.present)
        )
        split = self.shuffled and self.law.mixing is Mixing.COORDINATES
        for logs in (absent, present):
            if logs.shape != (seen.shape if split else seen.shape[:-1]):
                raise ValueError(
                    f"log_density of the defense's ReportLaw must return one number per report, got shape "
                    f"{tuple(logs.shape)}"
                )
            if bool((logs.isnan() | logs.isposinf()).any()):
                raise ValueError(
                    "log_density of the defense's ReportLaw must return finite numbers or -infinity, got NaN or "
                    "+infinity"
                )
        return absent, present


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundScores:
    """The scores of the client reports of one round: arrays of shape ``(replicas,)`` with one entry per trial.

    Args:
        ratio: log-likelihood ratio of what the observer saw.
        place: behind a shuffler, the likeness in [0, 1] of what arrived in the subject's own place to the present row;
            zeros elsewhere.
        odd: whether the law gives the subject's report density zero under its own row.
    """

    ratio: Tensor
    place: Tensor
    odd: Tensor


def _ratio(absent: Tensor, present: Tensor) -> Tensor:
    # A report that neither row can produce is evidence of neither.
    return torch.nan_to_num(present - absent, nan=0.0).clamp(-_CERTAIN, _CERTAIN)


@dataclass(frozen=True, eq=False)
class CraftedBatch:
    """A batch of independent trials, all with the canary or all without it.

    Args:
        ratios: for each trial and round the log-likelihood ratio of what the observer received.
        place: (n,), behind a shuffler, the mean likeness in [0, 1] of what arrived in the sender's own place to the
            present row; zeros elsewhere.
        odd: (n,), whether a report arrived that its own row cannot produce by the law.
    """

    ratios: Projections
    place: FloatArray
    odd: BoolArray


def batch_of_trials(
    job: BlockJob, trial: CraftedTrial, task: Task, plan: Plan, arm: int, replicas: int, number: int
) -> CraftedBatch:
    """Apply the defense in every round of the claim and return the scores of the trials; ``arm`` is 1 with the
    canary, 0 without.
    """
    begun = seen_in_rounds(job, trial, task, plan, arm, replicas, number)
    rounds = [trial.read(seen, arm) for seen in begun]
    values = torch.stack([one.ratio for one in rounds], dim=1).double().numpy()
    ratios = Projections(values, np.ones(values.shape, dtype=np.bool_), Setting.claimed(job.claim))
    place = torch.stack([one.place for one in rounds]).double().mean(0).numpy()
    return CraftedBatch(ratios, place, torch.stack([one.odd for one in rounds]).any(0).numpy())


def seen_in_rounds(
    job: BlockJob, trial: CraftedTrial, task: Task, plan: Plan, arm: int, replicas: int, number: int
) -> Iterator[Message]:
    """Yield what the observer receives in each round; each cohort is drawn from all clients by the plan's sampling
    rule.
    """
    updates, clients, senders = trial.updates(arm, replicas, job.claim.adjacency), plan.clients, list(trial.senders)
    if isinstance(plan.cohort, Epoch) and not (trial.shuffled or plan.cohort.same or clients % plan.cohort.rounds):
        # Of cohorts of one size, one client comes to each with one probability: as if they had one client each.
        clients, senders = plan.cohort.rounds, [sender % plan.cohort.rounds for sender in senders]

    def invited(turn: Round) -> Tensor:
        # Drawn among all clients, then cut: a cohort of fixed size depends on how many clients there are.
        return plan.draw_cohort(turn.run.generator, replicas, clients, round=turn.number)[:, senders]

    def rows(turn: Round) -> Message:
        rows = trial.drawn(updates, turn.generator("lot"))
        present = rows.present & turn.cohort
        values = rows.values.masked_fill(~present.unsqueeze(-1), 0)
        return Message(values=values, present=present, senders=rows.senders)

    streams = Streams(job.seed)
    rounds = Rounds(
        plan=plan,
        protection=job.protection,
        streams=streams,
        rows=rows,
        # Block 0 is the trial's.
        runs=Runs(replicas=replicas, block=number + 1, arm=arm),
        candidates=trial.senders,
        task=task,
        invited=invited,
        all_rows=True,
        closes=False,
    )
    for turn in rounds.each(job.claim.rounds, model=task.initial(streams).expand(replicas, -1)):
        seen = turn.received if trial.shuffled else turn.reports
        wanted = (replicas, len(trial.senders), len(trial.present))
        if tuple(seen.values.shape) != wanted or not bool(torch.isfinite(seen.values).all()):
            raise ValueError(
                f"the defense's reports must be finite numbers of shape {wanted}, got shape {tuple(seen.values.shape)}"
            )
        yield seen


def shares_noise(job: BlockJob, trial: CraftedTrial, task: Task, plan: Plan) -> bool:
    """Return whether parallel trials share their noise, judged by a few calls of the defense; the false-alarm
    probability is below 1e-9.

    Reports that are all equal have no noise at all: the audit itself refutes these.

    Raises:
        ValueError: where reports do not depend on the random generator that the defense receives.
    """
    # Messages of many numbers are never equal by chance, and cost too much to be drawn often.
    large = len(trial.senders) * len(trial.present) > _LARGE
    calls, rows = (3, 2) if large else (20, 8)
    begun = (seen_in_rounds(job, trial, task, plan, 0, rows, _GUARD + call) for call in range(calls))
    keys = np.stack([_keys(next(rounds).values) for rounds in begun])
    if len(np.unique(keys)) == 1:
        return False
    # Rows differ, yet every call gives the same ones: the noise came from a seed of its own.
    if (keys == keys[0]).all():
        raise ValueError(
            "the defense's reports did not change when its hooks got other random generators: draw the noise from the "
            "generator that is passed to the hook"
        )
    alike = int((keys == keys[:, :1]).all(axis=1).sum())
    _, counts = np.unique(keys, return_counts=True)
    chance = float(((counts / keys.size) ** rows).sum())
    if large:
        return alike == calls
    return alike > 0 and bool(binom.sf(alike - 1, calls, min(1.0, chance)) < _CHANCE)


def _keys(reports: Tensor) -> FloatArray:
    """One number per replica, ``(replicas,)``, that differs between different reports (or sets of them)."""
    # Sorted over the senders: a shuffler that moves equal reports to other places must not make them look different.
    flat = reports.double().sort(1).values.flatten(1)
    return np.asarray((flat @ torch.arange(1, flat.shape[1] + 1, dtype=torch.float64).cos()).numpy(), dtype=np.float64)


_NARROW = 30
"""How many times as many trials a claim about one coordinate gets: only that coordinate is drawn."""
_NUMBERS = 2**22
"""Numbers that one call of the hooks holds at most; more would not fit into memory."""

_MOST = 2**24
"""Numbers of one trial, at most: thousands of larger ones would take hours."""


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

    def covers(self, request: Case) -> bool:
        return report_law(request) is not None

    def out_of_scope(self, request: Case) -> str:
        unit, part = request.claim.unit, request.claim.part
        if (drawn := _numbers_of_trial(request)) > _MOST:
            return (
                f"this claim is not audited at this size: one trial draws {drawn:,} random numbers, those of all "
                f"{request.own[1].clients:,} clients in {request.claim.rounds} rounds, and at most {_MOST:,} are "
                "drawn; audit the defense in a smaller federation"
            )
        if unit in (Unit.REPORT, Unit.CLIENT) or (unit is Unit.COORDINATE and part == COORDINATE):
            return ""
        # With lots of one sample the report is of one record, drawn at the rate that the claim states.
        if unit is Unit.SAMPLE and "rate" in request.claim.parameters and request.own[1].lot == FixedSize(1):
            return ""
        return f"this claim is not audited, because no audit crafts reports for one {unit}, {part}"

    def budget(self, claim: Claim, audit: AuditSpec) -> AuditSpec:
        # Trials of one coordinate then cost no more than those of whole reports.
        narrow = claim.part == COORDINATE
        return audit.model_copy(update={"replicas": audit.replicas * _NARROW}) if narrow else audit

    def trials(self, job: BlockJob) -> tuple[Arms, Mapping[str, NDArray[Any]]]:
        more: dict[str, NDArray[Any]] = {}
        batches, alone = crafted_evidence(job, _law(job))
        if alone:
            more[ALONE] = np.ones(1)
        for name, side in zip(ARMS, batches, strict=True):
            more[f"{name}_place"] = np.concatenate([batch.place for batch in side])
            more[f"{name}_odd"] = np.concatenate([batch.odd for batch in side])
        return [[batch.ratios for batch in side] for side in batches], more

    def witness(self, audit: PlannedAudit) -> str:
        claim, law = audit.claim, _law(audit.blocks[0])
        where = {
            Mixing.NONE: "",
            Mixing.ROWS: ", reports shuffled",
            Mixing.COORDINATES: ", each coordinate shuffled by itself",
        }
        part = "" if claim.part == JOINT else f" in {claim.part}"
        mixed = where[law.mixing] if claim.observer.rank == SHUFFLED.rank else ""
        return (
            f"reports of a client on the two inputs that differ most{part}{mixed}, scored by their log-likelihood ratio"
        )

    def checks(self, audit: PlannedAudit, store: Store) -> tuple[CheckResult, ...]:
        block = audit.blocks[0]
        shuffled = block.claim.observer.rank == SHUFFLED.rank
        clients = block.own[1].clients if shuffled else None
        changes = law_of_all_rounds(block.protection, block.own[1])
        arrays, exact = kept_arrays(audit, store), _is_exact(block)
        shown = report_checks(arrays, audit.claim, exact=exact, clients=clients, changes=changes)
        return (*super().checks(audit, store), *shown)

    def weakness(self, audit: PlannedAudit, measured: Measurement, checks: Sequence[CheckResult]) -> Weakness:
        misfits = [check.words for check in checks if check.name == FITS and check.passed is False]
        return Weakness(
            unseen=f"the published distribution does not fit these reports, so it cannot score them ({misfits[0]})"
            if misfits
            else ""
        )


def _numbers_of_trial(request: Case) -> int:
    """How many random numbers one trial draws: behind a shuffler those of all clients, as they hide the subject's."""
    claim, plan = request.claim, request.own[1]
    if claim.observer.rank != SHUFFLED.rank:
        return 0
    return plan.clients * claim.rounds * (1 if claim.part == COORDINATE else plan.layout.dim)


def report_law(request: Case) -> ReportLaw | None:
    """Return the published distribution of one client's report; None if the observer receives no reports or the defense
    publishes no distribution.

    Raises:
        ValueError: for a law that cannot be evaluated, or a claim that names an impossible client or rate.
    """
    if request.claim.observer.rank < SHUFFLED.rank:
        return None
    _, plan = request.own
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


def crafted_evidence(job: BlockJob, law: ReportLaw) -> tuple[tuple[list[CraftedBatch], list[CraftedBatch]], bool]:
    """Run ``job.replicas`` trials without the canary and as many with it; return both sets of scores, and whether the
    trials were made one at a time.

    Raises:
        ValueError: for a law or hooks that give no numbers of the right shape, and for noise that the streams do not
            move.
    """
    task, plan = job.own
    trial = _trial(job, law, plan)
    # Shared noise would make trials dependent, and every bound wrong: they are then made one at a time.
    alone = shares_noise(job, trial, task, plan)
    most = 1 if alone else _NUMBERS // (len(trial.senders) * len(trial.present))
    # Another size would draw other trials, so it depends on the suite alone and not on this machine's free memory.
    size = max(1, min(most, job.audit.batch, job.replicas))
    out, within = (
        [batch_of_trials(job, trial, task, plan, arm, n, number) for number, n in job.batches(size)] for arm in (0, 1)
    )
    return (out, within), alone


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
    _, plan = block.own
    if block.claim.adjacency is Adjacency.ADD_REMOVE or rate_of(block.claim) < 1 or plan.cohort_rate < 1:
        return False
    if block.claim.observer.rank > SHUFFLED.rank:
        return True
    # Behind a shuffler any client's report may be the subject's, so one client with another law spoils the ratio.
    law = report_law(block)
    others = (block.protection.law(block.claim.observer, plan, client) for client in range(plan.clients))
    return all(other == law for other in others)


METHOD = CraftedReports()
