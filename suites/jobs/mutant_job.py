"""Define a job that audits a mechanism with a planted bug and its correct version in the same way."""

from dataclasses import dataclass

from ..config.suite import MutantsSpec
from .cell import Cell


@dataclass(frozen=True, kw_only=True)
class MutantJob:
    """A job that audits one mutant (a mechanism with a planted bug) and its correct version.

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
        """The two units of work of this job: the audit of the broken version and that of the correct one."""
        return (self.broken, self.correct)
