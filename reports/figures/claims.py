"""Draw the claims of a run: claimed against measured epsilon, and accuracy against both of them."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from ...audit.wording import plain
from ...suites.results.record import CORRECT
from ..reading.claims import ClaimRow, one_row_per_claim, stated_rows
from ..reading.pooling import Pooled, gathered
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.pooled_rows import UtilityRow, pooled_utility, undefended
from ..tables.printed import VERDICTS, claim_table, defense_words, neighbours_of, pooled_words
from ..tables.table import Right, Table, tabulate
from . import frame
from .frame import Figure, Panel, Sheet, Window, panel_figure
from .letters import SMALL, Label, drawn, label_column, label_height, label_room, shortened

MEASURED_KEY = "claimed-measured"
MEASURED_TITLE = "Claimed against measured ε"
MEASURED_DESCRIPTION = (
    "Tick: the ε that a defense claims. Dot: the lower bound of the audit; the true ε is at least that, and the band "
    "to its right shows the values that remain possible. Triangle: the largest ε that this sample size can certify, "
    "which needs an attack without errors; the bound cannot refute a claim beyond it. A claim may also be refuted by "
    "its stated trade-off curve while its dot is left of the tick. Panels have different scales, and an ε of one unit "
    "or δ cannot be compared with an ε of another."
)
_ROW, _TITLE, _MEASURED_FOOT, _MEASURED_ENTRIES = 50.0, 30.0, 50.0, 5
_COLOURS = {"REFUTED": frame.RED, "UNDERPOWERED": frame.AMBER}
_CEILING: dict[str, Any] = {"linestyle": "", "marker": "v", "color": frame.INK, "markerfacecolor": frame.PAPER}


def claimed_measured(folder: RunFolder) -> Figure | None:
    """Draw claimed and measured epsilon; return None if no claim was measured."""
    rows = [row for row in stated_rows(folder) if row.epsilon_low is not None]
    if not rows:
        return None
    # An epsilon of another unit, adjacency or delta must not share an axis.
    panels = gathered((neighbours_of(row.claim), row) for row in rows)
    heights = [_TITLE + _ROW * len(panel) + _MEASURED_FOOT for panel in panels.values()]
    top = frame.legend_height(_MEASURED_ENTRIES)
    with Sheet(MEASURED_KEY, top + sum(heights)) as sheet:
        sheet.legend(_measured_legend())
        for (name, panel), height in zip(panels.items(), heights, strict=True):
            _measured_panel(sheet, top, name, panel)
            top += height
        return sheet.figure(title=MEASURED_TITLE, description=MEASURED_DESCRIPTION, table=claim_table(rows))


def _measured_panel(sheet: Sheet, top: float, name: str, rows: Sequence[ClaimRow]) -> None:
    sheet.text(frame.column(0), top + 8, name, size=11.5, weight="bold")
    ax = sheet.axes(frame.column(1), top + _TITLE, frame.COLUMN, _ROW * len(rows))
    right = _right_end(rows)
    ax.set(xlim=(0, right), ylim=(len(rows) - 0.5, -0.5), yticks=[], xlabel="ε")
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    for place, row in enumerate(rows):
        ax.axhline(place + 0.5, color=frame.RULE, linewidth=0.8)
        _row(ax, place, row, right)
        _measured_words(sheet, top + _TITLE + _ROW * place, row)
        sheet.panels.append(_windows(top, place, len(rows)))


def _windows(top: float, place: int, count: int) -> tuple[Window, ...]:
    """A claim on a narrow screen: unit and delta, its words, its row of the plot, and the axis."""
    row = top + _TITLE + _ROW * place
    axis = top + _TITLE + _ROW * count
    parts = [(0, top, _TITLE), *((one, row, _ROW) for one in (0, 2, 1)), (1, axis, _MEASURED_FOOT - 10)]
    return tuple(frame.window(frame.column(place), at, height) for place, at, height in parts)


def _right_end(rows: Sequence[ClaimRow]) -> float:
    shown = [value for row in rows for value in (row.epsilon_low, row.ceiling, row.claim.epsilon) if value is not None]
    # Space for the arrow and the number at the right end of the longest band.
    return 1.12 * max(shown)


def _row(ax: Axes, place: int, row: ClaimRow, right: float) -> None:
    low, claimed = row.epsilon_low or 0.0, row.claim.epsilon
    colour = _COLOURS.get(row.verdict, frame.BLUE)
    ax.plot([low, right], [place, place], color=colour, alpha=0.18, linewidth=9, solid_capstyle="butt")
    ax.plot([right], [place], marker=">", color=colour, alpha=0.35, markersize=9, clip_on=False, markeredgewidth=0)
    ax.plot([claimed, claimed], [place - 0.3, place + 0.3], color=frame.INK, linewidth=2.4, solid_capstyle="butt")
    if row.ceiling is not None:
        ax.plot([row.ceiling], [place], markersize=7, markeredgewidth=1.1, **_CEILING)
    ax.plot([low], [place], markersize=8.5, markeredgewidth=1.4, clip_on=False, zorder=5, **_dot(row.verdict))
    _numbers(ax, place, row, right)


def _numbers(ax: Axes, place: int, row: ClaimRow, right: float) -> None:
    low, claimed = row.epsilon_low or 0.0, row.claim.epsilon
    # The number must not cross the tick or the left edge.
    close = abs(low - claimed) < right / 10
    side = "left" if low < right / 12 or (close and low >= claimed) else "right" if close else "center"
    look: dict[str, Any] = {"textcoords": "offset points", "size": SMALL}
    colour = _COLOURS.get(row.verdict, frame.BLUE)
    shift = {"left": 3, "center": 0, "right": -3}[side] if close else 0
    ax.annotate(f"≥ {numerals.lower_bound(low)}", (low, place), xytext=(shift, 8), ha=side, color=colour, **look)
    # A claimed number at the right end must not leave the column.
    end = claimed > 0.8 * right
    ax.annotate(plain(claimed), (claimed, place), xytext=(-4 if end else 4, -17), ha="right" if end else "left",
                color=frame.INK, **look)  # fmt: skip


def _dot(verdict: str) -> dict[str, Any]:
    """The marker of a measured bound."""
    colour = _COLOURS.get(verdict, frame.BLUE)
    face = frame.PAPER if verdict == "UNDERPOWERED" else colour
    marker = "X" if verdict == "REFUTED" else "o"
    return {"linestyle": "", "marker": marker, "color": colour, "markerfacecolor": face}


def _measured_words(sheet: Sheet, top: float, row: ClaimRow) -> None:
    # The longer label of a mutant's correct version fits in smaller letters.
    size = SMALL if row.defense.endswith(CORRECT) else 12
    sheet.text(frame.column(0), top + 10, shortened(row.defense, size, frame.COLUMN), size=size)
    sheet.text(
        frame.column(0),
        top + 28,
        shortened(f"adversary: {row.claim.observer.phrase}", SMALL, frame.COLUMN),
        size=SMALL,
        color=frame.MUTED,
    )
    words = VERDICTS.get(row.verdict, row.verdict)
    below = (
        "control: should be REFUTED" if row.should_be_refuted else f"min detectable {numerals.epsilon(row.detectable)}"
    )
    below = "by attacks on final models" if row.by_attacks else below
    sheet.text(frame.column(2), top + 10, words, size=11, weight="bold", color=_COLOURS.get(row.verdict, frame.INK))
    sheet.text(frame.column(2), top + 28, below, size=SMALL, color=frame.MUTED)


def _measured_legend() -> dict[str, dict[str, Any]]:
    return {
        "measured: ε is at least this": {**_dot(""), "markersize": 8},
        "measured: ε is at least this, and the claim is refuted": {**_dot("REFUTED"), "markersize": 8},
        "the same, underpowered": {**_dot("UNDERPOWERED"), "markersize": 8},
        "claimed": {"linestyle": "", "marker": "|", "color": frame.INK, "markersize": 13, "markeredgewidth": 2.4},
        "max certifiable": {**_CEILING, "markersize": 8},
    }


UTILITY_KEY = "privacy-utility"
UTILITY_TITLE = "Privacy and utility"
UTILITY_DESCRIPTION = (
    "Accuracy (IoU for segmentation, R2 for regression, macro F1 for several labels per sample; mean over seeds with a "
    "95 % t interval) against ε. R2 below -1 is drawn at -1. Filled marker: the ε that a defense claims. Hollow "
    "marker: the lower bound of the audit. The line between them is the range that the audit leaves open. Dashed line: "
    "the federation without a defense. A sweep of a defense has one colour, one label and a line through its claims. "
    "Within a panel, higher and further left is better, but only filled markers are upper limits; panels cannot be "
    "compared. Red: controls, which break their claim on purpose."
)
_HEIGHT, _UTILITY_FOOT = 200.0, 52.0


class Point(NamedTuple):
    """A point of a figure: a claim, the accuracy of its defense, and the name of the line to which the point
    belongs.
    """

    row: ClaimRow
    accuracy: UtilityRow
    pooled: Pooled
    line: str

    @property
    def height(self) -> float:
        return drawn(self.accuracy.metric, self.pooled.value)


def privacy_utility(folder: RunFolder) -> Figure | None:
    """Draw accuracy, or for other tasks their first utility metric, against epsilon; return None if no defense has both
    a claim and such a metric.
    """
    rows = [row for row in pooled_utility(folder) if row.metric in numerals.HEADLINES and row.pooled]
    utility = {(row.federation, row.defense): row for row in rows}
    points = [
        Point(row, found, found.pooled, folder.line_of(row.defense))
        for row in one_row_per_claim(stated_rows(folder))
        if (found := utility.get((row.federation, row.defense))) and found.pooled
    ]
    if not points:
        return None
    panels = gathered(
        ((point.row.federation, neighbours_of(point.row.claim), point.row.claim.observer.phrase), point)
        for point in points
    )
    baselines = {
        name: utility.get((name, undefended(defense for where, defense in utility if where == name) or ""))
        for name, _ in utility
    }
    limits = {metric: _accuracy_range([row for row in rows if row.metric == metric]) for metric in _metrics(rows)}
    return panel_figure(
        UTILITY_KEY,
        [
            Panel(
                title=terms,
                below=f"adversary: {observer}",
                room=label_room(text for *_, text, _ in _labels(panel, baselines[federation], 0.0)),
                draw=partial(_utility_panel, panel, baselines[federation], limits),
            )
            for (federation, terms, observer), panel in panels.items()
        ],
        plots=(max(_HEIGHT, *(label_height(len(_lines(panel)) + 1) for panel in panels.values())),),
        foot=_UTILITY_FOOT,
        legend=_utility_legend(),
        title=UTILITY_TITLE,
        description=UTILITY_DESCRIPTION,
        table=_table(points),
    )


def _metrics(rows: Iterable[UtilityRow]) -> list[str]:
    present = {row.metric for row in rows}
    return [key for key in numerals.HEADLINES if key in present]


def _accuracy_range(rows: Sequence[UtilityRow]) -> tuple[float, float]:
    pooled = [row.pooled for row in rows if row.pooled]
    ends = [drawn(rows[0].metric, end) for one in pooled for end in (one.value, one.low, one.high) if end is not None]
    margin = 0.08 * (max(ends) - min(ends)) + 0.01
    return min(ends) - margin, max(ends) + margin


def _utility_panel(
    points: Sequence[Point], baseline: UtilityRow | None, limits: Mapping[str, tuple[float, float]], ax: Axes
) -> None:
    metric = points[0].accuracy.metric
    ax.set(ylim=limits[metric], xlabel="ε", ylabel=numerals.metric(metric).name)
    right = 1.08 * max(max(point.row.claim.epsilon, point.row.epsilon_low or 0.0) for point in points)
    ax.set_xlim(0, right)
    ax.grid()
    if baseline and baseline.pooled:
        ax.axhline(drawn(baseline.metric, baseline.pooled.value), **frame.REFERENCE_LINE)
    for place, line in enumerate(_lines(points).values()):
        # Of a defense with claims for several groups of clients the line passes through the weakest.
        ends = gathered((point.row.defense, (point.row.claim.epsilon, point.height)) for point in line)
        ax.plot(*zip(*sorted(map(max, ends.values())), strict=True), color=_colour(place, line), linewidth=1.4)
        for point in line:
            _point(ax, place, _colour(place, line), point)
    label_column(ax, _labels(points, baseline, right))


def _labels(points: Sequence[Point], baseline: UtilityRow | None, right: float) -> list[Label]:
    """The label of each line, at its marker that is furthest to the right, and the one of the federation without a
    defense, at the right end of its line.
    """
    labels = [
        (
            *max((max(one.row.claim.epsilon, one.row.epsilon_low or 0.0), one.height) for one in line),
            name,
            _colour(place, line),
        )
        for place, (name, line) in enumerate(_lines(points).items())
    ]
    if baseline and baseline.pooled:
        value = baseline.pooled.value
        words = f"{baseline.defense}: {numerals.metric_value(baseline.metric, value)}"
        labels.append((right, drawn(baseline.metric, value), words, frame.MUTED))
    return labels


def _lines(points: Iterable[Point]) -> dict[str, list[Point]]:
    """The points of each line: those of one sweep, or a defense alone."""
    return gathered((point.line, point) for point in points)


def _colour(place: int, line: Sequence[Point]) -> str:
    return frame.RED if line[0].row.control else frame.SERIES[(place + 1) % len(frame.SERIES)]


def _point(ax: Axes, place: int, colour: str, point: Point) -> None:
    marker, row, height = frame.MARKERS[(place + 1) % len(frame.MARKERS)], point.row, point.height
    claimed, pooled = row.claim.epsilon, point.pooled
    look: dict[str, Any] = {"marker": marker, "color": colour, "markersize": 8, "linestyle": "", "clip_on": False}
    # An unaudited claim has no lower bound; a hollow marker at 0 would look like one.
    if row.epsilon_low is not None:
        ax.plot([row.epsilon_low, claimed], [height, height], color=colour, linewidth=1, alpha=0.55)
        ax.plot([row.epsilon_low], [height], markerfacecolor=frame.PAPER, markeredgewidth=1.4, zorder=4, **look)
    if pooled.low is not None and pooled.high is not None:
        ends = [drawn(point.accuracy.metric, end) for end in (pooled.low, pooled.high)]
        ax.plot([claimed, claimed], ends, color=colour, linewidth=1.4)
    ax.plot([claimed], [height], zorder=5, **look)


def _utility_legend() -> dict[str, dict[str, Any]]:
    dot = {"marker": "o", "color": frame.MUTED, "linestyle": "", "markersize": 8}
    hollow = {**dot, "markerfacecolor": frame.PAPER}
    return {
        "at the claimed ε": dot,
        "at the measured lower bound": hollow,
        "without a defense": frame.REFERENCE_LINE,
    }


def _table(points: Sequence[Point]) -> Table:
    metrics = " or ".join(numerals.metric(key).name for key in _metrics(point.accuracy for point in points))
    return tabulate(
        UTILITY_TITLE,
        points,
        {
            "defense": lambda point: defense_words(point.row.defense, point.row.control),
            "claim": lambda point: point.row.claim_text,
            Right("measured ε ≥"): lambda point: numerals.lower_bound(point.row.epsilon_low),
            Right(metrics): lambda point: pooled_words(point.accuracy.metric, point.pooled),
        },
    )
