"""Draw each attack's primary metric on each defense as a heatmap, hatched where nothing was measured."""

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.grid import AttackGrid, GridLine, attack_grids
from ..tables.pooled_rows import pooled_attacks
from ..tables.printed import attack_table, metric_words
from .figure import Figure
from .labels import wrapped
from .sheet import FAINT, INK, MUTED, PAPER, Sheet

TITLE = "Leakage by attack and defense"
DESCRIPTION = (
    "One metric per attack, pooled over seeds, with its unit next to its name. Darker means more leakage. Each row has "
    "its own scale, from chance (or the best null attack with the same metric) to the largest leakage of the row. "
    "Shades of different rows cannot be compared; numbers can where the metric is the same. Out of scope: "
    "the defense states a claim, but none that covers this attack on this federation. Hatched: not "
    "measured; the table of omissions lists the reasons."
)
CHANCE = {"auc": 0.5, "balanced_accuracy": 0.5}
"""The score of guessing, for metrics where it is a constant."""
LEAST_SPAN = {"psnr": 3.0}
"""Smallest range of a row's colours (.2 for shares), so that noise between equal defenses does not look like a leak."""
_SHADES = LinearSegmentedColormap.from_list("leak", ["#f0e7d6", "#e7bd8a", "#c4672f", "#7c2415"])
_WIDTH, _LEFT, _CELL_HIGH, _HEAD, _LINE, _LETTER = 940.0, 250.0, 44.0, 32.0, 14.0, 6.6


def heatmap(folder: RunFolder) -> tuple[Figure, ...]:
    """Draw one heatmap of attacks and defenses per federation on which an attack was run."""
    grids = [grid for grid in attack_grids(pooled_attacks(folder)) if grid.primary]
    words = [DESCRIPTION, *(f"The same for federation {grid.federation}." for grid in grids[1:])]
    many = len(grids) > 1
    return tuple(_figure(grid, description, many) for grid, description in zip(grids, words, strict=False))


def _figure(grid: AttackGrid, description: str, many: bool) -> Figure:
    key = f"heatmap-{grid.federation}"
    lines = grid.primary
    # Few defenses would otherwise stretch over the whole width.
    cell = min(172.0, (_WIDTH - _LEFT) / len(grid.defenses))
    names = [wrapped(defense, letters=int(cell / _LETTER)) for defense in grid.titles]
    head = _HEAD + _LINE * max(name.count("\n") for name in names)
    with Sheet(key, _WIDTH, head + _CELL_HIGH * len(lines) + 6) as sheet:
        ax = sheet.axes(_LEFT, head, cell * len(grid.defenses), _CELL_HIGH * len(lines))
        ax.set(xlim=(0, len(grid.defenses)), ylim=(len(lines), 0))
        ax.set_axis_off()
        for column, name in enumerate(names):
            sheet.text(_LEFT + cell * (column + 0.5), head - 9, name, size=11, ha="center", va="bottom")
        for place, line in enumerate(lines):
            top = head + _CELL_HIGH * place
            sheet.text(0, top + 7, line.attack, size=12)
            sheet.text(0, top + 24, _line_words(line), size=9.5, color=MUTED)
            _paint(ax, place, line, _scale(line, lines))
        svg = sheet.svg()
    title = f"{TITLE} ({grid.federation})" if many else TITLE
    return Figure(
        key=key, title=title, description=description, svg=svg, pdf=sheet.pdf, table=attack_table(grid, lines)
    )


def _line_words(line: GridLine) -> str:
    words = metric_words(line.metric, line.direction)
    return f"null attack: {words}" if line.null else words


def _scale(line: GridLine, lines: tuple[GridLine, ...]) -> tuple[float, float]:
    """Smallest and largest value of a row's colours, in the direction of more leakage."""
    sign = -1.0 if line.direction == "lower_leaks" else 1.0
    values = [sign * cell.pooled.value for cell in line.cells if cell and cell.pooled]
    nulls = [
        sign * cell.pooled.value
        for other in lines
        if other.null and other.metric == line.metric
        for cell in other.cells
        if cell and cell.pooled
    ]
    # From chance and not from the smallest value, so that an unsuccessful attack stays light.
    least = sign * CHANCE[line.metric] if line.metric in CHANCE else max(nulls, default=min(values))
    return least, max(max(values), least + LEAST_SPAN.get(line.metric, 0.2))


def _paint(ax: Axes, place: int, line: GridLine, scale: tuple[float, float]) -> None:
    sign = -1.0 if line.direction == "lower_leaks" else 1.0
    for column, cell in enumerate(line.cells):
        corner = (column + 0.015, place + 0.035)
        if cell is None or cell.pooled is None:
            ax.add_patch(Rectangle(corner, 0.97, 0.93, facecolor="none", edgecolor=FAINT, hatch="////", linewidth=0.5))
            if cell is not None:
                box = {"facecolor": PAPER, "edgecolor": "none", "pad": 2.0}
                ax.text(
                    column + 0.5, place + 0.5, cell.status, size=10, color=MUTED, ha="center", va="center", bbox=box
                )
            continue
        share = min(1.0, max(0.0, (sign * cell.pooled.value - scale[0]) / (scale[1] - scale[0])))
        ax.add_patch(Rectangle(corner, 0.97, 0.93, facecolor=_SHADES(share), edgecolor="none"))
        # The darkest shades would hide dark numbers.
        ink = PAPER if share > 0.55 else INK
        words = numerals.metric_value(line.metric, cell.pooled.value)
        middle = place + (0.38 if cell.beyond else 0.5)
        ax.text(column + 0.5, middle, words, size=12, color=ink, ha="center", va="center")
        if cell.beyond:
            ax.text(column + 0.5, place + 0.72, "out of scope", size=8.5, color=ink, ha="center", va="center")
