"""Split a table into pieces that fit on a printed page, and choose the width of each column.

Widths are counted in letters of a small font (7 pt), of which a page of LaTeX's article class holds about eighty. A
wide table is split between columns, and the columns that identify a row are repeated in each part; a long table is
split between rows.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..tables.table import Table

LETTERS, LINES = 80, 46
"""Letters of one line and lines of one table on a page."""
_GAP = 1.5
_ABOUT, _TEXT, _NUMBER, _LEAST = 24, 34, 15, 10
"""Widest columns before their cells are broken into lines: those that identify a row, other texts, numbers. The last
value is the width below which no column is narrowed.
"""


@dataclass(frozen=True, kw_only=True)
class TablePart:
    """A piece of a table. ``widths`` has one entry per column: the number of letters per line if the column's entries
    are broken into lines, otherwise None.
    """

    table: Table
    widths: tuple[int | None, ...]


def parts(table: Table) -> list[TablePart]:
    """Split a table into pieces that together hold every entry, in the order of its columns and then of its rows."""
    sizes = _fitted([_size(table, column) for column in range(len(table.headers))], table.about)
    pieces = [
        (columns, rows) for columns in _column_groups(sizes, table.about) for rows in _row_groups(table, columns, sizes)
    ]
    return [
        TablePart(
            table=_piece(table, columns, rows, number, len(pieces)), widths=tuple(sizes[i].broken for i in columns)
        )
        for number, (columns, rows) in enumerate(pieces, start=1)
    ]


@dataclass(frozen=True, kw_only=True)
class _Size:
    """Width of a column in letters. ``letters``: as printed; ``natural``: longest cell; ``least``: longest word."""

    letters: int
    natural: int
    least: int

    @property
    def broken(self) -> int | None:
        """Return the number of letters per line at which the column's entries must be broken into lines; None if the
        longest entry fits on one line.
        """
        return self.letters if self.letters < self.natural else None


def _size(table: Table, column: int) -> _Size:
    texts = [table.headers[column], *(row[column] for row in table.rows)]
    natural, word = max(map(_letters, texts)), max(_letters(word) for text in texts for word in unbroken_words(text))
    most = _ABOUT if column < table.about else _NUMBER if column in table.numeric else _TEXT
    least = min(natural, max(word, _LEAST))
    return _Size(letters=max(least, min(natural, most)), natural=natural, least=least)


def _fitted(sizes: list[_Size], about: int) -> list[_Size]:
    """Narrows all columns in proportion if they then fit on one page; else only the columns that identify a row."""
    room = LETTERS - _GAP * len(sizes)
    excess = sum(size.letters for size in sizes) - room
    if excess <= 0:
        return sizes
    slack = [size.letters - size.least for size in sizes]
    # Even the narrowest columns do not fit: the table is split, with the repeated columns as narrow as possible.
    if excess > sum(slack):
        head = [replace(size, letters=size.least) for size in sizes[:about]]
        left = math.floor(LETTERS - sum(size.letters + _GAP for size in head) - _GAP)
        return [*head, *(replace(size, letters=max(size.least, min(size.letters, left))) for size in sizes[about:])]
    share = excess / sum(slack)
    return [
        replace(size, letters=size.letters - math.ceil(share * more)) for size, more in zip(sizes, slack, strict=True)
    ]


def _letters(text: str) -> int:
    """Width of the text in digits; capitals are wider than digits."""
    return math.ceil(len(text) + 0.4 * sum(letter.isupper() for letter in text))


def unbroken_words(text: str) -> list[str]:
    """Split a table entry's text at the places where a line may break: within a label after underscores, but never
    within an interval.
    """
    return re.findall(r"\[[^\]]*\]|[^\s_\[]+_*|\S", text) or [""]


def _column_groups(sizes: Sequence[_Size], about: int) -> list[list[int]]:
    head = list(range(min(about, len(sizes))))
    room = LETTERS - sum(sizes[i].letters + _GAP for i in head)
    groups: list[list[int]] = []
    left = 0.0
    for column in range(len(head), len(sizes)):
        taken = sizes[column].letters + _GAP
        # A column wider than a page still gets a group of its own: no cell may be lost.
        if not groups or taken > left:
            groups.append([])
            left = room
        groups[-1].append(column)
        left -= taken
    return [[*head, *group] for group in groups or [[]]]


def _row_groups(table: Table, columns: Sequence[int], sizes: Sequence[_Size]) -> Iterator[tuple[tuple[str, ...], ...]]:
    group: list[tuple[str, ...]] = []
    lines = 0
    for row in table.rows:
        taken = max(_lines(row[i], sizes[i].letters) for i in columns)
        if group and lines + taken > LINES:
            yield tuple(group)
            group, lines = [], 0
        group.append(tuple(row[i] for i in columns))
        lines += taken
    yield tuple(group)


def _lines(text: str, letters: int) -> int:
    """Number of lines of a cell that is filled word by word."""
    lines, left = 1, letters
    for word in unbroken_words(text):
        if len(word) > left:
            lines, left = lines + 1, letters
        left -= len(word) + 1
    return lines


def _piece(table: Table, columns: Sequence[int], rows: tuple[tuple[str, ...], ...], number: int, count: int) -> Table:
    return replace(
        table,
        title=table.title if count == 1 else f"{table.title} ({number} of {count})",
        headers=tuple(table.headers[i] for i in columns),
        rows=rows,
        numeric=frozenset(place for place, i in enumerate(columns) if i in table.numeric),
        # Under the last part only, where a note of the whole table stands as well.
        note=table.note if number == count else "",
    )
