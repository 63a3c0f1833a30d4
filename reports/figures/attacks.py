"""Draw what attacks reached: a heatmap of attacks and defenses, and the best membership attack by observer."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from ...audit.wording import plain
from ..reading.membership import BestAttack, best_attacks, in_order, memberships
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.pooled_rows import AttackGrid, AttackRow, GridLine, attack_grids, pooled_attacks
from ..tables.printed import attack_table
from ..tables.table import Right, Table, tabulate
from . import frame
from .frame import Figure, Panel, Sheet, Window, panel_figure
from .letters import SMALL, broken, distinct, shortened, text_width

HEATMAP_TITLE = "Leakage by attack and defense"
HEATMAP_DESCRIPTION = (
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
_CELL, _HEATMAP_ROW, _NAME, _LINES, _HEATMAP_FOOT = 100.0, 44.0, 11.0, 3, 14.0
_BY_COLUMN = 3
_BLOCK = _BY_COLUMN * (frame.COLUMNS - 1)
"""Defenses in one column of the drawing, and in a block: the first column holds the attacks."""


def heatmap(folder: RunFolder) -> tuple[Figure, ...]:
    """Draw one heatmap of attacks and defenses per federation on which an attack was run."""
    grids = [grid for grid in attack_grids(pooled_attacks(folder)) if grid.primary]
    words = [HEATMAP_DESCRIPTION, *(f"The same for federation {grid.federation}." for grid in grids[1:])]
    many = len(grids) > 1
    return tuple(_heatmap_figure(grid, description, many) for grid, description in zip(grids, words, strict=False))


def _heatmap_figure(grid: AttackGrid, description: str, many: bool) -> Figure:
    lines, heads = grid.primary, _heads(grid.titles)
    head = 12 + frame.LINE * max(map(len, heads))
    height = head + _HEATMAP_ROW * len(lines) + _HEATMAP_FOOT
    with Sheet(f"heatmap-{grid.federation}", height * frame.rows_of(len(heads), _BLOCK)) as sheet:
        for block, first in enumerate(range(0, len(heads), _BLOCK)):
            shown = range(first, min(first + _BLOCK, len(heads)))
            _block(sheet, head + height * block, lines, heads, shown)
            for left in [frame.column(1), frame.column(2)][: frame.rows_of(len(shown), _BY_COLUMN)]:
                sheet.panels.append(_windows(height * block, head, len(lines), left))
        title = frame.titled(HEATMAP_TITLE, grid.federation, many)
        return sheet.figure(title=title, description=description, table=attack_table(grid, lines))


def _block(sheet: Sheet, top: float, lines: Sequence[GridLine], heads: Sequence[Sequence[str]], shown: range) -> None:
    """Draw the cells of the defenses in ``shown``, with their names above and the attacks to the left."""
    for place, line in enumerate(lines):
        _attack(sheet, top + _HEATMAP_ROW * place, line)
    # Three cells fill a column, and the space between two columns is left free.
    for start in shown[::_BY_COLUMN]:
        here = range(start, min(start + _BY_COLUMN, shown.stop))
        left = frame.column(1 + (start - shown.start) // _BY_COLUMN)
        ax = sheet.axes(left, top, _CELL * len(here), _HEATMAP_ROW * len(lines))
        ax.set(xlim=(here.start, here.stop), ylim=(len(lines), 0))
        ax.set_axis_off()
        for place, line in enumerate(lines):
            _paint(ax, place, line, _scale(line, tuple(lines)), here)
        for number in here:
            for up, words in enumerate(reversed(heads[number])):
                centre = left + _CELL * (number - start + 0.5)
                sheet.text(centre, top - 8 - frame.LINE * up, words, size=_NAME, ha="center", va="bottom")


def _heads(titles: Sequence[str]) -> list[list[str]]:
    """The lines above each column: the whole name if three lines hold it, otherwise one line."""
    lines = [broken(title, _NAME, _CELL - 6) for title in titles]
    short = distinct(titles, _NAME, _CELL - 6)
    return [one if len(one) <= _LINES else [short[title]] for title, one in zip(titles, lines, strict=True)]


def _windows(top: float, head: float, lines: int, left: float) -> tuple[Window, ...]:
    """Three defenses on a narrow screen: their names, then each attack above its cells."""
    rows = [top + head + _HEATMAP_ROW * line for line in range(lines)]
    cells = [frame.window(at, row, _HEATMAP_ROW) for row in rows for at in (frame.column(0), left)]
    return (frame.window(left, top, head), *cells)


def _attack(sheet: Sheet, top: float, line: GridLine) -> None:
    sheet.text(frame.column(0), top + 7, shortened(line.first.attack, 12, frame.COLUMN), size=12)
    sheet.text(
        frame.column(0),
        top + 24,
        shortened(f"null attack: {line.first.words}" if line.first.null else line.first.words, SMALL, frame.COLUMN),
        size=SMALL,
        color=frame.MUTED,
    )


def _scale(line: GridLine, lines: tuple[GridLine, ...]) -> tuple[float, float]:
    """Smallest and largest value of a row's colours, in the direction of more leakage."""
    sign = -1.0 if line.first.direction == "lower_leaks" else 1.0
    values = [sign * cell.pooled.value for cell in line.cells if cell and cell.pooled]
    nulls = [
        sign * cell.pooled.value
        for other in lines
        if other.first.null and other.first.metric == line.first.metric
        for cell in other.cells
        if cell and cell.pooled
    ]
    # From chance and not from the smallest value, so that an unsuccessful attack stays light.
    least = sign * CHANCE[line.first.metric] if line.first.metric in CHANCE else max(nulls, default=min(values))
    return least, max(max(values), least + LEAST_SPAN.get(line.first.metric, 0.2))


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
    style: dict[str, Any] = {"facecolor": "none", "edgecolor": frame.FAINT, "hatch": "////", "linewidth": 0.5}
    ax.add_patch(Rectangle(_corner(number, place), 0.97, 0.93, **style))
    if status:
        box = {"facecolor": frame.PAPER, "edgecolor": "none", "pad": 2.0}
        words = shortened(status, SMALL, _CELL - 10)
        ax.text(number + 0.5, place + 0.5, words, size=SMALL, color=frame.MUTED, ha="center", va="center", bbox=box)


def _number(ax: Axes, number: int, place: int, line: GridLine, cell: AttackRow, scale: tuple[float, float]) -> None:
    if cell.pooled is None:
        return
    sign = -1.0 if line.first.direction == "lower_leaks" else 1.0
    share = min(1.0, max(0.0, (sign * cell.pooled.value - scale[0]) / (scale[1] - scale[0])))
    ax.add_patch(Rectangle(_corner(number, place), 0.97, 0.93, facecolor=_SHADES(share), edgecolor="none"))
    # The darkest shades would hide dark numbers.
    style: dict[str, Any] = {"color": frame.PAPER if share > 0.55 else frame.INK, "ha": "center", "va": "center"}
    words = numerals.metric_value(line.first.metric, cell.pooled.value)
    ax.text(number + 0.5, place + (0.34 if cell.beyond else 0.5), words, size=12, **style)
    if cell.beyond:
        ax.text(number + 0.5, place + 0.72, "out of scope", size=SMALL, **style)


OBSERVER_TITLE = "Best membership attack by observer"
OBSERVER_DESCRIPTION = (
    "The AUC of the best attack for each defense, observer and attacked unit; 0.5 is guessing. Circle: a realistic "
    "adversary with its observations and public data. Square: a worst-case adversary, who knows everything except "
    "whether the unit took part, as differential privacy assumes. Triangle: an active server, which sends manipulated "
    "models. Filled: covered by a claim of the defense; hollow: not covered. Bars: 95 % intervals, joint for all "
    "attacks of a panel and defense, over runs, or over candidates for a single run. The same ε protects different "
    "units in different trust models, so differences between defenses need the unit and observer of their claims."
)
_MARKS = {"realistic": ("o", frame.BLUE), "worst_case": ("s", frame.RED), "active": ("^", frame.AMBER)}
_WORDS = {"realistic": "realistic", "worst_case": "worst-case adversary", "active": "active server"}
_NAMES, _OBSERVER_ROW, _OBSERVER_FOOT = 130.0, 26.0, 46.0
_OFFSET = 0.3
"""Distance between adversaries of one defense, as a share of its row."""


def observers(folder: RunFolder) -> tuple[Figure, ...]:
    """Draw the best attacks by observer, one figure per federation in which membership attacks on several defenses
    stored their scores.
    """
    found = [one for one in memberships(folder) if not one.null]
    federations = list(dict.fromkeys(one.federation for one in found))
    many = len(federations) > 1
    groups = {name: best_attacks([one for one in found if one.federation == name]) for name in federations}
    return tuple(
        _observer_figure(name, group, many=many)
        for name, group in groups.items()
        if len({best.one.defense for best in group}) > 1
    )


def _observer_figure(federation: str, group: Sequence[BestAttack], many: bool) -> Figure:
    title = frame.titled(OBSERVER_TITLE, federation, many)
    defenses = list(dict.fromkeys(best.one.defense for best in group))
    kinds = {best.one.adversary for best in group}
    names = min(_NAMES, max(text_width(name, SMALL) for name in defenses)) + 8
    # Attacks can score below chance on few candidates; their markers and intervals must stay visible.
    lowest = min(0.35, *(_span(best)[0] for best in group)) - 0.05
    return panel_figure(
        f"observers-{federation}",
        [
            Panel(
                title=f"one {unit}",
                below=f"adversary: {observer.phrase}",
                axis=names,
                draw=partial(
                    _draw, [best for best in group if best.one.question == (observer, unit)], defenses, lowest
                ),
            )
            for observer, unit in in_order([best.one.question for best in group])
        ],
        plots=(_OBSERVER_ROW * len(defenses),),
        foot=_OBSERVER_FOOT,
        legend={_WORDS[kind]: _mark(kind) for kind in _MARKS if kind in kinds},
        title=title,
        description=OBSERVER_DESCRIPTION,
        table=_table(title, group),
    )


def _mark(kind: str) -> dict[str, Any]:
    marker, colour = _MARKS[kind]
    return {"linestyle": "none", "marker": marker, "color": colour}


def _draw(group: Sequence[BestAttack], defenses: Sequence[str], lowest: float, ax: Axes) -> None:
    ax.axvline(0.5, color=frame.FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    ax.grid(axis="x")
    for best in group:
        marker, colour = _MARKS[best.one.adversary]
        # Adversaries of one defense stand at different heights, because their intervals overlap.
        alike = [other for other in group if other.one.defense == best.one.defense]
        place = defenses.index(best.one.defense) + _OFFSET * (alike.index(best) - (len(alike) - 1) / 2)
        if best.ends is not None:
            ax.plot(_span(best), [place, place], color=colour, linewidth=1.4)
        # A hollow marker is out of scope: no claim covers the attack, so it cannot contradict one.
        face = colour if best.one.claims else frame.PAPER
        ax.plot(best.one.area, place, marker=marker, color=colour, markerfacecolor=face, markersize=6.5)
    ax.set(ylim=(len(defenses) - 0.5, -0.5), xlabel="AUC", xticks=[0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    ax.set_yticks(range(len(defenses)), distinct(defenses, SMALL, _NAMES).values())
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(lowest, 1.02)


def _span(best: BestAttack) -> tuple[float, float]:
    """The ends of the interval, or the AUC twice without one."""
    low, high = best.ends or (best.one.area, best.one.area)
    # A normal interval may leave [0, 1], which an AUC cannot.
    return max(0.0, low), min(1.0, high)


def _table(title: str, group: Sequence[BestAttack]) -> Table:
    auc = partial(numerals.metric_value, "auc")
    return tabulate(
        title,
        group,
        {
            "defense": lambda best: best.one.defense,
            "observer": lambda best: best.one.setting.observer.phrase,
            "unit": lambda best: str(best.one.setting.unit),
            "adversary": lambda best: _WORDS[best.one.adversary],
            "attack": lambda best: best.one.attack,
            Right("AUC"): lambda best: auc(best.one.area),
            Right("from"): lambda best: auc(best.ends[0] if best.ends else None),
            Right("to"): lambda best: auc(best.ends[1] if best.ends else None),
            "claim": lambda best: " and ".join(f"ε {plain(one.epsilon)}" for one in best.one.claims) or "not covered",
        },
    )
