"""List lines of results.jsonl and data files that are missing or could not be read, with the reasons."""

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from ...suites.results.rows import SkippedRow
from ..reading.cell_files import SkippedFile
from ..reading.run_folder import RunFolder
from . import numerals
from .table import Table

MOST_REASONS, MOST_NAMED = 20, 6
_SHOWN = {
    "scores.npz": "ROC curves and error rates",
    "images.npz": "pictures of reconstructions",
    "rounds.csv": "curves by round",
}
"""Name of a data file -> what the report shows from it."""


def unread_table(folder: RunFolder) -> Table:
    """Return a table with one row per reason why data could not be read, at most twenty: result rows first, then data
    files.

    Call it last: some damage only shows when a table or a figure reads the file.
    """
    rows = [*_rows(folder.skipped), *_files(folder.files.unread(folder.records))]
    # A damaged file can give a different reason for each of a million lines.
    left = rows[MOST_REASONS:]
    return Table(
        title="What cannot be read",
        headers=("what", "where", "cells", "reason"),
        rows=tuple(rows[:MOST_REASONS]),
        note="This report contains everything else. " + (f"{len(left)} more reasons are not shown." if left else ""),
    )


def unread_lines(folder: RunFolder) -> list[str]:
    """Return one line per reason why data could not be read, for the terminal and the top of the Markdown report."""
    return [_line(row) for row in unread_table(folder).rows]


def unread_rows(skipped: Sequence[SkippedRow]) -> list[str]:
    """Return one line per reason why rows of results.jsonl could not be read."""
    return [_line(row) for row in _rows(skipped)]


def _line(row: tuple[str, ...]) -> str:
    what, where, cells, reason = row
    return f"{what} ({where}{f', of cell {cells}' if cells else ''}): {reason}"


def _rows(skipped: Sequence[SkippedRow]) -> list[tuple[str, str, str, str]]:
    groups: dict[str, list[SkippedRow]] = {}
    for row in skipped:
        # By reason: a file cut in transfer gives the same reason for thousands of lines.
        groups.setdefault(row.reason, []).append(row)
    return [
        (
            f"{_counted(group, 'row')} of results.jsonl",
            f"line{'s' * (len(group) > 1)} {line_words(row.line for row in group)}",
            _cells(group),
            reason,
        )
        for reason, group in groups.items()
    ]


def _files(skipped: Sequence[SkippedFile]) -> list[tuple[str, str, str, str]]:
    groups: dict[str, list[SkippedFile]] = {}
    for one in skipped:
        shown = _SHOWN.get(PurePosixPath(one.place).name, "")
        reason = f"{one.reason}; reports lack the {shown} of these cells" if shown else one.reason
        groups.setdefault(reason, []).append(one)
    return [
        (_counted(group, "file"), _few([one.place for one in group]), _cells(group), reason)
        for reason, group in groups.items()
    ]


def _counted(group: Sequence[object], what: str) -> str:
    return f"{numerals.count(len(group))} {what}{'s' * (len(group) > 1)}"


def line_words(numbers: Iterable[int]) -> str:
    """Format line numbers as ``3, 7–9``; if there are many ranges, print the first few and count the others."""
    ranges: list[list[int]] = []
    # Ranges, because damaged lines mostly follow each other.
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return _few([str(low) if low == high else f"{low}–{high}" for low, high in ranges])


def _cells(group: Sequence[SkippedRow | SkippedFile]) -> str:
    return _few(list(dict.fromkeys(row.cell_id for row in group if row.cell_id)))


def _few(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
