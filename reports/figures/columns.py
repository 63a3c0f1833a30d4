"""Lay a drawing out in three columns, each of which a phone shows at its drawn size."""

from collections.abc import Iterable, Sequence

from .figure import Window
from .letters import broken

COLUMNS, COLUMN, MARGIN, _GUTTER = 3, 300.0, 8.0, 20.0
"""The columns of every drawing: their number, their width, the space at either side of each for a mark or a number at
the end of an axis, and the distance from one to the next; in pixels.
"""
WIDTH = COLUMNS * COLUMN + (COLUMNS - 1) * _GUTTER + 2 * MARGIN
SMALL = 10.0
"""The smallest font of a drawing."""
AXIS, PLOT = 58.0, 242.0
"""The space for the numbers and the name of a vertical axis, and the width that is left for a plot."""
LINE = 14.0
"""Height of a line of small text."""
_ENTRY = 17.0
"""Height of a line of a legend."""


def column(place: int) -> float:
    """Return the left end of a column in pixels; ``place`` is 0, 1 or 2."""
    return MARGIN + place * (COLUMN + _GUTTER)


def window(left: float, top: float, height: float) -> Window:
    """Return the part of a drawing that a narrow screen shows: one column with its margins."""
    return Window(left - MARGIN, top, COLUMN + 2 * MARGIN, height)


def rows_of(count: int, columns: int = COLUMNS) -> int:
    """Return how many rows ``count`` panels fill."""
    return -(-count // columns)


def legend_height(count: int) -> float:
    """Return the height of a legend of ``count`` entries in pixels."""
    return _ENTRY * rows_of(count) + 12


def legend_windows(count: int) -> tuple[Window, ...]:
    """Return the parts of a legend of ``count`` entries, which its columns hold one after the other."""
    rows = rows_of(count)
    firsts = range(0, count, rows)
    return tuple(
        window(column(place), 0.0, _ENTRY * min(rows, count - first) + 4) for place, first in enumerate(firsts)
    )


def heading_lines(words: str, most: int = 4) -> list[str]:
    """Break the words below a panel's title into at most ``most`` lines."""
    return broken(words, SMALL, COLUMN, most)


def heading_height(lines: Iterable[Sequence[str]]) -> float:
    """Return the height of a panel's heading with the longest of these ``lines`` below its title."""
    return 32 + LINE * max((len(below) for below in lines), default=0)
