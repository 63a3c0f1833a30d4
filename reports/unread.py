"""Rows that cannot be read: which lines, of which cells, and why; no report is silent about what it leaves out."""

from collections.abc import Iterable, Sequence

from ..suites.rows import SkippedRow
from . import numerals
from .table import Table

MOST_REASONS, MOST_NAMED = 20, 6


def unread_table(skipped: Sequence[SkippedRow]) -> Table:
    """One row a reason, in the order of the file; of very many reasons the first twenty."""
    groups: dict[str, list[SkippedRow]] = {}
    for row in skipped:
        groups.setdefault(row.reason, []).append(row)
    rows = [
        (numerals.count(len(group)), line_words(row.line for row in group), _cells(group), reason)
        for reason, group in groups.items()
    ]
    left = rows[MOST_REASONS:]
    return Table(
        title="Rows that cannot be read",
        headers=("rows", "lines of results.jsonl", "cells", "reason"),
        rows=tuple(rows[:MOST_REASONS]),
        numeric=frozenset({0}),
        note="All other rows are here. " + (f"{len(left)} more reasons are not shown." if left else ""),
    )


def unread_lines(skipped: Sequence[SkippedRow]) -> list[str]:
    """The same, a line a reason: what the terminal and the top of the markdown say."""
    table = unread_table(skipped)
    return [
        f"{count} row{'s' * (count != '1')} of results.jsonl (line{'s' * (count != '1')} {lines}"
        f"{f', of cell {cells}' if cells else ''}): {reason}"
        for count, lines, cells, reason in table.rows
    ]


def line_words(numbers: Iterable[int]) -> str:
    """``3, 7–9``; of many stretches the first few and how many more."""
    stretches: list[list[int]] = []
    for number in sorted(set(numbers)):
        if stretches and number == stretches[-1][1] + 1:
            stretches[-1][1] = number
        else:
            stretches.append([number, number])
    return _few([str(low) if low == high else f"{low}–{high}" for low, high in stretches])


def _cells(group: Sequence[SkippedRow]) -> str:
    return _few(list(dict.fromkeys(row.cell_id for row in group if row.cell_id)))


def _few(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
