"""Compare several runs: one row per claim, attack or metric of utility, and one column per run."""

from collections.abc import Mapping, Sequence

from ..claim_tables.answers import weakness
from ..reading.claims import ClaimRow, claim_rows, one_row_per_claim
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.grid import attack_grids
from ..tables.pooled_rows import pooled_attacks, pooled_utility
from ..tables.printed import (
    check_counts,
    defense_words,
    metric_words,
    observer_words,
    pooled_words,
    quality_words,
    verdict_words,
)
from ..tables.table import Table

MOST = 8
"""Runs for which a table has room as columns."""

Cells = Mapping[tuple[str, ...], str]
"""The text of each row of one run, by the columns that identify the row: federation and defense come first."""


def by_run(folders: Sequence[RunFolder], labels: Sequence[str]) -> list[Table]:
    """Return the tables with one column per run, given each run's label; none for more runs than ``MOST``.

    Runs share a row only if all its identifying columns agree: claims that differ in epsilon, delta, unit, adjacency
    or adversary have rows of their own, and so have federations of one name that differ in data, model, clients or
    training; their run is then named. What a run did not measure is a dash in its column.
    """
    if len(folders) > MOST:
        return []
    federations = _federation_names(folders, labels)
    tables = (
        _table(
            "Claims by run",
            ("federation", "defense", "claim"),
            labels,
            [_claims(folder, names) for folder, names in zip(folders, federations, strict=True)],
            note="The verdict of each run, the lower bound on epsilon that it measured, and the smallest true epsilon "
            "that it refutes with 90 % power.",
        ),
        _table(
            "Attacks by run",
            ("federation", "defense", "attack and metric", "adversary"),
            labels,
            [_attacks(folder, names) for folder, names in zip(folders, federations, strict=True)],
            note="The first metric of each attack, with its 95 % interval where there is one: of images over all "
            "images, else over seeds; of a single seed that of its own measurement.",
        ),
        _table(
            "Utility by run",
            ("federation", "defense", "metric"),
            labels,
            [_utility(folder, names) for folder, names in zip(folders, federations, strict=True)],
        ),
    )
    return [table for table in tables if table.rows]


def _federation_names(folders: Sequence[RunFolder], labels: Sequence[str]) -> list[dict[str, str]]:
    """For each run the printed names of its federations: with the run's label where another run has a federation of the
    same name that is set up otherwise.
    """
    tables = [{name: table for name, (_, table) in folder.federations.items()} for folder in folders]
    return [
        {
            name: name if all(other.get(name, table) == table for other in tables) else f"{name} of {label}"
            for name, table in own.items()
        }
        for label, own in zip(labels, tables, strict=True)
    ]


def _table(title: str, about: tuple[str, ...], labels: Sequence[str], runs: Sequence[Cells], note: str = "") -> Table:
    keys = list(dict.fromkeys(key for cells in runs for key in cells))
    # A defense that only a later run has follows the others; its own rows stay together.
    places = {pair: place for place, pair in enumerate(dict.fromkeys(key[:2] for key in keys))}
    keys.sort(key=lambda key: places[key[:2]])
    return Table(
        title=title,
        headers=(*about, *labels),
        rows=tuple((*key, *(cells.get(key, numerals.NOTHING) for cells in runs)) for key in keys),
        note=note,
        about=len(about),
    )


def _claims(folder: RunFolder, names: Mapping[str, str]) -> Cells:
    rows = one_row_per_claim(claim_rows(folder))
    return {
        (names.get(row.federation, row.federation), defense_words(row.defense, row.control), row.claim_text): _found(
            row
        )
        for row in rows
        if row.stated
    }


def _found(row: ClaimRow) -> str:
    numbers = (
        ("measured ε ≥ ", row.epsilon_low, numerals.lower_bound),
        ("min detectable ", row.detectable, numerals.epsilon),
    )
    words = [f"{name}{format_(value)}" for name, value, format_ in numbers if value is not None]
    failed = check_counts(row) if row.failed_checks else ""
    verdict = f"{verdict_words(row)}{' (weak test)' if weakness(row) else ''}"
    return "; ".join(filter(None, (verdict, *words, failed)))


def _attacks(folder: RunFolder, names: Mapping[str, str]) -> Cells:
    return {
        (
            names.get(grid.federation, grid.federation),
            defense_words(cell.defense, cell.control),
            f"{line.attack}{' (null attack)' if line.null else ''}: {metric_words(line.metric, line.direction)}",
            observer_words(line.observer),
        ): pooled_words(line.metric, cell.pooled, True) + (" (out of scope)" if cell.beyond else "")
        for grid in attack_grids(pooled_attacks(folder))
        for line in grid.primary
        for cell in line.cells
        if cell and cell.pooled
    }


def _utility(folder: RunFolder, names: Mapping[str, str]) -> Cells:
    return {
        (
            names.get(row.federation, row.federation),
            defense_words(row.defense, False),
            metric_words(row.metric, row.direction),
        ): quality_words(row)
        for row in pooled_utility(folder)
        if numerals.is_quality(row.metric) and row.pooled
    }
