"""Mutant job: the audit that one bug calls for, of the broken version and of the correct one."""

from dataclasses import dataclass

from ..config.suite import MutantsSpec
from .cell import Cell


@dataclass(frozen=True, kw_only=True)
class MutantJob:
    """One mutant under the audit that its bug calls for.

    Args:
        alpha: level of all tests of the correct version together.
        broken, correct: cells of the two versions.
    """

    name: str
    spec: MutantsSpec
    seeds: tuple[int, ...]
    alpha: float
    # Two cells but one job: the pilot that plans the audit of both versions then runs once.
    broken: Cell
    correct: Cell

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The broken and the correct version's cell."""
        return (self.broken, self.correct)
