"""Define a job that audits a mechanism with a planted bug and its correct version in the same way."""

from dataclasses import dataclass

from ..config.tables.suite import MutantsSpec
from ..results.cell import Cell


@dataclass(frozen=True, kw_only=True)
class MutantJob:
    """A job that audits one mutant (a mechanism with a planted bug) and its correct version.

    Args:
        alpha: level of all tests of the correct version together.
        broken, correct: cells of the two versions; an unusual correct case has no broken one.
    """

    name: str
    spec: MutantsSpec
    seeds: tuple[int, ...]
    alpha: float
    # Two cells but one job: the pilot that plans the audit of both versions then runs once.
    broken: Cell | None
    correct: Cell

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The units of work of this job: the audits of the broken version, if any, and of the correct one."""
        return (self.correct,) if self.broken is None else (self.broken, self.correct)
