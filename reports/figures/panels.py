"""Choose which panels a figure draws if there are more than a page should hold."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
MOST = 12
"""Panels of one figure at most: four rows of three."""


def chosen(panels: Iterable[T], weights: Sequence[float], most: int = MOST) -> list[T]:
    """Return the ``most`` panels with the largest weights, in their given order; if weights are equal, earlier panels
    are preferred.
    """
    every = list(panels)
    ranked = sorted(range(len(every)), key=lambda place: -weights[place])
    return [every[place] for place in sorted(ranked[:most])]


def left_out_words(drawn: int, count: int, which: str) -> str:
    """Return a sentence for a figure's description if some panels are left out; ``which`` describes those that are
    drawn.
    """
    return "" if drawn == count else f" Drawn: the {drawn} of {count} panels {which}; all are in the table."
