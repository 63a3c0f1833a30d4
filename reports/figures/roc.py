"""Draw log-log ROC curves of membership attacks and of audits, with the region that claims exclude."""

import math
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ...audit.arrays import FloatArray
from ...audit.claim import Claim
from ...audit.metrics import MembershipResult, area, largest_tpr, roc_vertices
from ...audit.wording import at_most, plain
from ...suites.results.record import CORRECT
from ..reading.claims import ClaimRow, stated_rows
from ..reading.membership import NOTHING_STATED, Membership, memberships
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.printed import VERDICTS, defense_words, neighbours_of
from ..tables.table import Right, Table, tabulate
from . import frame
from .frame import Figure, Panel, panel_figure

STATED: dict[str, Any] = {"color": frame.INK, "linewidth": 1.3, "linestyle": (0, (5, 2.5))}


_CURVE = "stated trade-off curve"
LIMITS: dict[str, dict[str, Any]] = {
    _CURVE: STATED,
    "excluded by (ε, δ)": {"facecolor": "none", "edgecolor": frame.FAINT, "hatch": "////", "linewidth": 0.8},
    "chance": frame.CHANCE_LINE,
}
"""The legend of the panels that ``open_panel`` draws."""


def open_panel(ax: Axes, claims: Sequence[Claim], lowest_fpr: float, lowest_tpr: float) -> None:
    """Draw log-log axes that start at the lowest rates, the diagonal of chance, the region that ``claims`` together
    exclude (hatched), and the claims' trade-off curves (dashed).
    """
    ax.set(xscale="log", yscale="log", xlim=(lowest_fpr, 1.0), ylim=(lowest_tpr, 1.15))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: plain(value))
    ax.minorticks_off()
    ax.grid(which="major")
    grid = np.geomspace(lowest_fpr, 1.0, 120)
    if claims:
        # The tightest claim decides at each rate, and no single one need be tightest everywhere.
        limit = np.min([largest_tpr(grid, claim.epsilon, claim.delta) for claim in claims], axis=0)
        ax.fill_between(grid, limit, 1.0, hatch="////", facecolor="none", edgecolor=frame.FAINT, linewidth=0.0)
        ax.plot(grid, limit, color=frame.MUTED, linewidth=0.9)
    for claim in claims:
        if claim.curve is not None:
            ax.plot(grid, 1 - claim.curve.fnr(grid), **STATED)
    ax.plot(grid, grid, **frame.CHANCE_LINE)


def drawable(
    fpr: FloatArray, tpr: FloatArray, lowest_fpr: float, lowest_tpr: float, width: float
) -> tuple[FloatArray, FloatArray]:
    """Return the ROC curve's points at rates of at least 1/n for n trials, without points that a panel of ``width``
    pixels cannot show apart.

    Below that, a rate would extrapolate beyond the data.
    """
    beyond = fpr > lowest_fpr
    reached = tpr[~beyond].max()
    x, y = np.concatenate([[lowest_fpr], fpr[beyond]]), np.concatenate([[reached], tpr[beyond]])
    x, y = x[y >= lowest_tpr], y[y >= lowest_tpr]
    # Vertices less than half a pixel apart look like one. This reduces ten thousand scores to about a hundred points.
    pixels = np.round(2 * width * np.log([x, y]).T / np.log([[lowest_fpr, lowest_tpr]]))
    last = np.append(np.any(np.diff(pixels, axis=0) != 0, axis=1), True)
    return x[last], y[last]


MEMBERSHIP_TITLE = "ROC curves of membership attacks"
MEMBERSHIP_DESCRIPTION = (
    "One line per attack: the share of members that score above a threshold (TPR) against the share of non-members "
    "that do (FPR), for the scores of all seeds, on logarithmic axes down to one candidate in n. Null attacks are "
    "grey. Hatched: the region that no attack reaches on average if a claim holds that covers this observer, unit, "
    "adjacency and number of rounds. Dashed: the trade-off curve that the claim states. Where no claim covers a "
    "panel, nothing is hatched and the heading states the reason. A line by itself refutes no claim, because its best "
    "point is selected afterwards and the scores of one run share their noise. Shadow federations are attacked in "
    "turn, each with the others as references, and all their scores are one line."
)
_MEMBERSHIP_HEIGHT, _AUDIT_HEIGHT, _FOOT = 226.0, 228.0, 52.0


def membership_roc(folder: RunFolder) -> tuple[Figure, ...]:
    """Draw ROC curves, one figure per federation on which membership attacks stored their scores."""
    found = {name: list(group) for name, group in groupby(memberships(folder), key=lambda one: one.federation)}
    return tuple(_figure(name, group, many=len(found) > 1) for name, group in found.items())


def _figure(federation: str, group: Sequence[Membership], many: bool) -> Figure:
    every = [list(one) for _, one in groupby(group, key=lambda one: (one.defense, one.about))]
    panels = frame.chosen(every, _weights(every))
    styles = frame.line_styles((one.attack, one.null) for panel in panels for one in panel)
    which = "with the highest AUC, the best panel of each defense first"
    title = frame.titled(MEMBERSHIP_TITLE, federation, many)
    return panel_figure(
        f"membership-{federation}",
        [
            Panel(
                title=defense_words(panel[0].defense, panel[0].control),
                below=_membership_below(panel[0]),
                draw=partial(_draw, panel, styles),
            )
            for panel in panels
        ],
        plots=(_MEMBERSHIP_HEIGHT,),
        foot=_FOOT,
        legend=styles | LIMITS,
        title=title,
        description=MEMBERSHIP_DESCRIPTION + frame.left_out_words(len(panels), len(every), which),
        table=_membership_table(title, group),
    )


def _membership_below(one: Membership) -> str:
    return f"one {one.setting.unit}, adversary: {one.setting.observer.phrase}; {claim_words(one)}"


def _weights(panels: Sequence[Sequence[Membership]]) -> list[float]:
    """The highest AUC of an attack that is not a null attack, plus 1 for the best panel of each defense."""
    highest = [max((one.area for one in panel if not one.null), default=0.0) for panel in panels]
    first: dict[str, int] = {}
    for place, panel in enumerate(panels):
        best = first.setdefault(panel[0].defense, place)
        if highest[place] > highest[best]:
            first[panel[0].defense] = place
    # An AUC is at most 1, so adding 1 moves the best panel of each defense before all others.
    return [most + (place in first.values()) for place, most in enumerate(highest)]


def claim_words(one: Membership) -> str:
    """Format a claim as ``ε 4, δ 1e-5``, or return why no claim covers the attack."""
    if one.beyond:
        return one.beyond if one.beyond == NOTHING_STATED else f"not covered by a claim: {one.beyond}"
    # The non-breaking space keeps a letter and its number on one line.
    return " and ".join(f"ε\u00a0{plain(claim.epsilon)}, δ\u00a0{plain(claim.delta)}" for claim in one.claims)


def _draw(panel: Sequence[Membership], styles: dict[str, dict[str, Any]], ax: Axes) -> None:
    lowest_fpr = min(1 / len(one.sides.nonmember) for one in panel)
    lowest_tpr = min(1 / len(one.sides.member) for one in panel)
    # With a single score per side the axis would have length zero.
    open_panel(ax, panel[0].claims, min(lowest_fpr, 0.5), min(lowest_tpr, 0.5))
    for one in panel:
        # Each line stops at its own resolution, which differs between attacks of a panel.
        own = min(1 / len(one.sides.nonmember), 0.5), min(1 / len(one.sides.member), 0.5)
        x, y = drawable(*roc_vertices(one.sides.member, one.sides.nonmember), *own, width=frame.PLOT)
        ax.plot(x, y, drawstyle="steps-post", **styles[one.attack])
    ax.set(xlabel="FPR", ylabel="TPR")


def _membership_table(title: str, group: Sequence[Membership]) -> Table:
    return tabulate(
        title,
        group,
        {
            "defense": lambda one: defense_words(one.defense, one.control),
            "observer": lambda one: one.setting.observer.phrase,
            "unit": lambda one: str(one.setting.unit),
            "attack": lambda one: f"{one.attack} (null attack)" if one.null else one.attack,
            Right("members"): lambda one: numerals.count(len(one.sides.member)),
            Right("non-members"): lambda one: numerals.count(len(one.sides.nonmember)),
            Right("runs"): lambda one: numerals.count(one.sides.runs) + " shadows" * (one.shadowed is not None),
            Right("AUC, pooled"): lambda one: numerals.metric_value("auc", area(one.sides)),
            "claim": claim_words,
        },
    )


KEY = "roc"
AUDIT_TITLE = "ROC curves of the audits"
AUDIT_DESCRIPTION = (
    "The line is the share of runs with the canary that score above a threshold (TPR) against the share of runs "
    "without it that do (FPR), on logarithmic axes down to one run in n. If the claim holds, no attack reaches the "
    "hatched region; the dashed curve is the tighter limit that the defense states. The corner bounds both rates at "
    "the threshold that was fixed before the test: with the confidence of the run, the true rates lie above and to "
    "the left of it, so a corner in the hatched region refutes the claim. The line by itself refutes no claim, "
    "because its best point is selected afterwards."
)

_SCORES_DESCRIPTION = (
    "The share of members that score above a threshold (TPR) against the share of non-members that do (FPR), on "
    "logarithmic axes down to one score in n. The line by itself refutes no claim, because its best point is "
    "selected afterwards."
)
_HATCHED = " Hatched: the region that no attack reaches on average if the claim holds."


def roc(folder: RunFolder) -> Figure | None:
    """Draw the ROC curves of the audits; return None if no audit of a claim stored its scores."""
    audits = [(row, _scores(folder, row)) for row in stated_rows(folder) if not row.by_attacks]
    every = [(row, scores) for row, scores in audits if scores]
    if not every:
        return None
    drawn = frame.chosen(every, [_weight(row) for row, _ in every])
    which = "with problems first, then those whose measured ε is the largest share of the claimed ε"
    return panel_figure(
        KEY,
        [_audit_panel(row, scores) for row, scores in drawn],
        plots=(_AUDIT_HEIGHT,),
        foot=_FOOT,
        legend={
            "scores": {"color": frame.BLUE, "linewidth": 1.8},
            "scores, claim refuted": {"color": frame.RED, "linewidth": 1.8},
            "joint confidence point": {"color": frame.INK, "marker": "o", "markersize": 5, "linewidth": 1.6},
            **LIMITS,
        },
        title=AUDIT_TITLE,
        description=AUDIT_DESCRIPTION + frame.left_out_words(len(drawn), len(every), which),
        table=_audit_table(every),
    )


def _audit_panel(row: ClaimRow, scores: dict[str, FloatArray]) -> Panel:
    judged = VERDICTS.get(row.verdict, row.verdict) + (" (control)" if row.control else "")
    # The version of a mutant's correct version is printed below its name.
    version = "correct version, " if row.defense.endswith(CORRECT) else ""
    return Panel(
        title=row.defense.removesuffix(CORRECT),
        verdict=(judged, frame.RED if row.verdict == "REFUTED" else frame.INK),
        below=f"{version}ε {plain(row.claim.epsilon)}, {neighbours_of(row.claim)}\n"
        f"adversary: {row.claim.observer.phrase}",
        draw=partial(_panel, row, scores),
    )


def _weight(row: ClaimRow) -> float:
    """Infinite for rows that need attention, so that they are drawn first."""
    return math.inf if row.needs_attention else (row.epsilon_low or 0.0) / row.claim.epsilon


def _scores(folder: RunFolder, row: ClaimRow) -> dict[str, FloatArray]:
    arrays = (folder.files.arrays(row.record) if row.record else None) or {}
    # Some audits, such as those that compare guesses, store no scores.
    usable = all(name in arrays and arrays[name].size > 1 for name in ("member", "nonmember"))
    return arrays if usable else {}


def _panel(row: ClaimRow, scores: dict[str, FloatArray], ax: Axes) -> None:
    member, nonmember = scores["member"].ravel(), scores["nonmember"].ravel()
    _line(member, nonmember, [row.claim], frame.RED if row.verdict == "REFUTED" else frame.BLUE, ax)
    _corner(ax, row)


def _line(member: FloatArray, nonmember: FloatArray, claims: Sequence[Claim], colour: str, ax: Axes) -> None:
    # One run in n is the smallest rate that the data can show; with one score the axis would have length zero.
    lowest = min(1 / len(nonmember), 0.5), min(1 / len(member), 0.5)
    open_panel(ax, claims, *lowest)
    fpr, tpr = drawable(*roc_vertices(member, nonmember), *lowest, width=frame.PLOT)
    ax.plot(fpr, tpr, color=colour, linewidth=1.8, drawstyle="steps-post")
    ax.set(xlabel="FPR", ylabel="TPR")


def _corner(ax: Axes, row: ClaimRow) -> None:
    # A trivial bound on the FNR has no place on a logarithmic axis.
    if row.fpr_high is None or row.fnr_high is None or row.fnr_high >= 1:
        return
    x, y = row.fpr_high, 1 - row.fnr_high
    arm: dict[str, Any] = {"color": frame.INK, "linewidth": 1.6, "solid_capstyle": "butt", "zorder": 5}
    ax.plot([x / 1.9, x, x], [y, y, min(1.1, y * 1.9)], **arm)
    ax.plot([x], [y], marker="o", markersize=5, color=frame.INK, zorder=6)


def roc_of_scores(attack: MembershipResult, claims: Sequence[Claim]) -> Figure:
    """Draw the ROC curve of a user's scores, with the region that ``claims`` exclude, if any."""
    left_out = {*([] if claims else ["excluded by (ε, δ)"]), *([] if any(one.curve for one in claims) else [_CURVE])}
    limits = {name: look for name, look in LIMITS.items() if name not in left_out}
    title, columns = "ROC curve of the scores", ("metric", "value and 95 % interval")
    return panel_figure(
        KEY,
        [Panel(draw=partial(_line, attack.members, attack.nonmembers, claims, frame.BLUE))],
        plots=(_AUDIT_HEIGHT,),
        foot=_FOOT,
        head=8.0,
        legend={"scores": {"color": frame.BLUE, "linewidth": 1.8}, **limits},
        title=title,
        description=_SCORES_DESCRIPTION + (_HATCHED if claims else ""),
        table=Table(title=title, headers=columns, rows=tuple(attack.words().items())),
    )


def _audit_table(drawn: Sequence[tuple[ClaimRow, dict[str, FloatArray]]]) -> Table:
    return tabulate(
        AUDIT_TITLE,
        drawn,
        {
            "defense": lambda one: defense_words(one[0].defense, one[0].control),
            "claim": lambda one: one[0].claim_text,
            Right("runs without canary"): lambda one: numerals.count(one[1]["nonmember"].size),
            Right("runs with canary"): lambda one: numerals.count(one[1]["member"].size),
            Right("FPR ≤"): lambda one: numerals.optional(one[0].fpr_high, at_most),
            Right("FNR ≤"): lambda one: numerals.optional(one[0].fnr_high, at_most),
            Right("jointly at"): lambda one: numerals.optional(
                one[1].get("alpha"), lambda alpha: f"{100 * (1 - float(alpha)):.4g} %"
            ),
            "verdict": lambda one: VERDICTS.get(one[0].verdict, one[0].verdict),
        },
    )
