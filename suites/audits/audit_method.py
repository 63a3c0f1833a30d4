"""Define the base class of every way to audit a claim, and find those of this folder by file name."""

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar

import torch

from ...audit.check import MEASURED, PURE, SENSITIVITY, CheckResult
from ...audit.claim import Claim
from ...audit.evidence import MembershipScores, Setting
from ...audit.finding import CheckPower, Weakness
from ...audit.measurement import Measurement
from ...audit.parts import Spec
from ...audit.power import Look
from ...checks.canaries import why_not_covered
from ...checks.coverage import Coverage, coverage_of, power_of_checks
from ...checks.replay import on_own_model
from ...fl.plan import Plan
from ..attacking.finished_cells import AttackCell
from ..attacking.shadows import ShadowJob
from ..config.tables.suite import AuditSpec
from ..results.store import Store
from . import __path__ as _FOLDERS
from .case import (
    Fitted,
    audited_federation,
    checked_federation,
    claim_checks,
    federation_of,
    fitted,
    inseparable,
    own_model_federation,
    received_checks,
    stronger_claims,
)
from .planned_audit import AuditRequest, BlockJob, PlannedAudit


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
        """The name of the file that defines the method; worker processes find the method by it."""
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

    def reading(self, audit: PlannedAudit, store: Store) -> Reading:
        """Return the result of ``measure``, or of the estimator that the suite names.

        Raises:
            ValueError: as ``measure``, and for an estimator that cannot measure these runs.
        """
        named = audit.blocks[0].audit.estimator if audit.blocks else None
        return self.measure(audit, store) if named is None else self.measure_by(named, audit, store)

    def measure_by(self, estimator: Spec, audit: PlannedAudit, store: Store) -> Reading:
        """Measure the audit's finished runs by the suite's own choice of estimator; errors as for ``reading``."""
        raise ValueError(f"audits by {self.name} choose their estimator themselves: leave out audit.estimator")

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
        """Return the reasons why the audit may have been too weak to refute this claim.

        ``audit.finding.judge`` alone draws the conclusion, so that no method can change a verdict.
        """
        return Weakness()

    def check_power(self, audit: PlannedAudit, checks: Sequence[CheckResult]) -> CheckPower | None:
        """Return the smallest epsilon that the claim's implementation checks would have found; None if not known."""
        return None

    def coverage(self, audit: PlannedAudit, checks: Sequence[CheckResult]) -> Coverage:
        """Return what the claim's implementation checks looked at, and what they did not."""
        return coverage_of(checks, sampled=False)


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

    def covers(self, request: AuditRequest) -> bool:
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

    def out_of_scope(self, request: AuditRequest) -> str:
        """Return why this method cannot audit a claim for which ``covers`` is True; empty string if it can."""
        return why_not_covered(request.claim) or inseparable(request)

    def budget(self, claim: Claim, audit: AuditSpec) -> AuditSpec:
        """Return the suite's audit settings, in which a subclass may change the number of runs for this claim."""
        return audit

    def enough(self, claim: Claim, audit: AuditSpec, alpha: float) -> AuditSpec:
        """Return the audit settings, with more runs for a claim that needs more, at its share ``alpha`` of the error
        rate; by default no claim gets more.
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

    def could_refute(self, audit: PlannedAudit, store: Store) -> bool:
        """Return whether some result of the runs to come could still refute the claim at a later look; True where that
        is not known.
        """
        return True

    def inert(self, audit: AuditSpec) -> int:
        """Return the number of model weights that no training data changes; canaries and checks use these weights."""
        return 1

    def unfit(self, job: BlockJob) -> str:
        """Return why the method's own federation is no evidence about the claim, because the defense cannot be prepared
        for it, does not run in it or states less there; empty string if it is evidence.
        """
        if not self.own_federation:
            return ""
        return fitted(job, audited_federation(job)[1]).reason

    def on_its_federation(self, job: BlockJob) -> BlockJob:
        """Return the job with the defense as prepared for the federation that it runs."""
        if not self.own_federation:
            return job
        job = replace(job, protection=fitted(job, audited_federation(job)[1]).protection)
        return replace(job, place=self.place(job))

    def place(self, job: BlockJob) -> int | None:
        """Return the client whose place a canary that is a client takes; None: it is one more client."""
        return None

    def checks(self, audit: PlannedAudit, store: Store) -> tuple[CheckResult, ...]:
        """Check the implementation by running the first seed's federation several times, and hold the published law
        against the claim; subclasses add checks of the audit's own runs.
        """
        # One thread gives the same bits whatever the number of processes.
        torch.set_num_threads(1)
        # A check is about the code, which all blocks share: one block shows it.
        block = audit.blocks[0]
        return claim_checks(
            partial(fitted, block),
            audit.claim,
            federation_of(block)[1],
            checked_federation(block),
            own_model=own_model_federation(block),
            seed=block.seed,
        )

    def trials_of_view(self, audit: PlannedAudit) -> tuple[CheckResult, ...]:
        torch.set_num_threads(1)
        block = audit.blocks[0]
        small = audited_federation(block) if self.own_federation else checked_federation(block)
        own, most = federation_of(block)[1], block.audit.trials
        return received_checks(partial(fitted, block), own, small, most=most, seed=block.seed)

    def check_power(self, audit: PlannedAudit, checks: Sequence[CheckResult]) -> CheckPower | None:
        block = audit.blocks[0]
        own = federation_of(block)[1]
        known = power_of_checks(checks, fitted(block, own).protection, audit.claim, own)
        if known or any(check.passed is False for check in checks):
            return known
        # What holds for an adversary that sees more holds for this one; that a check fails there shows nothing here.
        stronger = stronger_claims(fitted(block, own), own)
        return next((power for claim in stronger if (power := self._power_against(claim, block, own))), None)

    def _power_against(self, claim: Claim, block: BlockJob, own: Plan) -> CheckPower | None:
        """The power of the checks of a claim that implies the block's, where they all pass."""

        def fit(plan: Plan) -> Fitted:
            found = fitted(block, plan)
            return replace(found, claim=replace(found.claim, observer=claim.observer))

        checks = claim_checks(fit, claim, own, checked_federation(block), seed=block.seed)
        power = power_of_checks(checks, fit(own).protection, claim, own)
        words = f", all against a stronger adversary: {claim.observer.phrase}"
        return power and replace(power, assumption=power.assumption + words)

    def coverage(self, audit: PlannedAudit, checks: Sequence[CheckResult]) -> Coverage:
        block = audit.blocks[0]
        own, checked = federation_of(block)[1], checked_federation(block)[1]
        sampled = own.cohort_rate < 1 or any(own.lot.rate(size) < 1 for size in own.sizes)
        smaller = [
            f"{what}: the checks ran {few} of {all_of_them}"
            for what, few, all_of_them in (
                ("clients", checked.clients, own.clients),
                ("samples of clients", sum(checked.sizes), sum(own.sizes[: checked.clients])),
                ("weights of the model", checked.layout.model_dim, own.layout.model_dim),
            )
            if few < all_of_them and not (what == "weights of the model" and on_own_model(checks))
        ]
        few = audited_federation(block)[1].clients if self.own_federation else own.clients
        if few < own.clients:
            smaller.append(f"all clients in independent runs: these had {few} of {own.clients}")
        size = f"{checked.clients} of {own.clients} clients of {min(checked.sizes)} to {max(checked.sizes)} samples"
        return coverage_of(checks, sampled=sampled, federation=[size], smaller=smaller)


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
        """Return the attacks that the audit uses. They are fixed before any run, because a choice by results would
        raise the error rate above alpha.
        """


def unknown_power(checks: Sequence[CheckResult]) -> str:
    """Return why an audit without a law may have been too weak, whatever it showed: it is not known how much noise must
    be missing before it refutes the claim. The reason says why no check could replace it.
    """
    compared = (SENSITIVITY, MEASURED, PURE)
    reasons = dict.fromkeys(check.witness for check in checks if check.name in compared and check.passed is None)
    blind = f", and sensitivity and noise could not be compared ({'; '.join(reasons)})" if reasons else ""
    return f"without a law the power of these runs is not known{blind}"


def final_look(audit: PlannedAudit) -> Look:
    """Return the look at all planned runs of an audit; its power is a lower bound on that of all looks together."""
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


def block_method(name: str) -> BlockMethod:
    """Return the audit method of this file name; raise ValueError unless it runs federations or trials of its own."""
    running = {label: method for label, method in audit_methods().items() if isinstance(method, BlockMethod)}
    if name not in running:
        raise ValueError(
            f"the audit method must be one that runs federations itself: {', '.join(running)}; got {name!r}"
        )
    return running[name]


def attack_methods() -> list[AttackMethod]:
    """Return the audit methods that use the results of attacks on shadow federations."""
    return [method for method in audit_methods().values() if isinstance(method, AttackMethod)]


def chosen_method(request: AuditRequest) -> tuple[BlockMethod, str]:
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
