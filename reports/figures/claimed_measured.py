"""Draw claimed and measured epsilon of each defense, with one panel per unit, adjacency and delta."""

from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ...audit.wording import plain
from ..reading.claims import ClaimRow, claim_rows
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.printed import VERDICTS, claim_table, neighbours_words
from .columns import COLUMN, SMALL, column, legend_height, window
from .figure import Figure, Window
from .letters import shortened
from .sheet import AMBER, BLUE, INK, MUTED, PAPER, RED, RULE, Sheet

KEY = "claimed-measured"
TITLE = "Claimed against measured ε"
DESCRIPTION = (
    "Tick: the ε that a defense claims. Dot: the lower bound of the audit; the true ε is at least that, and the band "
    "to its right shows the values that remain possible. Triangle: the largest ε that this sample size can certify, "
    "which needs an attack without errors; the bound cannot refute a claim beyond it. A claim may also be refuted by "
    "its stated trade-off curve while its dot is left of the tick. Panels have different scales, and an ε of one unit "
    "or δ cannot be compared with an ε of another."
)
_ROW, _TITLE, _FOOT, _ENTRIES = 50.0, 30.0, 50.0, 5
_COLOURS = {"REFUTED": RED, "UNDERPOWERED": AMBER}
_DOTS = {"REFUTED": "X", "UNDERPOWERED": "o"}


def claimed_measured(folder: RunFolder) -> Figure | None:
    """Draw claimed and measured epsilon; return None if no claim was measured."""
    rows = [row for row in claim_rows(folder) if row.stated and row.epsilon_low is not None]
    if not rows:
        return None
    panels = _panels(rows)
    heights = [_TITLE + _ROW * len(panel) + _FOOT for panel in panels.values()]
    top = legend_height(_ENTRIES)
    with Sheet(KEY, top + sum(heights)) as sheet:
        sheet.legend(_handles())
        for (name, panel), height in zip(panels.items(), heights, strict=True):
            _panel(sheet, top, name, panel)
            top += height
        return sheet.figure(title=TITLE, description=DESCRIPTION, table=claim_table(rows))


def _panels(rows: Sequence[ClaimRow]) -> dict[str, list[ClaimRow]]:
    panels: dict[str, list[ClaimRow]] = {}
    for row in rows:
        # An epsilon of another unit, adjacency or delta must not share an axis.
        panels.setdefault(neighbours_words(row), []).append(row)
    return panels


def _panel(sheet: Sheet, top: float, name: str, rows: Sequence[ClaimRow]) -> None:
    sheet.text(column(0), top + 8, name, size=11.5, weight="bold")
    ax = sheet.axes(column(1), top + _TITLE, COLUMN, _ROW * len(rows))
    right = _right_end(rows)
    ax.set(xlim=(0, right), ylim=(len(rows) - 0.5, -0.5), yticks=[], xlabel="ε")
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x")
    for place, row in enumerate(rows):
        ax.axhline(place + 0.5, color=RULE, linewidth=0.8)
        _row(ax, place, row, right)
        _words(sheet, top + _TITLE + _ROW * place, row)
        sheet.panels.append(_windows(top, place, len(rows)))


def _windows(top: float, place: int, count: int) -> tuple[Window, ...]:
    """A claim on a narrow screen: unit and delta, its words, its row of the plot, and the axis."""
    row = top + _TITLE + _ROW * place
    parts = [window(column(one), row, _ROW) for one in (0, 2, 1)]
    return (window(column(0), top, _TITLE), *parts, window(column(1), top + _TITLE + _ROW * count, _FOOT - 10))


def _right_end(rows: Sequence[ClaimRow]) -> float:
    shown = [value for row in rows for value in (row.epsilon_low, row.ceiling, _claimed(row)) if value is not None]
    # Space for the arrow and the number at the right end of the longest band.
    return 1.12 * max(shown)


def _row(ax: Axes, place: int, row: ClaimRow, right: float) -> None:
    low, claimed = row.epsilon_low or 0.0, _claimed(row)
    colour = _COLOURS.get(row.verdict, BLUE)
    ax.plot([low, right], [place, place], color=colour, alpha=0.18, linewidth=9, solid_capstyle="butt")
    ax.plot([right], [place], marker=">", color=colour, alpha=0.35, markersize=9, clip_on=False, markeredgewidth=0)
    ax.plot([claimed, claimed], [place - 0.3, place + 0.3], color=INK, linewidth=2.4, solid_capstyle="butt")
    if row.ceiling is not None:
        style: dict[str, Any] = {
            "markerfacecolor": PAPER,
            "markeredgecolor": INK,
            "markersize": 7,
            "markeredgewidth": 1.1,
        }
        ax.plot([row.ceiling], [place], marker="v", linestyle="", **style)
    _dot(ax, low, place, row.verdict)
    _numbers(ax, place, row, right)


def _numbers(ax: Axes, place: int, row: ClaimRow, right: float) -> None:
    low, claimed = row.epsilon_low or 0.0, _claimed(row)
    # The number must not cross the tick or the left edge.
    close = abs(low - claimed) < right / 10
    side = "left" if low < right / 12 or (close and low >= claimed) else "right" if close else "center"
    look: dict[str, Any] = {"textcoords": "offset points", "size": SMALL}
    colour = _COLOURS.get(row.verdict, BLUE)
    shift = {"left": 3, "center": 0, "right": -3}[side] if close else 0
    ax.annotate(f"≥ {numerals.lower_bound(low)}", (low, place), xytext=(shift, 8), ha=side, color=colour, **look)
    # A claimed number at the right end must not leave the column.
    end = claimed > 0.8 * right
    ax.annotate(plain(claimed), (claimed, place), xytext=(-4 if end else 4, -17), ha="right" if end else "left",
                color=INK, **look)  # fmt: skip


def _dot(ax: Axes, low: float, place: float, verdict: str) -> None:
    colour = _COLOURS.get(verdict, BLUE)
    face = PAPER if verdict == "UNDERPOWERED" else colour
    marker = _DOTS.get(verdict, "o")
    style: dict[str, Any] = {
        "markerfacecolor": face,
        "markeredgecolor": colour,
        "markersize": 8.5,
        "markeredgewidth": 1.4,
    }
    ax.plot([low], [place], marker=marker, linestyle="", clip_on=False, zorder=5, **style)


def _words(sheet: Sheet, top: float, row: ClaimRow) -> None:
    # The longer label of a mutant's correct version fits in smaller letters.
    size = 12 if row.label == row.defense else SMALL
    sheet.text(column(0), top + 10, shortened(row.label, size, COLUMN), size=size)
    sheet.text(column(0), top + 28, shortened(f"adversary: {_observer(row)}", SMALL, COLUMN), size=SMALL, color=MUTED)
    words = VERDICTS.get(row.verdict, row.verdict)
    below = (
        "control: should be REFUTED" if row.should_be_refuted else f"min detectable {numerals.epsilon(row.detectable)}"
    )
    below = "by attacks on final models" if row.by_attacks else below
    sheet.text(column(2), top + 10, words, size=11, weight="bold", color=_COLOURS.get(row.verdict, INK))
    sheet.text(column(2), top + 28, below, size=SMALL, color=MUTED)


def _handles() -> list[Artist]:
    dot: dict[str, Any] = {"linestyle": "", "markersize": 8}
    return [
        Line2D([], [], marker="o", color=BLUE, **dot, label="measured: ε is at least this"),
        Line2D([], [], marker="X", color=RED, **dot, label="the same, claim refuted"),
        Line2D([], [], marker="o", color=AMBER, markerfacecolor=PAPER, **dot, label="the same, underpowered"),
        Line2D([], [], marker="|", color=INK, linestyle="", markersize=13, markeredgewidth=2.4, label="claimed"),
        Line2D([], [], marker="v", color=INK, markerfacecolor=PAPER, **dot, label="max certifiable"),
    ]


def _observer(row: ClaimRow) -> str:
    return row.stated.claim.observer.phrase if row.stated else ""


def _claimed(row: ClaimRow) -> float:
    return row.stated.claim.epsilon if row.stated else 0.0
