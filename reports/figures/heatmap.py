"""Draw each attack's primary metric on each defense as a heatmap, hatched where nothing was measured."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.grid import AttackGrid, GridLine, attack_grids
from ..tables.pooled_rows import AttackRow, pooled_attacks
from ..tables.printed import attack_table, metric_words
from .columns import COLUMN, COLUMNS, LINE, SMALL, column, rows_of, window
from .figure import Figure, Window
from .letters import broken, distinct, shortened
from .sheet import FAINT, INK, MUTED, PAPER, Sheet

TITLE = "Leakage by attack and defense"
DESCRIPTION = (
    "One metric per attack, with its unit next to its name: the median over all images, or the mean over seeds. The "
    "AUC of all scores together, as on the first screen, differs a little from a mean over seeds. A stronger colour "
    "means more leakage. "
    "Each row has its own scale, from chance (or the best null attack with the same metric) to the largest leakage of "
    "the row. Shades of different rows cannot be compared; numbers can where the metric is the same. Out of scope: "
    "the defense states a claim, but none that covers this attack on this federation. Hatched: not "
    "measured; the table of omissions lists the reasons."
)
CHANCE = {"auc": 0.5, "balanced_accuracy": 0.5}
"""The score of guessing, for metrics where it is a constant."""
LEAST_SPAN = {"psnr": 3.0}
"""Smallest range of a row's colours (.2 for shares), so that noise between equal defenses does not look like a leak."""
_SHADES = LinearSegmentedColormap.from_list("leak", ["#f0e7d6", "#e7bd8a", "#c4672f", "#7c2415"])
_CELL, _ROW, _NAME, _LINES, _FOOT = 100.0, 44.0, 11.0, 3, 14.0
_BY_COLUMN = 3
_BLOCK = _BY_COLUMN * (COLUMNS - 1)
"""Defenses in one column of the drawing, and in a block: the first column holds the attacks."""


def heatmap(folder: RunFolder) -> tuple[Figure, ...]:
    """Draw one heatmap of attacks and defenses per federation on which an attack was run."""
    grids = [grid for grid in attack_grids(pooled_attacks(folder)) if grid.primary]
    words = [DESCRIPTION, *(f"The same for federation {grid.federation}." for grid in grids[1:])]
    many = len(grids) > 1
    return tuple(_figure(grid, description, many) for grid, description in zip(grids, words, strict=False))


def _figure(grid: AttackGrid, description: str, many: bool) -> Figure:
    lines, heads = grid.primary, _heads(grid.titles)
    head = 12 + LINE * max(map(len, heads))
    height = head + _ROW * len(lines) + _FOOT
    with Sheet(f"heatmap-{grid.federation}", height * rows_of(len(heads), _BLOCK)) as sheet:
        for block, first in enumerate(range(0, len(heads), _BLOCK)):
            shown = range(first, min(first + _BLOCK, len(heads)))
            _block(sheet, head + height * block, lines, heads, shown)
            for left in [column(1), column(2)][: rows_of(len(shown), _BY_COLUMN)]:
                sheet.panels.append(_windows(height * block, head, len(lines), left))
        title = f"{TITLE} ({grid.federation})" if many else TITLE
        return sheet.figure(title=title, description=description, table=attack_table(grid, lines))


def _block(sheet: Sheet, top: float, lines: Sequence[GridLine], heads: Sequence[Sequence[str]], shown: range) -> None:
    """Draw the cells of the defenses in ``shown``, with their names above and the attacks to the left."""
    for place, line in enumerate(lines):
        _attack(sheet, top + _ROW * place, line)
    # Three cells fill a column, and the space between two columns is left free.
    for start in shown[::_BY_COLUMN]:
        here = range(start, min(start + _BY_COLUMN, shown.stop))
        left = column(1 + (start - shown.start) // _BY_COLUMN)
        ax = sheet.axes(left, top, _CELL * len(here), _ROW * len(lines))
        ax.set(xlim=(here.start, here.stop), ylim=(len(lines), 0))
        ax.set_axis_off()
        for place, line in enumerate(lines):
            _paint(ax, place, line, _scale(line, tuple(lines)), here)
        for number in here:
            for up, words in enumerate(reversed(heads[number])):
                centre = left + _CELL * (number - start + 0.5)
                sheet.text(centre, top - 8 - LINE * up, words, size=_NAME, ha="center", va="bottom")


def _heads(titles: Sequence[str]) -> list[list[str]]:
    """The lines above each column: the whole name if three lines hold it, otherwise one line."""
    lines = [broken(title, _NAME, _CELL - 6) for title in titles]
    short = distinct(titles, _NAME, _CELL - 6)
    return [one if len(one) <= _LINES else [short[title]] for title, one in zip(titles, lines, strict=True)]


def _windows(top: float, head: float, lines: int, left: float) -> tuple[Window, ...]:
    """Three defenses on a narrow screen: their names, then each attack above its cells."""
    rows = [top + head + _ROW * line for line in range(lines)]
    cells = [part for row in rows for part in (window(column(0), row, _ROW), window(left, row, _ROW))]
    return (window(left, top, head), *cells)


def _attack(sheet: Sheet, top: float, line: GridLine) -> None:
    sheet.text(column(0), top + 7, shortened(line.attack, 12, COLUMN), size=12)
    sheet.text(column(0), top + 24, shortened(_line_words(line), SMALL, COLUMN), size=SMALL, color=MUTED)


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


def _paint(ax: Axes, place: int, line: GridLine, scale: tuple[float, float], columns: range) -> None:
    for number in columns:
        cell = line.cells[number]
        if cell is None or cell.pooled is None:
            _hatched(ax, number, place, cell.status if cell is not None else "")
        else:
            _number(ax, number, place, line, cell, scale)


def _corner(number: int, place: int) -> tuple[float, float]:
    return (number + 0.015, place + 0.035)


def _hatched(ax: Axes, number: int, place: int, status: str) -> None:
    style: dict[str, Any] = {"facecolor": "none", "edgecolor": FAINT, "hatch": "////", "linewidth": 0.5}
    ax.add_patch(Rectangle(_corner(number, place), 0.97, 0.93, **style))
    if status:
        box = {"facecolor": PAPER, "edgecolor": "none", "pad": 2.0}
        words = shortened(status, SMALL, _CELL - 10)
        ax.text(number + 0.5, place + 0.5, words, size=SMALL, color=MUTED, ha="center", va="center", bbox=box)


def _number(ax: Axes, number: int, place: int, line: GridLine, cell: AttackRow, scale: tuple[float, float]) -> None:
    if cell.pooled is None:
        return
    sign = -1.0 if line.direction == "lower_leaks" else 1.0
    share = min(1.0, max(0.0, (sign * cell.pooled.value - scale[0]) / (scale[1] - scale[0])))
    ax.add_patch(Rectangle(_corner(number, place), 0.97, 0.93, facecolor=_SHADES(share), edgecolor="none"))
    # The darkest shades would hide dark numbers.
    style: dict[str, Any] = {"color": PAPER if share > 0.55 else INK, "ha": "center", "va": "center"}
    words = numerals.metric_value(line.metric, cell.pooled.value)
    ax.text(number + 0.5, place + (0.34 if cell.beyond else 0.5), words, size=12, **style)
    if cell.beyond:
        ax.text(number + 0.5, place + 0.72, "out of scope", size=SMALL, **style)
