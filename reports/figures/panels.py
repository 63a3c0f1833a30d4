"""Panels: how many a figure holds, and which, where a suite has more of them than a page should."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
MOST = 12
"""Panels of one figure: four lines of three."""


def chosen(panels: Iterable[T], weights: Sequence[float], most: int = MOST) -> list[T]:
    """In their own order, the ``most`` of the greatest weight; of equal ones the first."""
    every = list(panels)
    ranked = sorted(range(len(every)), key=lambda place: -weights[place])
    return [every[place] for place in sorted(ranked[:most])]


def left_out_words(drawn: int, count: int, which: str) -> str:
    """What a description adds where panels are left out; ``which``: the drawn ones, ``whose attacks reached most``."""
    return "" if drawn == count else f" Drawn: the {drawn} of {count} panels {which}; all are in the table."
