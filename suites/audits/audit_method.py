"""Define a planned audit of one privacy claim, its verdict, and the base class of all audit methods.

A sequential audit stops at one of its planned looks: when its claim is refuted, or when no further run could do so.
Whether the runs of a later stage are made is a function of the stored runs of earlier stages alone, so that a resumed
run, or one on another backend, makes the same ones. The bounds of all looks hold at once (``audit.power``).
Stopping because nothing can be refuted any more needs no alpha: it only replaces a look by its known result.
"""

import importlib
import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ...audit.check import MEASURED, PURE, SENSITIVITY, CheckResult
from ...audit.claim import Claim
from ...audit.estimators.event_ratio import refuted_point
from ...audit.evidence import MembershipScores, Setting
from ...audit.finding import (
    CheckPower,
    Finding,
    Verdict,
    Weakness,
    judge,
    not_audited,
    refutes,
    weak_beyond,
    with_evidence,
    with_weak_part,
)
from ...audit.measurement import Measurement
from ...audit.parts import Spec
from ...audit.power import Look
from ...checks.canaries import why_not_covered
from ...checks.claim_checks import Fitted, claim_checks, received_checks
from ...checks.coverage import Coverage, coverage_of, power_of_checks
from ...checks.decide import decided
from ...checks.law import law_checks
from ...checks.preparation import preparation_checks, why_amplified
from ...checks.replay import on_own_model
from ...fl.plan import Plan
from ..attacking.finished_cells import AttackCell, Clock, failures_as_rows, finish_cell
from ..attacking.shadows import ShadowJob
from ..config.tables.suite import AuditSpec
from ..results.cell import Cell, check_rows, verdict_row, verdict_rows
from ..results.record import Record
from ..results.store import Store
from . import __path__ as _FOLDERS
from .case import Case, stronger_claims

_BATCHES_OF_STAGE = 2**20
"""More than the most runs of an audit, so more than its batches."""


@dataclass(frozen=True, kw_only=True)
class BlockJob(Case):
    """A job that runs one seed's share of the trials, with and without the canary, for the audit of a claim.

    Args:
        method: the audit method that makes them.
        replicas: runs per arm.
        runs: federations or trials that it makes in all.
        stage: number of the look at the audit before which these runs are made; 0 where there is only one.
    """

    method: "BlockMethod"
    replicas: int
    runs: int
    cell: Cell
    stage: int = 0

    @property
    def first_batch(self) -> int:
        """The number of the job's first batch of runs. The batches of different stages have different numbers, so that
        they share no random draw.
        """
        return self.stage * _BATCHES_OF_STAGE

    def batches(self, size: int) -> list[tuple[int, int]]:
        """Return the number of each batch of one arm, and how many runs the batch makes: ``size``, or fewer in the last
        batch.
        """
        whole, rest = divmod(self.replicas, size)
        return list(enumerate([size] * whole + ([rest] if rest else []), self.first_batch))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """A tuple with the single unit of work that this job stores."""
        return (self.cell,)

    def opened(self) -> Self:
        """Return a copy of the job with which the job is carried out; the copy knows the place of the canary.
        Everything that the job builds is freed with the copy.
        """
        fresh = replace(self)
        return fresh.changed(place=self.method.tried_place(fresh))

    def run(self, store: Store, finished: frozenset[str]) -> list[str]:
        """Make the runs and write their result row; return a description of each failure.

        Raises:
            UnwritableRunFolder: if the folder cannot be written.
        """
        return finish_cell(
            self.cell, store, finished, lambda: [self.cell.record(**self.method.run(self.opened(), store))]
        )


@dataclass(frozen=True, kw_only=True)
class AttackedFederation:
    """A shadow federation that includes each sample by an independent fair coin, and the attacks that guess which
    samples it includes.

    Args:
        setting: what the attacks' scores are evidence of.
        attacks: all registered attacks, including those that turn out not to apply.
        candidates: number of samples.
    """

    setting: Setting
    attacks: tuple[AttackCell, ...]
    candidates: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class PlannedAudit:
    """A plan to audit one privacy claim: the audit method, the audit's share of the error rate alpha, and the runs of
    all seeds.

    Args:
        method: the audit method.
        alpha: its share of the suite's alpha.
        blocks: runs made for it; empty for an audit by attacks.
        attacked: the attacked federation that it reads; None for an audit with runs of its own.
        out_of_scope: why no method audits this claim; it then has no runs. Empty where one does.
        request: of a claim out of scope, so that its published law can still be held against it.
        looks: planned looks at the runs, after each of which the audit may stop; empty for one look at all of them.
    """

    cell: Cell
    method: "AuditMethod"
    claim: Claim
    alpha: float
    # Either blocks or an attacked federation, never both: two sources of evidence are two tests, with two cells.
    blocks: tuple[BlockJob, ...] = ()
    attacked: AttackedFederation | None = None
    out_of_scope: str = ""
    request: Case | None = None
    looks: tuple[Look, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """A tuple with the single unit of work that this audit stores."""
        return (self.cell,)

    def opened(self) -> Self:
        """Return a copy of the audit with which the audit is carried out; the copy knows the place of the first block's
        canary.
        """
        return replace(self, blocks=(self.blocks[0].opened(), *self.blocks[1:])) if self.blocks else self

    def run(self, store: Store, finished: frozenset[str]) -> list[str]:
        """Give the verdict on the claim from the finished runs and write the result rows; return a description of each
        failure.

        Raises:
            UnwritableRunFolder: if the folder cannot be written.
        """
        if self.cell.cell_id in finished:
            return []
        clock = Clock()
        with failures_as_rows([self.cell], store, clock) as failed:
            if reason := self.out_of_scope or self.method.not_made(self, store):
                rows = verdict_rows(self.cell, not_audited(self.claim, reason), self._without_runs())
            elif reason := _amplified(self):
                prepared = _of_preparation(self)
                seen = [one.evidence for one in prepared if one.evidence is not None]
                rows = verdict_rows(self.cell, with_evidence(not_audited(self.claim, reason), seen), prepared)
            else:
                rows = _judged(self.opened(), store)
            store.finish(self.cell.cell_id, [row.model_copy(update=clock.fields()) for row in rows])
        return failed

    def _without_runs(self) -> tuple[CheckResult, ...]:
        """The checks that need no runs, for a claim that is not audited."""
        case = self.request or next(iter(self.blocks), None)
        if case is None:
            return ()
        plan = case.own[1]
        return law_checks(case.fitted(plan).protection, self.claim, plan)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The lower bound on epsilon that an audit measured, together with the scores (with and without the canary) from
    which it was computed.
    """

    measurement: Measurement
    scores: MembershipScores


class AuditMethod(ABC):
    """A way to audit a privacy claim. To add one, define ``METHOD``, an instance of this class, in a new file of this
    folder.

    Attributes:
        attack: the ``attack`` field of its rows; it is part of their cells' identity.
        precedence: among the methods that cover a claim, the one with the lowest number audits it.
    """

    attack: ClassVar[str]
    precedence: ClassVar[int]

    @property
    def name(self) -> str:
        """The name of the file that defines the method."""
        return type(self).__module__.rpartition(".")[2]

    @abstractmethod
    def plan_text(self, audit: PlannedAudit) -> list[str]:
        """Describe what the planned audit can show (number of runs, largest epsilon that it can certify, power), as
        ``fedassay plan`` prints it.

        The first line completes the line of the claim; further lines are indented below it.

        Raises:
            ValueError: for a claim with a law that the method cannot use; its audit would fail.
        """

    @abstractmethod
    def measure(self, audit: PlannedAudit, store: Store) -> Reading:
        """Compute the lower bound on epsilon from the audit's finished runs.

        Raises:
            ValueError: if one of these cells failed, with its reason.
        """

    def dependent(self, audit: PlannedAudit) -> bool:
        """Return whether runs of one batch may depend on each other, as when a defense draws its noise once for all of
        them; such runs are not independent trials. By default runs cannot depend on each other.
        """
        return False

    def reading(self, audit: PlannedAudit, store: Store) -> Reading:
        """Return the result of ``measure``, or of the estimator that the suite names instead.

        Raises:
            ValueError: as ``measure``, and for an estimator that cannot measure these runs.
        """
        named = audit.blocks[0].audit.estimator if audit.blocks else None
        return self.measure(audit, store) if named is None else self.measure_by(named, audit, store)

    def measure_by(self, estimator: Spec, audit: PlannedAudit, store: Store) -> Reading:
        """Measure the audit's finished runs by the estimator that the suite chooses; errors as for ``reading``."""
        raise ValueError(f"audits by {self.name} choose their estimator themselves: leave out audit.estimator")

    def could_refute(self, audit: PlannedAudit, store: Store) -> bool:
        """Return whether any result of the remaining runs could still refute the claim at a later look (interim test);
        True if that is not known.
        """
        return True

    def not_made(self, audit: PlannedAudit, store: Store) -> str:
        """Return why the audit's runs could not be made, so that nothing is audited; empty string if they were."""
        return ""

    def checks(self, audit: PlannedAudit, store: Store) -> tuple[CheckResult, ...]:
        """Return the results of the claim's implementation checks; empty for a method that runs no federations of its
        own.
        """
        return ()

    def trials_of_view(self, audit: PlannedAudit) -> tuple[CheckResult, ...]:
        """Run trials of everything that the claim's observer receives; empty for a method that runs no federations of
        its own.
        """
        return ()

    def weakness(self, audit: PlannedAudit, measured: Measurement, checks: Sequence[CheckResult]) -> Weakness:
        """Return the reasons why the audit may have been too weak to refute this claim even if the claim is false.

        ``audit.finding.judge`` alone draws the conclusion, so that no method can change a verdict.
        """
        return Weakness()

    def decided(self, audit: PlannedAudit, checks: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
        """Return the check results after trials have decided whether failed comparisons refute the claim."""
        return checks

    def check_power(self, audit: PlannedAudit, checks: Sequence[CheckResult]) -> CheckPower | None:
        """Return the smallest epsilon that the claim's implementation checks would have detected; None if not known."""
        return None

    def power_of_stronger(self, audit: PlannedAudit, checks: Sequence[CheckResult]) -> CheckPower | None:
        """Return the power of the checks of a stronger claim, which implies the audited claim, if none of these checks
        failed.
        """
        return None

    def coverage(self, audit: PlannedAudit, checks: Sequence[CheckResult]) -> Coverage:
        """Return what the claim's implementation checks examined, and what they did not."""
        return coverage_of(checks, sampled=False, epsilon=audit.claim.epsilon)


class BlockMethod(AuditMethod):
    """An audit method that runs federations or trials of its own, with and without a canary, and divides these runs
    among the seeds.

    Attributes:
        design: the value of ``audit.design`` that chooses the method. A value that no other method has becomes known by
            being assigned here.
        chosen_by_suite: whether the suite's audit table chooses it; else the law that the defense publishes does.
        own_federation: whether it runs the small federation of the audit table; else the claim's own plan.
        sequential: whether its audits can look at their runs several times and stop early.
    """

    design: ClassVar[str] = "independent"
    chosen_by_suite: ClassVar[bool] = True
    own_federation: ClassVar[bool] = True
    sequential: ClassVar[bool] = False

    def covers(self, request: Case) -> bool:
        """Return whether this method can audit the claim; if several methods can, the one with the lowest
        ``precedence`` is used. By default a method covers every claim of a suite whose key ``audit.design`` equals the
        method's ``design``.

        Raises:
            ValueError: for a published law that cannot be evaluated.
        """
        return request.audit.design == self.design

    @abstractmethod
    def run(self, job: BlockJob, store: Store) -> dict[str, Any]:
        """Run one seed's share of the audit's trials and store their scores; return the fields of their result row."""

    def out_of_scope(self, request: Case) -> str:
        """Return why this method cannot audit a claim for which ``covers`` is True; empty string if it can."""
        return why_not_covered(request.claim) or request.inseparable

    def budget(self, claim: Claim, audit: AuditSpec) -> AuditSpec:
        """Return the suite's audit settings, in which a subclass may change the number of runs for this claim."""
        return audit

    def enough(self, claim: Claim, audit: AuditSpec, alpha: float) -> AuditSpec:
        """Return the audit settings for a claim that is tested at its share ``alpha`` of the error rate. A claim that
        needs more runs gets more; by default no claim does.
        """
        return audit

    def shares(self, replicas: int, seeds: int) -> list[int]:
        """Split ``replicas`` runs per arm (with and without the canary) as equally as possible over the seeds; return
        the number for each seed.
        """
        # The first seeds take the remainder: rounding down everywhere would lose runs that the suite planned with.
        whole, rest = divmod(replicas, max(1, seeds))
        return [whole + (n < rest) for n in range(seeds)]

    def runs(self, replicas: int) -> int:
        """Return the total number of runs if ``replicas`` runs are made with the canary and ``replicas`` without it."""
        return 2 * replicas

    def inert(self, audit: AuditSpec) -> int:
        """Return the number of model weights that no training data changes; canaries and checks use these weights."""
        return 1

    def unfit(self, job: BlockJob) -> str:
        """Return why runs of the method's own federation are no evidence about the claim: the defense cannot be
        prepared for this federation, or states only a weaker claim about it. Empty string if the runs are evidence.
        """
        return job.fitted(job.small[1]).reason if self.own_federation else ""

    def on_its_federation(self, job: BlockJob) -> BlockJob:
        """Return the job with the defense prepared for the federation that the job runs."""
        if not self.own_federation:
            return job
        job = job.changed(protection=job.fitted(job.small[1]).protection)
        return job.changed(place=self.place(job))

    def place(self, job: BlockJob) -> int | None:
        """Return the client whose place a client canary takes, as far as public facts determine it; None if the canary
        is an additional client.
        """
        return None

    def tried_place(self, job: BlockJob) -> int | None:
        """Return the canary's place as determined by trial runs."""
        return job.place

    def checks(self, audit: PlannedAudit, store: Store) -> tuple[CheckResult, ...]:
        """Check the implementation by running the first seed's federation several times, and compare the published law
        with the claim; subclasses add checks of the audit's own runs.
        """
        # One thread gives the same bits whatever the number of processes.
        torch.set_num_threads(1)
        # A check is about the code, which all blocks share: one block shows it.
        block = audit.blocks[0]
        task, own = block.own
        return claim_checks(
            block.fitted,
            audit.claim,
            own,
            block.checked,
            own_task=task,
            own_model=block.own_model,
            seed=block.seed,
        )

    def trials_of_view(self, audit: PlannedAudit) -> tuple[CheckResult, ...]:
        torch.set_num_threads(1)
        block = audit.blocks[0]
        small = block.small if self.own_federation else block.checked
        own, most = block.own[1], block.audit.trials
        return received_checks(block.fitted, own, small, most=most, seed=block.seed)

    def decided(self, audit: PlannedAudit, checks: tuple[CheckResult, ...]) -> tuple[CheckResult, ...]:
        block = audit.blocks[0]
        # Runs under a plan for which the defense states less are no evidence about this claim.
        there = block.fitted(block.checked[1])
        return checks if there.reason else decided(checks, there.claim, most=block.audit.trials)

    def check_power(self, audit: PlannedAudit, checks: Sequence[CheckResult]) -> CheckPower | None:
        block = audit.blocks[0]
        own = block.own[1]
        return power_of_checks(checks, block.fitted(own).protection, audit.claim, own)

    def power_of_stronger(self, audit: PlannedAudit, checks: Sequence[CheckResult]) -> CheckPower | None:
        if any(check.passed is False for check in checks):
            return None
        block = audit.blocks[0]
        own = block.own[1]
        # What holds for an adversary that sees more holds for this one; that a check fails there shows nothing here.
        stronger = stronger_claims(block.fitted(own), own)
        return next((power for claim in stronger if (power := self._power_against(claim, block, own))), None)

    def _power_against(self, claim: Claim, block: BlockJob, own: Plan) -> CheckPower | None:
        """The power of the checks of a claim that implies the block's, where they all pass."""

        def fit(plan: Plan) -> Fitted:
            found = block.fitted(plan)
            return replace(found, claim=replace(found.claim, observer=claim.observer))

        checks = claim_checks(fit, claim, own, block.checked, own_task=block.own[0], seed=block.seed)
        power = power_of_checks(checks, fit(own).protection, claim, own)
        words = f", all for a claim against a stronger adversary: {claim.observer.phrase}"
        return power and replace(power, assumption=power.assumption + words)

    def coverage(self, audit: PlannedAudit, checks: Sequence[CheckResult]) -> Coverage:
        block = audit.blocks[0]
        own, checked = block.own[1], block.checked[1]
        sampled = own.cohort_rate < 1 or any(own.lot.rate(size) < 1 for size in own.sizes)
        smaller = [
            f"{what}: the checks ran with {few} of {all_of_them}"
            for what, few, all_of_them in (
                ("clients", checked.clients, own.clients),
                ("samples of clients", sum(checked.sizes), sum(own.sizes[: checked.clients])),
                ("weights of the model", checked.layout.model_dim, own.layout.model_dim),
            )
            if few < all_of_them and not (what == "weights of the model" and on_own_model(checks))
        ]
        few = block.small[1].clients if self.own_federation else own.clients
        if few < own.clients:
            smaller.append(f"all clients in independent runs: these runs had {few} of the {own.clients} clients")
        size = (
            f"{checked.clients} of {own.clients} clients, with {min(checked.sizes)} to {max(checked.sizes)} samples "
            "each"
        )
        epsilon = audit.claim.epsilon
        return coverage_of(checks, sampled=sampled, epsilon=epsilon, federation=[size], smaller=smaller)


class AttackMethod(AuditMethod):
    """An audit method that runs nothing itself, but uses the results of the suite's attacks on shadow federations.

    It audits every claim that it covers, also a claim that a ``BlockMethod`` audits: the two are separate tests.
    """

    @abstractmethod
    def setting(self, job: ShadowJob) -> Setting:
        """Return the unit, adjacency, observer and rounds to which the attack scores of a shadow federation apply."""

    @abstractmethod
    def covers(self, claim: Claim, job: ShadowJob) -> bool:
        """Return whether scores of attacks on the job's shadow federations are evidence about the claim."""

    @abstractmethod
    def registered(self, jobs: Sequence[ShadowJob]) -> tuple[AttackCell, ...]:
        """Return the attacks that the audit uses. These attacks are fixed before any run, because a choice by results
        would raise the error rate above alpha.
        """


def unknown_power(checks: Sequence[CheckResult]) -> str:
    """Return why an audit may have been too weak, whatever its result, if the defense publishes no distribution of its
    noise: how much noise must be missing before the audit refutes the claim is then not known. The reason also states
    why no implementation check could measure the noise instead.
    """
    compared = (SENSITIVITY, MEASURED, PURE)
    reasons = dict.fromkeys(check.witness for check in checks if check.name in compared and check.passed is None)
    blind = f", and no check could measure its sensitivity and noise instead ({'; '.join(reasons)})" if reasons else ""
    return f"the power of these runs is not known, because the defense publishes no distribution of its noise{blind}"


def final_look(audit: PlannedAudit) -> Look:
    """Return the last look (interim or final test) of an audit, which uses all planned runs. The power of this look is
    a lower bound on that of all looks together.
    """
    return audit.looks[-1] if audit.looks else Look(replicas=pooled_replicas(audit), alpha=audit.alpha)


def pooled_replicas(audit: PlannedAudit) -> int:
    """Return the number of runs with the canary over all seeds of an audit; there are equally many without it."""
    return sum(block.replicas for block in audit.blocks)


# Cached: every block and every audit looks up its method.
@cache
def audit_methods() -> dict[str, AuditMethod]:
    """Return every audit method of this folder, keyed by file name, lowest precedence first."""
    modules = [importlib.import_module(f"{__package__}.{entry.name}") for entry in pkgutil.iter_modules(_FOLDERS)]
    found: list[AuditMethod] = [module.METHOD for module in modules if hasattr(module, "METHOD")]
    return {method.name: method for method in sorted(found, key=lambda method: method.precedence)}


def attack_methods() -> list[AttackMethod]:
    """Return the audit methods that use the results of attacks on shadow federations."""
    return [method for method in audit_methods().values() if isinstance(method, AttackMethod)]


def chosen_method(request: Case) -> tuple[BlockMethod, str]:
    """Choose the audit method for a claim; also return why that method cannot audit the claim (empty string if it can).

    A claim that the method chosen by its law cannot audit is recorded under the method that the suite chose.

    Raises:
        ValueError: for a published law that cannot be evaluated.
    """
    methods = [method for method in audit_methods().values() if isinstance(method, BlockMethod)]
    # Methods are sorted by precedence, so the first that covers the claim is the one; every canary design has one.
    method = next(method for method in methods if method.covers(request))
    reason = method.out_of_scope(request)
    if reason and not method.chosen_by_suite:
        method = next(other for other in methods if other.chosen_by_suite and other.covers(request))
    return method, reason


def _judged(planned: PlannedAudit, store: Store) -> list[Record]:
    """The rows of an audit's verdict, from its finished runs and the checks of its claim."""
    method = planned.method
    audit, stopped = where_stopped(planned, store)
    reading = method.reading(audit, store)
    if refutes(audit.claim, reading.measurement) and method.dependent(audit):
        reading = _read_alone(audit)
    reading = of_all_looks(reading, planned)
    checks = method.checks(audit, store)
    # They cost seconds, and a claim that its own runs refute needs no more evidence.
    prepared: tuple[CheckResult, ...] = ()
    if not refutes(audit.claim, reading.measurement):
        prepared = _of_preparation(audit)
        checks = (*method.decided(audit, (*checks, *method.trials_of_view(audit))), *prepared)
    # A check may show why statistics found nothing, such as a canary that never arrived: so checks come first.
    weakness = method.weakness(audit, reading.measurement, checks)
    if audit.blocks and audit.blocks[0].audit.estimator is not None:
        # No detectable epsilon may only mean that this estimator computes none.
        weakness = replace(weakness, no_power="", unknown_power=weakness.unknown_power or weakness.no_power)
    # A record that changes what happens before the training is no row of any run above.
    unseen = next((f"{check.name}: {check.witness}" for check in prepared if check.passed is None), "")
    weakness = replace(weakness, unseen=weakness.unseen or unseen)
    coverage = method.coverage(audit, checks)
    weakness = replace(weakness, not_looked_at=coverage.blind)
    further = [_against(audit.claim, check.evidence) for check in checks if check.evidence is not None]
    # An audit with an estimator or a design of its own states what these measure.
    own = audit.blocks[0].audit if audit.blocks else None
    larger = further if own is not None and own.estimator is None and own.design == "independent" else []
    finding = _by_any(audit.claim, reading.measurement, larger, weakness, None)
    if finding.verdict is not Verdict.REFUTED and not coverage.blind:
        # What the checks of a stronger claim would have found takes a further run of all of them.
        needed = finding.verdict is Verdict.UNDERPOWERED
        power = method.check_power(audit, checks) or (method.power_of_stronger(audit, checks) if needed else None)
        finding = _by_any(audit.claim, reading.measurement, larger, weakness, power)
    finding = with_evidence(finding, further)
    if weak := next((one for one in prepared if one.detects and one.detects > weak_beyond(audit.claim.epsilon)), None):
        finding = with_weak_part(finding, f"{weak.name}: {weak.witness}")
    # The finding's own measurement: judging removes numbers that turned out not to be known.
    measured = finding.measurement or reading.measurement
    if larger and finding.verdict is not Verdict.REFUTED:
        # The largest of several bounds holds with the sum of their error probabilities.
        total = sum(one.alpha for one in (reading.measurement, *larger))
        measured = replace(measured, alpha=min(total, math.nextafter(1, 0)))
    rates = zip(("refuted_fpr", "refuted_fnr"), map(np.array, refuted_point(measured) or ()), strict=False)
    scores = store.save_arrays(audit.cell.cell_id, "scores", _arrays(reading) | dict(rates))
    verdict = verdict_row(audit.cell, replace(finding, measurement=measured), checks, scores)
    return [verdict.model_copy(update=_added(verdict, coverage, checks, stopped)), *check_rows(audit.cell, checks)]


def _against(claim: Claim, measured: Measurement) -> Measurement:
    """The evidence; only as a bound on epsilon where it was tested against the curve of a stronger claim, which the
    defense states for the federation of its trials.
    """
    try:
        judge(claim, measured)
    except ValueError:
        return replace(measured, below_curve=None, tangent=None)
    return measured


def _by_any(
    claim: Claim, measured: Measurement, further: Sequence[Measurement], weakness: Weakness, power: CheckPower | None
) -> Finding:
    """The finding by the largest bound, of the audit's runs or of the trials of its checks; by the runs where those
    trials alone are too weak.
    """
    best = max((measured, *further), key=lambda one: one.epsilon_low)
    if best is not measured:
        # The power of such trials is known, whatever that of the audit's runs is.
        known = replace(weakness, no_power="", unknown_power="", low_power="")
        found = judge(claim, best, weakness=known, checked=power)
        if found.verdict is not Verdict.UNDERPOWERED:
            return found
    return judge(claim, measured, weakness=weakness, checked=power)


def _read_alone(audit: PlannedAudit) -> Reading:
    """The reading of an audit whose runs are made again, one at a time, where those of a batch depend on each other."""
    blocks = tuple(block.changed(audit=block.audit.model_copy(update={"batch": 1})) for block in audit.blocks)
    alone = replace(audit, blocks=blocks)
    with TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for block in blocks:
            block.run(store, frozenset())
        found = audit.method.reading(alone, store)
    witness = (
        f"{found.measurement.witness}; the runs were made one at a time, because runs of one batch share random "
        "draws of the defense"
    )
    return replace(found, measurement=replace(found.measurement, witness=witness))


def _of_preparation(audit: PlannedAudit) -> tuple[CheckResult, ...]:
    """The checks of the preparation of the federation's data; none where it has no preparation, or nothing was run."""
    setup = audit.blocks[0].preparation if audit.blocks else None
    return () if setup is None else preparation_checks(setup)


def _amplified(audit: PlannedAudit) -> str:
    """Why its runs, which leave out the preparation, may show more than the whole that is claimed; else empty."""
    setup = audit.blocks[0].preparation if audit.blocks else None
    return "" if setup is None else why_amplified(setup)


def _added(verdict: Record, coverage: Coverage, checks: Sequence[CheckResult], stopped: str) -> dict[str, Any]:
    """Fields of the verdict's row: what its checks looked at, and where a sequential audit stopped."""
    # Without checks, as for attacks on final models, there is nothing to state.
    seen = {"looked_at": list(coverage.looked_at), "not_looked_at": list(coverage.not_looked_at)} if checks else {}
    return seen | ({"stopped": stopped, "reason": f"{verdict.reason}; {stopped}"} if stopped else {})


def _arrays(reading: Reading) -> dict[str, NDArray[Any]]:
    """Scores without and with the canary, and the numbers that reports draw together with them."""
    measured = reading.measurement
    counted = ("threshold", "fpr_high", "fnr_high", "alpha", "made", "right")
    known = {name: getattr(measured, name) for name in counted}
    arrays = {"member": reading.scores.member, "nonmember": reading.scores.nonmember}
    return arrays | {name: np.array(value) for name, value in known.items() if value is not None}


MADE_ALL = "all planned runs were made"
OUT_OF_TIME = "the time budget (--budget) was used up"


def at_look(audit: PlannedAudit, number: int) -> PlannedAudit:
    """Return the audit as it stands at one of its looks (interim tests): with the runs made so far, and the
    significance level of that look.
    """
    blocks = tuple(block for block in audit.blocks if block.stage <= number)
    return replace(audit, blocks=blocks, alpha=audit.looks[number].alpha)


def stop_reason(audit: PlannedAudit, number: int, store: Store) -> str:
    """Return why a sequential audit ends at its look ``number``, or ended at an earlier look; empty if more runs are to
    be made.

    The runs of all stages up to this look are finished. An audit that cannot be measured there is not stopped, so that
    its verdict fails for the same reason as that of an audit with a single look.
    """
    if earlier := _stopped_before(audit, number, store):
        return earlier
    seen = at_look(audit, number)
    method = audit.method
    try:
        if refutes(audit.claim, method.reading(seen, store).measurement):
            return f"{_look_words(audit, number)}: the claim is refuted"
        if number + 1 < len(audit.looks) and not method.could_refute(seen, store):
            return f"{_look_words(audit, number)}: no result of the remaining runs could have refuted the claim"
    except Exception:  # A user's own law or estimator may raise anything; the audit's own row records it.
        return ""
    return ""


def out_of_time(audit: PlannedAudit, number: int) -> str:
    """Return the reason for ending a sequential audit at its look ``number`` because the run's time is used up.

    The time depends on no score, so the bound of that look holds as it would have; what later looks might have shown is
    not known.
    """
    return f"{_look_words(audit, number)}: {OUT_OF_TIME}"


def omitted_row(block: BlockJob, reason: str) -> Record:
    """Return the result row for runs that were not made, because their audit had stopped for ``reason``."""
    return block.cell.record(metric="replicas", status="skipped", n=0, reason=f"not made: {reason}", stopped=reason)


def where_stopped(audit: PlannedAudit, store: Store) -> tuple[PlannedAudit, str]:
    """Return a sequential audit as it stood at the look (interim test) at which it stopped according to the stored rows
    of its runs, and a text that names this look and the reason. An audit without looks is returned unchanged, with an
    empty text.
    """
    if not audit.looks:
        return audit, ""
    last = len(audit.looks) - 1
    stopped = _stopped_before(audit, last, store)
    if not stopped:
        return at_look(audit, last), f"{_look_words(audit, last)}: {MADE_ALL}"
    made = min(block.stage for block in audit.blocks if _omitted(block, store)) - 1
    if OUT_OF_TIME in stopped:
        # The looks that were not reached would have had power that this audit has not.
        audit = replace(audit, looks=audit.looks[: made + 1])
    return at_look(audit, made), stopped


def of_all_looks(reading: Reading, audit: PlannedAudit) -> Reading:
    """Return a measurement made at one look (interim test) of an audit, with the significance level of all looks
    together, at which the measurement is valid whenever the audit stops.
    """
    return replace(reading, measurement=replace(reading.measurement, alpha=audit.alpha)) if audit.looks else reading


def _stopped_before(audit: PlannedAudit, number: int, store: Store) -> str:
    """Why the audit stopped before look ``number``; empty if it had not."""
    blocks = (block for block in audit.blocks if block.stage <= number)
    return next((words for block in blocks if (words := _omitted(block, store))), "")


def _omitted(block: BlockJob, store: Store) -> str:
    if not block.stage or not store.is_finished(block.cell.cell_id):
        return ""
    return store.cell_records(block.cell.cell_id)[0].stopped


def _look_words(audit: PlannedAudit, number: int) -> str:
    runs, most = audit.looks[number].replicas, audit.looks[-1].replicas
    return (
        f"the audit stopped at interim look {number + 1} of {len(audit.looks)}, after {runs:,} of at most {most:,} "
        "runs per arm"
    )
