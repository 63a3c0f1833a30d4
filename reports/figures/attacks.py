"""Draw the best membership attack by observer."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from ...audit.wording import plain
from ..reading.membership import BestAttack, best_attacks, in_order, memberships
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.table import Right, Table, tabulate
from . import frame
from .frame import Figure, Panel, panel_figure
from .letters import SMALL, distinct, text_width

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
