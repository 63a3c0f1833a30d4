"""Draw log-log ROC curves of membership attacks together with the claim, one panel per defense and observer."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ...audit.metrics import area, roc_vertices
from ...audit.wording import plain
from ..reading.membership import NOTHING_STATED, Membership, memberships
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.printed import defense_words
from ..tables.table import Table
from .columns import AXIS, PLOT, heading_height, heading_lines, legend_height, rows_of
from .figure import Figure
from .log_log import CLAIM_ENTRIES, drawable, legend_handles, open_panel
from .panels import chosen, left_out_words
from .sheet import Sheet, line_styles

TITLE = "ROC curves of membership attacks"
DESCRIPTION = (
    "One line per attack: the share of members that score above a threshold (TPR) against the share of non-members "
    "that do (FPR), for the scores of all seeds, on logarithmic axes down to one candidate in n. Null attacks are "
    "grey. Hatched: the region that no attack reaches on average if a claim holds that covers this observer, unit, "
    "adjacency and number of rounds. Dashed: the trade-off curve that the claim states. Where no claim covers a "
    "panel, nothing is hatched and the heading states the reason. A line by itself refutes no claim, because its best "
    "point is selected afterwards and the scores of one run share their noise. Shadow federations, each a target and "
    "a reference for the others, give one line from all their scores."
)
_HEIGHT, _FOOT = 226.0, 52.0
Panel = list[Membership]


def membership_roc(folder: RunFolder) -> tuple[Figure, ...]:
    """Draw ROC curves, one figure per federation on which membership attacks stored their scores."""
    found = {name: list(group) for name, group in groupby(memberships(folder), key=lambda one: one.federation)}
    return tuple(_figure(name, group, many=len(found) > 1) for name, group in found.items())


def _figure(federation: str, group: Panel, many: bool) -> Figure:
    key, title = f"membership-{federation}", f"{TITLE} ({federation})" if many else TITLE
    every = [list(one) for _, one in groupby(group, key=lambda one: (one.defense, one.about))]
    panels = chosen(every, _weights(every))
    styles = line_styles((one.attack, one.null) for panel in panels for one in panel)
    below = [heading_lines(_below(panel[0])) for panel in panels]
    top, head = legend_height(len(styles) + CLAIM_ENTRIES), heading_height(below)
    height = head + _HEIGHT + _FOOT
    which = "with the highest AUC, the best panel of each defense first"
    words = DESCRIPTION + left_out_words(len(panels), len(every), which)
    with Sheet(key, top + height * rows_of(len(panels))) as sheet:
        lines = [Line2D([], [], label=name, **style) for name, style in styles.items()]
        sheet.legend([*lines, *legend_handles()])
        cells = sheet.cells(len(panels), top, height)
        for (left, above), panel, text in zip(cells, panels, below, strict=True):
            sheet.heading(left, above, defense_words(panel[0].defense, panel[0].control), text)
            ax = sheet.axes(left + AXIS, above + head, PLOT, _HEIGHT)
            _draw(ax, panel, styles)
            ax.set(xlabel="FPR", ylabel="TPR")
        return sheet.figure(title=title, description=words, table=_table(title, group))


def _below(one: Membership) -> str:
    return f"one {one.setting.unit}, adversary: {one.setting.observer.phrase}; {claim_words(one)}"


def _weights(panels: Sequence[Panel]) -> list[float]:
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


def _draw(ax: Axes, panel: Sequence[Membership], styles: dict[str, dict[str, Any]]) -> None:
    lowest_fpr = min(1 / len(one.sides.nonmember) for one in panel)
    lowest_tpr = min(1 / len(one.sides.member) for one in panel)
    # With a single score per side the axis would have length zero.
    open_panel(ax, panel[0].claims, min(lowest_fpr, 0.5), min(lowest_tpr, 0.5))
    for one in panel:
        # Each line stops at its own resolution, which differs between attacks of a panel.
        own = min(1 / len(one.sides.nonmember), 0.5), min(1 / len(one.sides.member), 0.5)
        x, y = drawable(*roc_vertices(one.sides.member, one.sides.nonmember), *own, width=PLOT)
        ax.plot(x, y, drawstyle="steps-post", **styles[one.attack])


def _table(title: str, group: Panel) -> Table:
    return Table(
        title=title,
        headers=("defense", "observer", "unit", "attack", "members", "non-members", "runs", "AUC, pooled", "claim"),
        rows=tuple(
            (
                defense_words(one.defense, one.control),
                one.setting.observer.phrase,
                str(one.setting.unit),
                f"{one.attack} (null attack)" if one.null else one.attack,
                numerals.count(len(one.sides.member)),
                numerals.count(len(one.sides.nonmember)),
                numerals.count(one.sides.runs) if one.shadowed is None else f"{numerals.count(one.sides.runs)} shadows",
                numerals.metric_value("auc", area(one.sides)),
                claim_words(one),
            )
            for one in group
        ),
        numeric=frozenset({4, 5, 6, 7}),
    )
