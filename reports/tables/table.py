"""Define a table of text, with headers and entries, that every output format prints, and how to declare its columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of text. ``rows`` are tuples as long as ``headers``, ``numeric`` lists the columns aligned to the right,
    and the first ``about`` columns identify a row.
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()
    note: str = ""
    about: int = 1

    def lines(self) -> list[str]:
        """Format the table as plain text, with aligned columns and a line below the headers; empty without rows."""
        if not self.rows:
            return []
        # Over all rows, so that the columns stay aligned.
        widths = [max(len(row[i]) for row in (self.headers, *self.rows)) for i in range(len(self.headers))]
        rule = "  ".join("-" * width for width in widths)
        return [self._line(self.headers, widths), rule, *(self._line(row, widths) for row in self.rows)]

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        padded = (
            text.rjust(width) if i in self.numeric else text.ljust(width)
            for i, (text, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(padded).rstrip()


class Right(str):
    """The header of a column that is aligned to the right, as numbers are."""


def tabulate(
    title: str, things: Iterable[T], columns: Mapping[str, Callable[[T], str]], *, about: int = 1, note: str = ""
) -> Table:
    """Build a table with one row per item.

    Args:
        columns: header -> the text of a thing in this column, in the order of the columns; a header ``Right`` aligns
            its column to the right.
        about: how many columns identify a row.

    Example:
        ``tabulate("Sizes", names, {"name": str, Right("letters"): lambda name: str(len(name))})``
    """
    return Table(
        title=title,
        headers=tuple(map(str, columns)),
        rows=tuple(tuple(text(thing) for text in columns.values()) for thing in things),
        numeric=frozenset(place for place, header in enumerate(columns) if isinstance(header, Right)),
        note=note,
        about=about,
    )
