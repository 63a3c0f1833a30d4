"""Draw the AUC of the best membership attack on each defense, one panel per observer and attacked unit."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ...audit.wording import plain
from ..reading.best_attack import BestAttack, best_attacks, in_order
from ..reading.membership import memberships
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.table import Table
from .columns import COLUMN, SMALL, heading_height, heading_lines, legend_height, rows_of
from .figure import Figure
from .letters import distinct, text_width
from .sheet import AMBER, BLUE, FAINT, PAPER, RED, Sheet

TITLE = "Best membership attack by observer"
DESCRIPTION = (
    "The AUC of the best attack for each defense, observer and attacked unit; 0.5 is guessing. Circle: a realistic "
    "adversary with its observations and public data. Square: a worst-case adversary, who knows everything except "
    "whether the unit took part, as differential privacy assumes. Triangle: an active server, which sends manipulated "
    "models. Filled: covered by a claim of the defense; hollow: not covered. Bars: 95 % intervals, joint for all "
    "attacks of a panel and defense, over runs, or over candidates for a single run. The same ε protects different "
    "units in different trust models, so differences between defenses need the unit and observer of their claims."
)
_MARKS = {"realistic": ("o", BLUE), "worst_case": ("s", RED), "active": ("^", AMBER)}
_WORDS = {"realistic": "realistic", "worst_case": "worst-case adversary", "active": "active server"}
_NAMES, _ROW, _FOOT = 130.0, 26.0, 46.0
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
        _figure(name, group, many=many)
        for name, group in groups.items()
        if len({best.one.defense for best in group}) > 1
    )


def _figure(federation: str, group: Sequence[BestAttack], many: bool) -> Figure:
    title = f"{TITLE} ({federation})" if many else TITLE
    defenses = list(dict.fromkeys(best.one.defense for best in group))
    levels = in_order([best.question for best in group])
    kinds = [kind for kind in _MARKS if any(best.one.adversary == kind for best in group)]
    below = [heading_lines(f"adversary: {observer.phrase}") for observer, _ in levels]
    top, head = legend_height(len(kinds)), heading_height(below)
    height = head + _ROW * len(defenses) + _FOOT
    names = min(_NAMES, max(text_width(name, SMALL) for name in defenses)) + 8
    # Attacks can score below chance on few candidates; their markers and intervals must stay visible.
    lowest = min(0.35, *(_span(best)[0] for best in group)) - 0.05
    with Sheet(f"observers-{federation}", top + height * rows_of(len(levels))) as sheet:
        sheet.legend([_handle(kind) for kind in kinds])
        cells = sheet.cells(len(levels), top, height)
        for (left, above), level, lines in zip(cells, levels, below, strict=True):
            sheet.heading(left, above, f"one {level[1]}", lines)
            ax = sheet.axes(left + names, above + head, COLUMN - names, _ROW * len(defenses))
            _draw(ax, [best for best in group if best.question == level], defenses)
            ax.set_xlim(lowest, 1.02)
        return sheet.figure(title=title, description=DESCRIPTION, table=_table(title, group))


def _handle(kind: str) -> Line2D:
    marker, colour = _MARKS[kind]
    return Line2D([], [], linestyle="none", marker=marker, color=colour, label=_WORDS[kind])


def _draw(ax: Axes, group: Sequence[BestAttack], defenses: Sequence[str]) -> None:
    ax.axvline(0.5, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    ax.grid(axis="x")
    for best in group:
        marker, colour = _MARKS[best.one.adversary]
        # Adversaries of one defense stand at different heights, because their intervals overlap.
        alike = [other for other in group if other.one.defense == best.one.defense]
        place = defenses.index(best.one.defense) + _OFFSET * (alike.index(best) - (len(alike) - 1) / 2)
        if best.ends is not None:
            ax.plot(_span(best), [place, place], color=colour, linewidth=1.4)
        # A hollow marker is out of scope: no claim covers the attack, so it cannot contradict one.
        face = colour if best.one.claims else PAPER
        ax.plot(best.one.area, place, marker=marker, color=colour, markerfacecolor=face, markersize=6.5)
    ax.set(ylim=(len(defenses) - 0.5, -0.5), xlabel="AUC", xticks=[0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    ax.set_yticks(range(len(defenses)), distinct(defenses, SMALL, _NAMES).values())
    ax.tick_params(axis="y", length=0)


def _span(best: BestAttack) -> tuple[float, float]:
    """The ends of the interval, or the AUC twice without one."""
    low, high = best.ends or (best.one.area, best.one.area)
    # A normal interval may leave [0, 1], which an AUC cannot.
    return max(0.0, low), min(1.0, high)


def _table(title: str, group: Sequence[BestAttack]) -> Table:
    return Table(
        title=title,
        headers=("defense", "observer", "unit", "adversary", "attack", "AUC", "from", "to", "claim"),
        rows=tuple(
            (
                best.one.defense,
                best.one.setting.observer.phrase,
                str(best.one.setting.unit),
                _WORDS[best.one.adversary],
                best.one.attack,
                *(
                    numerals.NOTHING if value is None else numerals.metric_value("auc", value)
                    for value in (best.one.area, *(best.ends or (None, None)))
                ),
                " and ".join(f"ε {plain(claim.epsilon)}" for claim in best.one.claims) or "not covered",
            )
            for best in group
        ),
        numeric=frozenset({5, 6, 7}),
    )
