"""Draw accuracy against claimed and measured epsilon, one panel per unit, adversary and delta."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ..reading.claims import ClaimRow, claim_rows, one_row_per_claim
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.pooled_rows import UtilityRow, pooled_utility, undefended
from ..tables.printed import defense_words, pooled_words, terms_words
from ..tables.table import Table
from .figure import Figure
from .labels import drawn, spread
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
_WIDTH, _COLUMNS, _PANEL, _HEIGHT, _LEFT, _GAP, _TOP = 940.0, 3, 268.0, 320.0, 52.0, 36.0, 26.0
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
    with Sheet(KEY, _WIDTH, _TOP + _HEIGHT * -(-len(panels) // _COLUMNS)) as sheet:
        _legend(sheet)
        limits = {metric: _accuracy_range([row for row in rows if row.metric == metric]) for metric in _metrics(rows)}
        for place, ((federation, words), panel) in enumerate(panels.items()):
            line, column = divmod(place, _COLUMNS)
            left, top = _LEFT + column * (_PANEL + _GAP), _TOP + line * _HEIGHT
            heading, _, observer = words.partition(", adversary: ")
            sheet.text(left, top + 8, heading, size=11, weight="bold")
            sheet.text(left, top + 25, f"adversary: {observer}", size=9.5, color=MUTED)
            ax = sheet.axes(left, top + 48, _PANEL, _HEIGHT - 100)
            metric, alone = panel[0][1].metric, len(limits) == 1
            ax.set(ylim=limits[metric], xlabel="ε", ylabel="" if column and alone else numerals.metric(metric).name)
            ax.tick_params(labelleft=not (column and alone))
            _panel(ax, panel, utility.get((federation, baseline)))
        svg = sheet.svg()
    return Figure(key=KEY, title=TITLE, description=DESCRIPTION, svg=svg, pdf=sheet.pdf, table=_table(points))


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
    # Space to the right of the last marker for the longest label, at six pixels per letter.
    room = min(0.6, (6.3 * max(len(row.defense) for row, _ in points) + 16) / _PANEL)
    ax.set_xlim(0, max(claimed + shown) / (1 - room))
    ax.grid()
    if baseline and baseline.pooled:
        level = drawn(baseline.metric, baseline.pooled.value)
        ax.axhline(level, color=INK, linewidth=1.1, linestyle=(0, (5, 3)))
        words = f"{baseline.defense}: {numerals.metric_value(baseline.metric, baseline.pooled.value)}"
        ax.annotate(words, (ax.get_xlim()[1], level), xytext=(0, 4), ha="right", size=9.5,
                    textcoords="offset points", color=MUTED)  # fmt: skip
    levels = [drawn(row.metric, row.pooled.value) for _, row in points if row.pooled]
    heights = spread(levels, gap=0.055 * np.ptp(ax.get_ylim()))
    for place, ((row, accuracy), height) in enumerate(zip(points, heights, strict=True)):
        _point(ax, place + 1, row, accuracy, height)


def _point(ax: Axes, place: int, row: ClaimRow, accuracy: UtilityRow, label_height: float) -> None:
    if row.stated is None or accuracy.pooled is None:
        return
    marker, colour = MARKERS[place % len(MARKERS)], RED if row.control else SERIES[place % len(SERIES)]
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
    # The label starts after the marker that is further to the right.
    right = max(claimed, row.epsilon_low or 0.0)
    ax.annotate(row.defense, (right, label_height), xytext=(9, 0), textcoords="offset points", size=10, color=colour,
                ha="left", va="center")  # fmt: skip


def _legend(sheet: Sheet) -> None:
    dot: dict[str, Any] = {"marker": "o", "color": MUTED, "linestyle": "", "markersize": 8}
    handles = [
        Line2D([], [], **dot, label="at the claimed ε"),
        Line2D([], [], **dot, markerfacecolor=PAPER, label="at the measured lower bound"),
        Line2D([], [], color=INK, linestyle=(0, (5, 3)), linewidth=1.1, label="without a defense"),
    ]
    sheet.legend(handles, columns=3)


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
