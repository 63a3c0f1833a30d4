"""Every table of a run's report, in its order, and the same tables of several runs side by side."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ..reading.claims import claim_rows
from ..reading.run_folder import RunFolder
from ..tables.unread import unread_table
from . import numerals, summary
from .grid import attack_grids
from .membership_table import membership_table
from .mutants import mutant_rows, mutant_table
from .papers import paper_table
from .printed import attack_table, claim_table, omission_table, utility_table
from .published import published_table, published_values
from .reconstruction import reconstruction_rows, reconstruction_table
from .same_epsilon import same_epsilon_table
from .table import Table
from .tables import omission_rows, pooled_attacks, pooled_utility
from .trust import trust_table


def run_tables(folder: RunFolder) -> list[Table]:
    """The tables of one run that hold a row: claims, mutants, attacks, utility, what was not measured."""
    claims = claim_rows(folder)
    attacks = [attack_table(grid, grid.lines) for grid in attack_grids(pooled_attacks(folder))]
    tables = [
        replace(claim_table(claims), note=summary.claims_note(claims)),
        trust_table(folder),
        same_epsilon_table(folder),
        paper_table(claims),
        published_table(published_values(folder)),
        mutant_table(mutant_rows(folder)),
        reconstruction_table(reconstruction_rows(folder)),
        membership_table(folder),
        *(replace(table, note=summary.POOLING_NOTE) for table in attacks),
        utility_table(pooled_utility(folder)),
        omission_table(omission_rows(folder)),
        unread_table(folder),
    ]
    return [table for table in tables if table.rows]


def tables_of(folders: Sequence[RunFolder]) -> list[Table]:
    """The tables of one run as they are, or those of several with a column that says whose row it is."""
    if len(folders) == 1:
        return run_tables(folders[0])
    same: dict[str, list[tuple[str, Table]]] = {}
    for label, folder in zip(labels(folders), folders, strict=True):
        for table in run_tables(folder):
            same.setdefault(table.title, []).append((label, table))
    return [side_by_side(tables) for tables in same.values()]


def labels(folders: Sequence[RunFolder]) -> list[str]:
    """A short name for each run: its folder's, and where two are called alike its path."""
    names = Counter(folder.manifest.name for folder in folders)
    return [
        folder.manifest.name if names[folder.manifest.name] == 1 else f"{folder.manifest.name} ({folder.path})"
        for folder in folders
    ]


def overview(folders: Sequence[RunFolder]) -> Table:
    """One row a run: what it ran, and what came of it."""
    return Table(
        title="Runs",
        headers=("run", "suite", "cells", "verdict", "exit code"),
        rows=tuple(
            (
                label,
                f"{folder.manifest.suite.get('name', '')}, version {folder.manifest.suite.get('version', '')}",
                summary.cells(folder),
                summary.verdict_line(folder),
                numerals.NOTHING if folder.gate is None else str(folder.gate.exit_code),
            )
            for label, folder in zip(labels(folders), folders, strict=True)
        ),
        numeric=frozenset({4}),
        note="Each run against itself alone: rows of different suites, data sets or models do not compare, whatever "
        "their federations and defenses are called. A change is judged by paired seeds, not by looking at two rows.",
    )


Column = tuple[str, int]


def side_by_side(tables: Sequence[tuple[str, Table]]) -> Table:
    """(run, table) of one title as one table: rows about the same thing stand together, one a run.

    Columns that a run's table lacks are empty in its rows.
    """
    first, about = tables[0][1], tables[0][1].about
    columns = list(dict.fromkeys(column for _, table in tables for column in _columns(table)))
    # The last column (how many values, why) stays the last, whichever run has columns that others have not.
    columns.sort(key=lambda column: column[1] < 0)
    order: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for label, table in tables:
        for row in table.rows:
            cells = dict(zip(_columns(table), row, strict=True))
            texts = [cells.get(column, numerals.NOTHING) for column in columns]
            order.setdefault(row[:about], []).append((*texts[:about], label, *texts[about:]))
    headers = [name for name, _ in columns]
    numeric = {column for _, table in tables for i, column in enumerate(_columns(table)) if i in table.numeric}
    return Table(
        title=first.title,
        headers=(*headers[:about], "run", *headers[about:]),
        rows=tuple(row for rows in order.values() for row in rows),
        numeric=frozenset(i + (i >= about) for i, column in enumerate(columns) if column in numeric),
        note=" ".join(dict.fromkeys(table.note for _, table in tables if table.note)),
        about=about + 1,
    )


def _columns(table: Table) -> list[Column]:
    """What tells columns apart: header and which of that name, for a defense may be called as a column is."""
    seen: Counter[str] = Counter()
    columns = []
    for header in table.headers[:-1]:
        columns.append((header, seen[header]))
        seen[header] += 1
    return [*columns, (table.headers[-1], -1)]
