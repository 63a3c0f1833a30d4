"""Cells: what a run consists of.

A trial is one federation with all that observes it; a block is a share of an audit's replicas.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...audit.claim import Claim
from ...audit.evidence import Setting
from ...fl.protection import Protection
from ..config.resolve import AttackEntry
from ..config.source import ConfigError
from ..config.suite import AuditSpec, FederationSpec, MutantsSpec, PlanChange
from ..results.record import Record


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One unit of work that leaves rows. ``facts``: the fields that all its rows share."""

    cell_id: str
    facts: dict[str, Any]

    def record(self, **measured: Any) -> Record:
        """A row of this cell."""
        return Record(cell_id=self.cell_id, **{**self.facts, **measured})

    @property
    def title(self) -> str:
        """What the progress line says."""
        words = (self.facts["federation"], self.facts["defense"], self.facts["attack"])
        return " ".join([*words, f"seed {self.facts['seed']}" if self.facts["seed"] is not None else "pooled"])


@dataclass(frozen=True, kw_only=True)
class AttackCell:
    """An attack on a trial."""

    cell: Cell
    entry: AttackEntry


@dataclass(frozen=True, kw_only=True)
class TrialJob:
    """One federation, trained once, and the cells that observe it."""

    federation: FederationSpec
    change: PlanChange
    protection: Protection
    seed: int
    training: Cell | None
    attacks: tuple[AttackCell, ...]
    device: str = "cpu"
    """Where its attacks search."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All its cells; training comes first, where utility is measured."""
        training = () if self.training is None else (self.training,)
        return (*training, *(attack.cell for attack in self.attacks))


@dataclass(frozen=True, kw_only=True)
class ShadowJob:
    """``count`` federations, each on a random half of the samples, and the attacks on every one of them in turn.

    ``claims``: what the defense signs of this very plan.
    """

    federation: FederationSpec
    change: PlanChange
    protection: Protection
    claims: tuple[Claim, ...]
    seed: int
    count: int
    attacks: tuple[AttackCell, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """A cell an attack."""
        return tuple(attack.cell for attack in self.attacks)


@dataclass(frozen=True, kw_only=True)
class BlockJob:
    """Replicas of an audit for one claim and seed, both worlds; or its one run."""

    federation: FederationSpec
    change: PlanChange
    audit: AuditSpec
    protection: Protection
    claim: Claim
    seed: int
    replicas: int
    cell: Cell

    @property
    def runs(self) -> int:
        """Federations that it runs."""
        return 1 if self.audit.design == "one_run" else 2 * self.replicas

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Its one cell."""
        return (self.cell,)


@dataclass(frozen=True, kw_only=True)
class MutantJob:
    """One mutant against the audit that its bug calls for; ``broken`` and ``correct`` are its two editions' cells.

    ``alpha``: of all tests of the correct twin together.
    """

    name: str
    spec: MutantsSpec
    seeds: tuple[int, ...]
    alpha: float
    broken: Cell
    correct: Cell

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Both editions."""
        return (self.broken, self.correct)


Job = TrialJob | ShadowJob | BlockJob | MutantJob


@dataclass(frozen=True, kw_only=True)
class AuditCell:
    """The pooled audit of one claim: reads its blocks' scores, judges.

    ``beyond``: why no design of the suite speaks about this claim; it then has no blocks and is OUT_OF_SCOPE.
    """

    cell: Cell
    claim: Claim
    blocks: tuple[BlockJob, ...]
    alpha: float
    beyond: str = ""


@dataclass(frozen=True, kw_only=True)
class AttackAudit:
    """One claim held against what attacks on shadows say of one federation of ``seed``, each of whose ``candidates``
    is in by a fair coin.

    ``attacks``: all that are registered; they share ``alpha``, whether they have an answer or not. ``setting``: what
    their scores are evidence of.
    """

    cell: Cell
    claim: Claim
    setting: Setting
    attacks: tuple[AttackCell, ...]
    candidates: int
    seed: int
    alpha: float


@dataclass(frozen=True, kw_only=True)
class PlannedClaim:
    """Which defense signed what, on which federation."""

    defense: str
    federation: str
    control: bool
    claim: Claim
    variant: str = ""
    """``as_published``: the paper's claim, which is on trial; else empty."""
    marks: tuple[int, ...] = ()
    """Numbers of rounds after which curves over the rounds have a point."""
    spending: Callable[[int], float] | None = None
    """What the claim's accountant gives for its first so many rounds, where its defense says."""

    def to_dict(self) -> dict[str, Any]:
        """The row of claims.json. Asks the accountant about every mark; ConfigError where it names no epsilon."""
        marks = [rounds for rounds in self.marks if rounds <= self.claim.rounds]
        spent = [] if self.spending is None else [[rounds, self.spending(rounds)] for rounds in marks]
        for rounds, epsilon in spent:
            if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 <= epsilon < math.inf:
                raise ConfigError(f"defenses.{self.defense}: spending({rounds}) must be a number >= 0, got {epsilon!r}")
        return {
            "claim_id": self.claim.claim_id,
            "defense": self.defense,
            "federation": self.federation,
            "control": self.control,
            "variant": self.variant,
            "spent": spent,
            "claim": self.claim.to_dict(),
        }
