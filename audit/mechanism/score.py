"""The interface of a score of a mechanism's outputs, and of one that is made of counts."""

from typing import Any, Protocol, Self, runtime_checkable

from numpy.typing import NDArray

from ..arrays import FloatArray

Counts = list[FloatArray]
"""How many outputs fall into each cell of each table of a score."""


class Score(Protocol):
    """The interface of a function that scores a mechanism's outputs; ``str(score)`` is its name in the results of an
    audit.
    """

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        """Return one score per output: an array ``(n, ...)`` becomes ``(n,)``, higher means the second input."""


@runtime_checkable
class CountedScore(Score, Protocol):
    """The interface of a score made of tables, whose counts of further outputs add up in little memory."""

    def count(self, outputs: NDArray[Any]) -> Counts:
        """Return the counts of outputs (n, ...), which may be added to those of others."""

    def counted(self, member: Counts, nonmember: Counts) -> Self:
        """Return the score with the ratios of these counts, of the second and of the first input."""
