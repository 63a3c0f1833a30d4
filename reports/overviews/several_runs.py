"""Merge the tables of several runs, with a column that names the run, and put an overview first."""

from collections import Counter
from collections.abc import Sequence

from ..claim_tables.answers import headline
from ..reading.run_folder import RunFolder
from ..tables import numerals, summary
from ..tables.table import Table
from .by_run import by_run
from .sections import run_tables


def tables_of(folders: Sequence[RunFolder]) -> list[Table]:
    """Return the tables of one run unchanged; of several runs, the tables with one column per run, and then all rows of
    the runs' own tables.
    """
    if len(folders) == 1:
        return run_tables(folders[0])
    return [*by_run(folders, run_labels(folders)), *all_rows(folders)]


def all_rows(folders: Sequence[RunFolder]) -> list[Table]:
    """Return the tables of several runs, merged by their titles, with a column that names each row's run."""
    same: dict[str, list[tuple[str, Table]]] = {}
    for label, folder in zip(run_labels(folders), folders, strict=True):
        for table in run_tables(folder):
            same.setdefault(table.title, []).append((label, table))
    return [merged(tables) for tables in same.values()]


def run_labels(folders: Sequence[RunFolder]) -> list[str]:
    """Choose a short name for each run: its own name, followed by its path if two runs have the same name."""
    names = Counter(folder.manifest.name for folder in folders)
    return [
        folder.manifest.name if names[folder.manifest.name] == 1 else f"{folder.manifest.name} ({folder.path})"
        for folder in folders
    ]


def overview(folders: Sequence[RunFolder]) -> Table:
    """Return a table of several runs, each with its suite, its answer in plain words, its progress and its outcome."""
    return Table(
        title="Runs",
        headers=("run", "suite", "answer", "cells", "verdict", "exit code"),
        rows=tuple(
            (
                label,
                f"{folder.manifest.suite.get('name', '')}, version {folder.manifest.suite.get('version', '')}",
                headline(folder),
                summary.cells(folder),
                summary.verdict_line(folder),
                numerals.NOTHING if folder.gate is None else str(folder.gate.exit_code),
            )
            for label, folder in zip(run_labels(folders), folders, strict=True)
        ),
        numeric=frozenset({5}),
        note="Each verdict concerns its own run only. Rows of different suites, datasets or models cannot be compared, "
        "even if their federations and defenses have the same names. To judge a change, use fedassay compare, which "
        "pairs the seeds.",
    )


Column = tuple[str, int]


def merged(tables: Sequence[tuple[str, Table]]) -> Table:
    """Merge tables of several runs, given as (run, table) pairs with the same title; rows that agree in the identifying
    columns follow each other, one per run.

    A column that a run's table lacks is empty in the rows of that run.
    """
    first, about = tables[0][1], tables[0][1].about
    columns = list(dict.fromkeys(column for _, table in tables for column in _columns(table)))
    # The last column holds counts or reasons. It stays the last one although other runs may add columns after it.
    columns.sort(key=lambda column: column[1] < 0)
    order: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for label, table in tables:
        for row in table.rows:
            cells = dict(zip(_columns(table), row, strict=True))
            texts = [cells.get(column, numerals.NOTHING) for column in columns]
            # By content and not by position: the runs may list different defenses.
            order.setdefault(row[:about], []).append((*texts[:about], label, *texts[about:]))
    # The number among equal headers only distinguishes columns, and is not printed.
    headers = [name for name, _ in columns]
    numeric = {column for _, table in tables for i, column in enumerate(_columns(table)) if i in table.numeric}
    return Table(
        title=first.title,
        headers=(*headers[:about], "run", *headers[about:]),
        rows=tuple(row for rows in order.values() for row in rows),
        numeric=frozenset(i + (i >= about) for i, column in enumerate(columns) if column in numeric),
        note=_notes(tables),
        about=about + 1,
    )


def _notes(tables: Sequence[tuple[str, Table]]) -> str:
    """The note of all runs; where they differ, each with the names of its runs."""
    runs: dict[str, list[str]] = {}
    for label, table in tables:
        runs.setdefault(table.note, []).append(label)
    runs.pop("", None)
    if len(runs) < 2:
        return "".join(runs)
    return " ".join(f"{', '.join(labels)}: {note}" for note, labels in runs.items())


def _columns(table: Table) -> list[Column]:
    """Identifies each column by its header and its number among equal headers: a defense may have a column's name."""
    seen: Counter[str] = Counter()
    columns = []
    for header in table.headers[:-1]:
        columns.append((header, seen[header]))
        seen[header] += 1
    return [*columns, (table.headers[-1], -1)]
