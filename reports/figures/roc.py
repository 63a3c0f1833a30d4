"""Draw log-log ROC curves of the audits, the region that each claim excludes, and its trade-off curve."""

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ...audit.arrays import FloatArray
from ...audit.metrics.roc import roc_vertices
from ...audit.wording import at_most, plain
from ...suites.results.record import CORRECT
from ..reading.claims import ClaimRow, claim_rows
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.printed import VERDICTS, defense_words, terms_words
from ..tables.table import Table
from .figure import Figure
from .log_log import drawable, legend_handles, open_panel
from .panels import chosen, left_out_words
from .sheet import BLUE, INK, MUTED, RED, Sheet

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
_WIDTH, _COLUMNS, _PANEL, _HEIGHT, _LEFT, _GAP, _TOP = 940.0, 3, 254.0, 346.0, 60.0, 54.0, 30.0


def roc(folder: RunFolder) -> Figure | None:
    """Draw the ROC curves of the audits; return None if no audit of a claim stored its scores."""
    audits = [(row, _scores(folder, row)) for row in claim_rows(folder) if row.stated and not row.by_attacks]
    every = [(row, scores) for row, scores in audits if scores]
    if not every:
        return None
    drawn = chosen(every, [_weight(row) for row, _ in every])
    with Sheet(KEY, _WIDTH, _TOP + _HEIGHT * -(-len(drawn) // _COLUMNS)) as sheet:
        _legend(sheet)
        for place, (row, scores) in enumerate(drawn):
            line, column = divmod(place, _COLUMNS)
            left, top = _LEFT + column * (_PANEL + _GAP), _TOP + line * _HEIGHT
            _heading(sheet, left, top, row)
            ax = sheet.axes(left, top + 62, _PANEL, _HEIGHT - 118)
            _panel(ax, row, scores)
            ax.set(xlabel="FPR", ylabel="TPR" if column == 0 else "")
        svg = sheet.svg()
    which = "with problems first, then those whose bound is the largest share of the claimed ε"
    words = DESCRIPTION + left_out_words(len(drawn), len(every), which)
    return Figure(key=KEY, title=TITLE, description=words, svg=svg, pdf=sheet.pdf, table=_table(every))


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
    fpr, tpr = drawable(*roc_vertices(member, nonmember), *lowest, width=_PANEL)
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


def _heading(sheet: Sheet, left: float, top: float, row: ClaimRow) -> None:
    words = VERDICTS.get(row.verdict, row.verdict)
    # The label of a mutant's correct version would run into the verdict, so its version is printed below its name.
    sheet.text(left, top + 8, row.defense.removesuffix(CORRECT), size=12, weight="bold")
    judged = f"{words} (control)" if row.control else words
    style = {"size": 9.5, "ha": "right", "weight": "bold", "color": RED if row.verdict == "REFUTED" else INK}
    sheet.text(left + _PANEL, top + 10, judged, **style)
    version = "correct version, " if row.label != row.defense else ""
    epsilon = f"ε {plain(row.stated.claim.epsilon)}, " if row.stated else ""
    terms, _, observer = terms_words(row).partition(", adversary: ")
    sheet.text(left, top + 27, f"{version}{epsilon}{terms}", size=9.5, color=MUTED)
    sheet.text(left, top + 41, f"adversary: {observer}", size=9.5, color=MUTED)


def _legend(sheet: Sheet) -> None:
    handles = [
        Line2D([], [], color=BLUE, linewidth=1.8, label="scores"),
        Line2D([], [], color=RED, linewidth=1.8, label="scores, claim refuted"),
        Line2D([], [], color=INK, marker="o", markersize=5, linewidth=1.6, label="joint confidence point"),
        *legend_handles(),
    ]
    sheet.legend(handles, columns=6)


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
