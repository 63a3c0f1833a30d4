"""Build one line per attack and metric with one entry per defense, for the heatmap and a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from .numerals import ATTACK_HEADLINES
from .pooled_rows import WHOLE_CELL, AttackRow


@dataclass(frozen=True, kw_only=True)
class GridLine:
    """A line of the table of attacks: one attack and metric against every defense.

    A cell is None where no row exists. Where the attack failed or was skipped, the cell holds the row with that status.
    """

    attack: str
    metric: str
    direction: str
    observer: str
    null: bool
    cells: tuple[AttackRow | None, ...]

    @property
    def sizes(self) -> str:
        """The number of values behind each entry of the line; if entries differ, the smallest and the largest
        number.
        """
        sizes = [cell.pooled.n for cell in self.cells if cell and cell.pooled]
        if not sizes:
            return "0"
        return str(sizes[0]) if min(sizes) == max(sizes) else f"{min(sizes)}–{max(sizes)}"

    @property
    def over(self) -> str:
        """What the intervals of the line are over, such as ``over 3 seeds``; empty without intervals."""
        kinds = dict.fromkeys(cell.pooled.over for cell in self.cells if cell and cell.pooled and cell.pooled.over)
        return " or ".join(f"over {kind}" for kind in kinds)

    @property
    def measured(self) -> bool:
        return any(cell and cell.pooled for cell in self.cells)


@dataclass(frozen=True, kw_only=True)
class AttackGrid:
    """A table of all attacks and defenses of one federation. Lines without any measured value appear only in the table
    of omissions.
    """

    federation: str
    defenses: tuple[str, ...]
    lines: tuple[GridLine, ...]

    @property
    def titles(self) -> tuple[str, ...]:
        """The defenses with a mark for controls."""
        controls = {cell.defense for line in self.lines for cell in line.cells if cell and cell.control}
        return tuple(f"{name} (control)" if name in controls else name for name in self.defenses)

    @property
    def primary(self) -> tuple[GridLine, ...]:
        """The lines with the primary metric of each attack, one per attack."""
        return tuple(line for line in self.lines if line.metric in ATTACK_HEADLINES)


def attack_grids(rows: Sequence[AttackRow]) -> tuple[AttackGrid, ...]:
    """Return one table of attacks and defenses per federation, in the order in which ``rows`` first name the
    federations.
    """
    federations = dict.fromkeys(row.federation for row in rows)
    return tuple(_grid(name, [row for row in rows if row.federation == name]) for name in federations)


def _grid(federation: str, rows: Sequence[AttackRow]) -> AttackGrid:
    found: dict[tuple[str, str, str], dict[str, AttackRow]] = {}
    for row in rows:
        found.setdefault((row.attack, row.observer, row.metric), {})[row.defense] = row
    # An attack may skip a defense, so no single line lists all of them.
    defenses = _in_common_order(rows)
    omitted = {(row.attack, row.observer, row.defense): row for row in rows if row.metric == WHOLE_CELL}
    lines = []
    for (attack, observer, metric), line in found.items():
        first = next(iter(line.values()))
        lines.append(
            GridLine(
                attack=attack,
                metric=metric,
                direction=first.direction,
                observer=observer,
                null=first.null,
                # A cell that failed as a whole has no row of this metric, so its only row stands in for it.
                cells=tuple(line.get(defense) or omitted.get((attack, observer, defense)) for defense in defenses),
            )
        )
    return AttackGrid(federation=federation, defenses=defenses, lines=tuple(line for line in lines if line.measured))


def _in_common_order(rows: Sequence[AttackRow]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(row.defense for row in sorted(rows, key=lambda row: row.defense_place)))
