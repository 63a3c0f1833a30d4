"""Everything that a run found about one defense, defense by defense."""

from dataclasses import dataclass

from ..claim_tables.covered import value_words
from ..reading.claims import claim_rows, covered
from ..reading.order import Order
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.grid import attack_grids
from ..tables.pooled_rows import AttackRow, pooled_attacks, pooled_utility
from ..tables.printed import (
    check_counts,
    defense_words,
    metric_words,
    observer_words,
    pooled_words,
    quality_words,
    useless_note,
    verdict_words,
)
from ..tables.table import Table

MOST = 40
"""Defenses for which a page has room."""


@dataclass(frozen=True, kw_only=True)
class DefenseSection:
    """The tables about one defense that have rows.

    Args:
        key: its id on a page.
        title: its label, with a mark for a control.
    """

    key: str
    defense: str
    title: str
    tables: tuple[Table, ...]


def by_defense(folder: RunFolder) -> list[DefenseSection]:
    """Return one section per defense with a claim or a result, in the suite's order; none where they are more than
    ``MOST``.
    """
    order = Order.of(folder)
    named = dict.fromkeys([*(one.defense for one in folder.claims), *(row.defense for row in folder.rows())])
    controls = {one.defense for one in folder.claims if one.control}
    controls |= {row.defense for row in folder.rows() if row.control}
    found: list[DefenseSection] = []
    if len(named) > MOST:
        return found
    for number, defense in enumerate(sorted(filter(None, named), key=order.defense), start=1):
        tables = (_claims(folder, defense), _attacks(folder, defense), _utility(folder, defense))
        kept = tuple(table for table in tables if table.rows)
        title = defense_words(defense, defense in controls)
        if kept:
            found.append(DefenseSection(key=f"defense-{number}", defense=defense, title=title, tables=kept))
    return found


def _claims(folder: RunFolder, defense: str) -> Table:
    return Table(
        title="Claims",
        headers=("federation", "claim", "verdict", "measured ε ≥", "min detectable", "implementation checks"),
        rows=tuple(
            (
                row.federation,
                row.claim_text,
                verdict_words(row),
                numerals.lower_bound(row.epsilon_low),
                numerals.epsilon(row.detectable),
                check_counts(row) or numerals.NOTHING,
            )
            for row in claim_rows(folder)
            if row.defense == defense and row.stated
        ),
        numeric=frozenset({3, 4}),
        about=2,
    )


def _attacks(folder: RunFolder, defense: str) -> Table:
    return Table(
        title="Attacks",
        headers=("federation", "attack", "adversary", "result", "covered by a claim"),
        rows=tuple(
            (
                grid.federation,
                f"{line.attack} (null attack)" if line.null else line.attack,
                observer_words(line.observer),
                value_words(cell),
                _scope(folder, cell),
            )
            for grid in attack_grids(pooled_attacks(folder))
            for line in grid.primary
            for cell in line.cells
            if cell and cell.defense == defense and cell.pooled
        ),
        about=3,
    )


def _scope(folder: RunFolder, cell: AttackRow) -> str:
    if cell.null:
        return "null attack: not judged"
    if cell.beyond:
        return "no: OUT OF SCOPE"
    return "yes" if covered(folder, cell.federation, cell.defense, cell.observer, cell.attack) else "no claim"


def _utility(folder: RunFolder, defense: str) -> Table:
    rows = [row for row in pooled_utility(folder) if row.defense == defense and numerals.is_quality(row.metric)]
    return Table(
        title="Utility",
        headers=("federation", "metric", "value", "change from undefended"),
        rows=tuple(
            (
                row.federation,
                metric_words(row.metric, row.direction),
                quality_words(row),
                pooled_words(row.metric, row.change, True, signed=True),
            )
            for row in rows
        ),
        numeric=frozenset({2, 3}),
        about=2,
        note=f"Mean over seeds with a 95 % t interval. {useless_note(rows)}".rstrip(),
    )
