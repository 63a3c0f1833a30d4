"""Draw accuracy against claimed and measured epsilon, one panel per unit, adversary and delta."""

from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..reading.claims import ClaimRow, claim_rows, one_row_per_claim
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.pooled_rows import UtilityRow, pooled_utility, undefended
from ..tables.printed import defense_words, pooled_words, terms_words
from ..tables.table import Table
from .columns import AXIS, PLOT, heading_height, heading_lines, legend_height, rows_of
from .figure import Figure
from .labels import Label, drawn, label_column, label_height, label_room
from .sheet import INK, MARKERS, MUTED, PAPER, RED, SERIES, Sheet

KEY = "privacy-utility"
TITLE = "Privacy and utility"
DESCRIPTION = (
    "Accuracy (IoU for segmentation, R2 for regression, macro F1 for several labels per sample; mean over seeds with a "
    "95 % t interval) against ε. R2 below -1 is drawn at -1. Filled marker: the ε that a defense claims. Hollow "
    "marker: the lower bound of the audit. The line between them is the range that the audit leaves open. Dashed line: "
    "the federation without a defense. Within a panel, higher and further left is better, but only filled markers are "
    "upper limits; panels cannot be compared. Red: controls, which break their claim on purpose."
)
_HEIGHT, _FOOT, _ENTRIES = 200.0, 52.0, 3
Point = tuple[ClaimRow, UtilityRow]


def privacy_utility(folder: RunFolder) -> Figure | None:
    """Draw accuracy (the first metric of another task) against epsilon; return None if no defense has both a claim and
    an accuracy.
    """
    rows = [row for row in pooled_utility(folder) if row.metric in numerals.HEADLINES and row.pooled]
    utility = {(row.federation, row.defense): row for row in rows}
    points = [
        (row, utility[row.federation, row.defense])
        for row in one_row_per_claim(claim_rows(folder))
        if row.stated and (row.federation, row.defense) in utility
    ]
    if not points:
        return None
    panels: dict[tuple[str, str], list[Point]] = {}
    for row, accuracy in points:
        panels.setdefault((row.federation, terms_words(row)), []).append((row, accuracy))
    baseline = undefended(defense for _, defense in utility) or ""
    limits = {metric: _accuracy_range([row for row in rows if row.metric == metric]) for metric in _metrics(rows)}
    below = [heading_lines(_observer(words)) for _, words in panels]
    head, plot = heading_height(below), max(_HEIGHT, *(label_height(len(panel) + 1) for panel in panels.values()))
    top, height = legend_height(_ENTRIES), head + plot + _FOOT
    with Sheet(KEY, top + height * rows_of(len(panels))) as sheet:
        sheet.legend(_handles())
        cells = sheet.cells(len(panels), top, height)
        for (left, above), ((federation, words), panel), lines in zip(cells, panels.items(), below, strict=True):
            sheet.heading(left, above, words.partition(", adversary: ")[0], lines)
            undefended_row = utility.get((federation, baseline))
            room = label_room(text for *_, text, _ in _labels(panel, undefended_row, 0.0))
            ax = sheet.axes(left + AXIS, above + head, PLOT - room, plot)
            metric = panel[0][1].metric
            ax.set(ylim=limits[metric], xlabel="ε", ylabel=numerals.metric(metric).name)
            _panel(ax, panel, undefended_row)
        return sheet.figure(title=TITLE, description=DESCRIPTION, table=_table(points))


def _observer(words: str) -> str:
    return f"adversary: {words.partition(', adversary: ')[2]}"


def _words(rows: Iterable[UtilityRow]) -> str:
    """The names of the metrics that occur."""
    return " or ".join(numerals.metric(key).name for key in _metrics(rows))


def _metrics(rows: Iterable[UtilityRow]) -> list[str]:
    present = {row.metric for row in rows}
    return [key for key in numerals.HEADLINES if key in present]


def _accuracy_range(rows: Sequence[UtilityRow]) -> tuple[float, float]:
    pooled = [row.pooled for row in rows if row.pooled]
    ends = [drawn(rows[0].metric, end) for one in pooled for end in (one.value, one.low, one.high) if end is not None]
    margin = 0.08 * (max(ends) - min(ends)) + 0.01
    return min(ends) - margin, max(ends) + margin


def _panel(ax: Axes, points: Sequence[Point], baseline: UtilityRow | None) -> None:
    claimed = [row.stated.claim.epsilon for row, _ in points if row.stated]
    shown = [row.epsilon_low for row, _ in points if row.epsilon_low is not None]
    right = 1.08 * max(claimed + shown)
    ax.set_xlim(0, right)
    ax.grid()
    if baseline and baseline.pooled:
        ax.axhline(drawn(baseline.metric, baseline.pooled.value), color=INK, linewidth=1.1, linestyle=(0, (5, 3)))
    for place, (row, accuracy) in enumerate(points):
        _point(ax, place, row, accuracy)
    label_column(ax, _labels(points, baseline, right))


def _labels(points: Sequence[Point], baseline: UtilityRow | None, right: float) -> list[Label]:
    """The label of each point, at its marker that is further to the right, and the one of the federation without a
    defense, at the right end of its line.
    """
    labels = [
        (
            max(row.stated.claim.epsilon, row.epsilon_low or 0.0),
            drawn(accuracy.metric, accuracy.pooled.value),
            row.defense,
            _colour(place, row),
        )
        for place, (row, accuracy) in enumerate(points)
        if row.stated and accuracy.pooled
    ]
    if baseline and baseline.pooled:
        value = baseline.pooled.value
        words = f"{baseline.defense}: {numerals.metric_value(baseline.metric, value)}"
        labels.append((right, drawn(baseline.metric, value), words, MUTED))
    return labels


def _colour(place: int, row: ClaimRow) -> str:
    return RED if row.control else SERIES[(place + 1) % len(SERIES)]


def _point(ax: Axes, place: int, row: ClaimRow, accuracy: UtilityRow) -> None:
    if row.stated is None or accuracy.pooled is None:
        return
    marker, colour = MARKERS[(place + 1) % len(MARKERS)], _colour(place, row)
    claimed, height = row.stated.claim.epsilon, drawn(accuracy.metric, accuracy.pooled.value)
    look: dict[str, Any] = {"marker": marker, "color": colour, "markersize": 8, "linestyle": "", "clip_on": False}
    # An unaudited claim has no lower bound; a hollow marker at 0 would look like one.
    if row.epsilon_low is not None:
        ax.plot([row.epsilon_low, claimed], [height, height], color=colour, linewidth=1, alpha=0.55)
        ax.plot([row.epsilon_low], [height], markerfacecolor=PAPER, markeredgewidth=1.4, zorder=4, **look)
    if accuracy.pooled.low is not None and accuracy.pooled.high is not None:
        ends = [drawn(accuracy.metric, end) for end in (accuracy.pooled.low, accuracy.pooled.high)]
        ax.plot([claimed, claimed], ends, color=colour, linewidth=1.4)
    ax.plot([claimed], [height], zorder=5, **look)


def _handles() -> list[Artist]:
    dot: dict[str, Any] = {"marker": "o", "color": MUTED, "linestyle": "", "markersize": 8}
    return [
        Line2D([], [], **dot, label="at the claimed ε"),
        Line2D([], [], **dot, markerfacecolor=PAPER, label="at the measured lower bound"),
        Line2D([], [], color=INK, linestyle=(0, (5, 3)), linewidth=1.1, label="without a defense"),
    ]


def _table(points: Sequence[Point]) -> Table:
    return Table(
        title=TITLE,
        headers=("defense", "claim", "measured ε ≥", _words([accuracy for _, accuracy in points])),
        rows=tuple(
            (
                defense_words(row.defense, row.control),
                row.claim_text,
                numerals.lower_bound(row.epsilon_low),
                pooled_words(accuracy.metric, accuracy.pooled, intervals=True),
            )
            for row, accuracy in points
        ),
        numeric=frozenset({2, 3}),
    )
