"""Draw log-log ROC curves of the audits, the region that each claim excludes, and its trade-off curve."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ...audit.arrays import FloatArray
from ...audit.metrics import roc_vertices
from ...audit.wording import at_most, plain
from ...suites.results.record import CORRECT
from ..reading.claims import ClaimRow, claim_rows
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.printed import VERDICTS, defense_words, terms_words
from ..tables.table import Table
from .columns import AXIS, PLOT, SMALL, heading_height, heading_lines, legend_height, rows_of
from .figure import Figure
from .log_log import CLAIM_ENTRIES, drawable, legend_handles, open_panel
from .panels import chosen, left_out_words
from .sheet import BLUE, INK, RED, Sheet

KEY = "roc"
TITLE = "ROC curves of the audits"
DESCRIPTION = (
    "The line is the share of runs with the canary that score above a threshold (TPR) against the share of runs "
    "without it that do (FPR), on logarithmic axes down to one run in n. If the claim holds, no attack reaches the "
    "hatched region; the dashed curve is the tighter limit that the defense states. The corner is the joint "
    "confidence point at the threshold that was fixed before the test: the true rates lie above and to the left of "
    "it, so a corner in the hatched region refutes the claim. The line by itself refutes no claim, because its best "
    "point is selected afterwards."
)
_HEIGHT, _FOOT, _ENTRIES = 228.0, 52.0, 3 + CLAIM_ENTRIES


def roc(folder: RunFolder) -> Figure | None:
    """Draw the ROC curves of the audits; return None if no audit of a claim stored its scores."""
    audits = [(row, _scores(folder, row)) for row in claim_rows(folder) if row.stated and not row.by_attacks]
    every = [(row, scores) for row, scores in audits if scores]
    if not every:
        return None
    drawn = chosen(every, [_weight(row) for row, _ in every])
    below = [_below(row) for row, _ in drawn]
    top, head = legend_height(_ENTRIES), heading_height(below)
    height = head + _HEIGHT + _FOOT
    which = "with problems first, then those whose bound is the largest share of the claimed ε"
    words = DESCRIPTION + left_out_words(len(drawn), len(every), which)
    with Sheet(KEY, top + height * rows_of(len(drawn))) as sheet:
        sheet.legend(_handles())
        cells = sheet.cells(len(drawn), top, height)
        for (left, above), (row, scores), lines in zip(cells, drawn, below, strict=True):
            _heading(sheet, left, above, row, lines)
            ax = sheet.axes(left + AXIS, above + head, PLOT, _HEIGHT)
            _panel(ax, row, scores)
            ax.set(xlabel="FPR", ylabel="TPR")
        return sheet.figure(title=TITLE, description=words, table=_table(every))


def _weight(row: ClaimRow) -> float:
    """Infinite for rows that need attention, so that they are drawn first."""
    share = (row.epsilon_low or 0.0) / row.stated.claim.epsilon if row.stated else 0.0
    return math.inf if row.needs_attention else share


def _scores(folder: RunFolder, row: ClaimRow) -> dict[str, FloatArray]:
    arrays = (folder.files.arrays(row.record) if row.record else None) or {}
    # Some audits, such as those that compare guesses, store no scores.
    usable = all(name in arrays and arrays[name].size > 1 for name in ("member", "nonmember"))
    return arrays if usable else {}


def _panel(ax: Axes, row: ClaimRow, scores: dict[str, FloatArray]) -> None:
    if row.stated is None:
        return
    member, nonmember = scores["member"].ravel(), scores["nonmember"].ravel()
    # One run in n is the smallest rate that the data can show.
    lowest = (1 / len(nonmember), 1 / len(member))
    open_panel(ax, [row.stated.claim], *lowest)
    fpr, tpr = drawable(*roc_vertices(member, nonmember), *lowest, width=PLOT)
    colour = RED if row.verdict == "REFUTED" else BLUE
    ax.plot(fpr, tpr, color=colour, linewidth=1.8, drawstyle="steps-post")
    _corner(ax, row)


def _corner(ax: Axes, row: ClaimRow) -> None:
    # A trivial bound on the FNR has no place on a logarithmic axis.
    if row.fpr_high is None or row.fnr_high is None or row.fnr_high >= 1:
        return
    x, y = row.fpr_high, 1 - row.fnr_high
    arm: dict[str, Any] = {"color": INK, "linewidth": 1.6, "solid_capstyle": "butt", "zorder": 5}
    ax.plot([x / 1.9, x, x], [y, y, min(1.1, y * 1.9)], **arm)
    ax.plot([x], [y], marker="o", markersize=5, color=INK, zorder=6)


def _below(row: ClaimRow) -> list[str]:
    """The lines below a panel's title, of which the first is the verdict."""
    judged = VERDICTS.get(row.verdict, row.verdict) + (" (control)" if row.control else "")
    version = "correct version, " if row.label != row.defense else ""
    epsilon = f"ε {plain(row.stated.claim.epsilon)}, " if row.stated else ""
    terms, _, observer = terms_words(row).partition(", adversary: ")
    return [judged, *heading_lines(f"{version}{epsilon}{terms}\nadversary: {observer}")]


def _heading(sheet: Sheet, left: float, top: float, row: ClaimRow, below: Sequence[str]) -> None:
    # The version of a mutant's correct version is printed below its name.
    sheet.heading(left, top, row.defense.removesuffix(CORRECT), ["", *below[1:]])
    colour = RED if row.verdict == "REFUTED" else INK
    sheet.text(left, top + 22, below[0], size=SMALL, weight="bold", color=colour)


def _handles() -> list[Artist]:
    return [
        Line2D([], [], color=BLUE, linewidth=1.8, label="scores"),
        Line2D([], [], color=RED, linewidth=1.8, label="scores, claim refuted"),
        Line2D([], [], color=INK, marker="o", markersize=5, linewidth=1.6, label="joint confidence point"),
        *legend_handles(),
    ]


def _table(drawn: Sequence[tuple[ClaimRow, dict[str, FloatArray]]]) -> Table:
    return Table(
        title=TITLE,
        headers=(
            "defense",
            "claim",
            "runs without canary",
            "runs with canary",
            "FPR ≤",
            "FNR ≤",
            "jointly at",
            "verdict",
        ),
        rows=tuple(
            (
                defense_words(row.defense, row.control),
                row.claim_text,
                numerals.count(scores["nonmember"].size),
                numerals.count(scores["member"].size),
                numerals.NOTHING if row.fpr_high is None else at_most(row.fpr_high),
                numerals.NOTHING if row.fnr_high is None else at_most(row.fnr_high),
                f"{100 * (1 - float(scores['alpha'])):.4g} %" if "alpha" in scores else numerals.NOTHING,
                VERDICTS.get(row.verdict, row.verdict),
            )
            for row, scores in drawn
        ),
        numeric=frozenset({2, 3, 4, 5, 6}),
    )
