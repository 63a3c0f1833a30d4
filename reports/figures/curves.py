"""Draw curves of AUC, accuracy and loss by round, and against the epsilon spent so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ...suites.results.claims_file import StatedClaim
from ..reading.membership import Membership, memberships
from ..reading.pooling import Curve, Leakage, gathered, leakages, spent, thinned, utility_curve
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.pooled_rows import undefended
from ..tables.printed import VERDICTS, defense_words, neighbours_of, pooled_words
from ..tables.table import Right, Table, tabulate
from . import frame
from .frame import Figure, Panel, panel_figure
from .letters import drawn, label_column, label_height, label_room, loss_scale

LEAKAGE_TITLE = "Leakage round by round"
LEAKAGE_DESCRIPTION = (
    "Upper panels: the AUC of each attack that scores candidates round by round, from its scores after that round, "
    "mean over seeds; 0.5 is chance, null attacks are grey. Lower panels: the ε that the claim's own accountant gives "
    "for the rounds so far, with the noise of this defense, which meets the claim over all rounds. This ε grows with "
    "every round; an AUC need not. No AUC here "
    "refutes a claim, because a claim bounds the worst attack on any one unit and the AUC averages over "
    "candidates. OUT OF SCOPE: no claim of the defense covers the unit and adversary of the AUC, so that the ε below "
    "bounds something else. The lower panel is empty where a defense does not state the ε of its first rounds."
)
_LEAK, _SPENT, _LEAKAGE_FOOT = 150.0, 72.0, 54.0
_TABLED = 5
"""Rounds of each defense that the table lists."""


def leakage_by_round(folder: RunFolder) -> tuple[Figure, ...]:
    """Draw the AUC of membership attacks after each round, one figure per federation on which such an attack stored
    scores by round.
    """
    found = {name: list(group) for name, group in groupby(leakages(folder), key=lambda one: one.federation)}
    return tuple(_leakage_figure(folder, name, group, many=len(found) > 1) for name, group in found.items())


def _leakage_figure(folder: RunFolder, federation: str, group: Sequence[Leakage], many: bool) -> Figure:
    title = frame.titled(LEAKAGE_TITLE, federation, many)
    panels = {name: list(one) for name, one in groupby(group, key=lambda one: one.defense)}
    claims = {name: spent(folder, federation, name) for name in panels}
    about = {name: _evidence(folder, panel) for name, panel in panels.items()}
    drawn = frame.chosen(panels, [_most(panel) for panel in panels.values()])
    values = [point.value for name in drawn for one in panels[name] for point in one.curve.values()]
    # One scale for all panels, which always includes chance.
    limits = min(0.45, *values) - 0.02, max(0.55, *values) + 0.02
    styles = frame.line_styles((one.attack, one.null) for name in drawn for one in panels[name])
    return panel_figure(
        f"by-round-{federation}",
        [
            Panel(
                title=defense_words(name, panels[name][0].control),
                below=_below(about[name], claims[name]),
                draw=partial(_leak_and_spend, panels[name], claims[name], styles, limits),
            )
            for name in drawn
        ],
        plots=(_LEAK, _SPENT),
        foot=_LEAKAGE_FOOT,
        legend={**styles, "chance": frame.CHANCE_LINE},
        title=title,
        description=LEAKAGE_DESCRIPTION + frame.left_out_words(len(drawn), len(panels), "with the highest AUC"),
        table=_leakage_table(title, panels, about, claims),
    )


def _leak_and_spend(
    panel: Sequence[Leakage],
    claims: Sequence[StatedClaim],
    styles: Mapping[str, dict[str, Any]],
    limits: tuple[float, float],
    upper: Axes,
    lower: Axes,
) -> None:
    # Both share the range of rounds, so that they can be read together.
    last = max(max(one.curve) for one in panel)
    _leak(upper, panel, styles)
    upper.set(xlim=(0, last), ylim=limits, ylabel="AUC")
    _spend(lower, claims)
    lower.set(xlim=(0, last), xlabel="round", ylabel="ε so far")


def _most(panel: Sequence[Leakage]) -> float:
    """The highest AUC of an attack that is not a null attack."""
    return max((point.value for one in panel if not one.null for point in one.curve.values()), default=0.0)


def _evidence(folder: RunFolder, panel: Sequence[Leakage]) -> str:
    """The units that the attacks of a panel are about, and whether a claim covers them; empty where no file states
    them.
    """
    first, names = panel[0], {one.attack for one in panel if not one.null}
    found = [
        one
        for one in memberships(folder)
        if (one.federation, one.defense) == (first.federation, first.defense) and one.attack in names
    ]
    units = " and ".join(dict.fromkeys(f"one {one.setting.unit}" for one in found))
    beyond = _beyond(found) if any(one.defense == first.defense for one in folder.claims) else ""
    return f"{units}: {beyond}" if beyond else units


def _beyond(found: Sequence[Membership]) -> str:
    outside = [one for one in found if not one.claims]
    named = ", ".join(dict.fromkeys(one.attack for one in outside))
    words = VERDICTS["OUT_OF_SCOPE"] if outside else ""
    return words if len(outside) in (0, len(found)) else f"{words} ({named})"


def _below(about: str, claims: Sequence[StatedClaim]) -> str:
    terms = "; ".join(f"ε of {neighbours_of(stated.claim)}" for stated in claims)
    return "\n".join([*([f"AUC of {about}"] if about else []), terms or "no ε by round is stated"])


def _leak(ax: Axes, panel: Sequence[Leakage], styles: Mapping[str, dict[str, Any]]) -> None:
    for one in panel:
        rounds, values = list(one.curve), [point.value for point in one.curve.values()]
        ax.plot(rounds, values, **styles[one.attack])
    ax.axhline(0.5, **frame.CHANCE_LINE)
    ax.grid(axis="y")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    ax.tick_params(labelbottom=False)


def _spend(ax: Axes, claims: Sequence[StatedClaim]) -> None:
    for place, stated in enumerate(claims):
        rounds, spent_so_far = zip(*stated.spent, strict=True)
        ax.plot(rounds, spent_so_far, color=frame.INK, linewidth=1.5, linestyle=frame.DASHES[place % len(frame.DASHES)])
    ax.set_ylim(bottom=0)
    ax.grid(axis="y")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=3))
    if not claims:
        ax.set_yticks([])


def _leakage_table(
    title: str,
    panels: Mapping[str, Sequence[Leakage]],
    about: Mapping[str, str],
    claims: Mapping[str, Sequence[StatedClaim]],
) -> Table:
    attacks = list(dict.fromkeys(one.attack for panel in panels.values() for one in panel))
    rows: list[tuple[str, ...]] = []
    for name, panel in panels.items():
        curves = {one.attack: one.curve for one in panel}
        label = defense_words(name, panel[0].control)
        for number in thinned(set().union(*curves.values()), _TABLED):
            cells = (pooled_words("auc", curves.get(attack, {}).get(number)) for attack in attacks)
            rows.append(
                (label, f"{number}", _spent_words(claims[name], number), *cells, about[name] or numerals.NOTHING)
            )
    heads = (f"AUC, {one}" for one in attacks)
    return Table(
        title=title,
        headers=("defense", "rounds so far", "ε so far", *heads, "AUC of"),
        rows=tuple(rows),
        numeric=frozenset(range(1, 3 + len(attacks))),
        about=2,
    )


def _spent_words(claims: Sequence[StatedClaim], number: int) -> str:
    found = [dict(stated.spent).get(number) for stated in claims]
    return "; ".join(numerals.epsilon(value) for value in found) or numerals.NOTHING


LEARNING_TITLE = "Accuracy and loss round by round"
LEARNING_DESCRIPTION = (
    "Accuracy of the global model on test data after each round (IoU for segmentation, R2 for regression, macro F1 for "
    "several labels per sample), and its mean loss on the same data, mean over seeds. R2 below -1 is drawn at -1. The "
    "loss axis is logarithmic where losses differ by more than a factor of thirty. The utility table and the figure of "
    "privacy and utility show the last round."
)
_TOP, _HEIGHT, _LEARNING_FOOT = 10.0, 234.0, 52.0
Panels = Mapping[str, Mapping[str, Curve]]
"""Metric -> defense -> curve: the accuracy or the first metric of another task, then the loss if it was stored."""


def learning(folder: RunFolder) -> tuple[Figure, ...]:
    """Draw learning curves, one figure per federation whose training stored its metrics round by round."""
    order = folder.order
    found: dict[str, dict[str, dict[str, Curve]]] = {}
    metrics = {row.federation: row.metric for row in folder.rows("utility") if row.metric in numerals.HEADLINES}
    for federation in order.federations:
        for metric in (metrics.get(federation, "accuracy"), numerals.LOSS):
            curves = {name: utility_curve(folder, federation, name, metric) for name in order.defenses}
            # A single round is no curve; the utility table shows it.
            if drawn := {name: curve for name, curve in curves.items() if len(curve) > 1}:
                found.setdefault(federation, {})[metric] = drawn
    return tuple(_learning_figure(folder, *one, many=len(found) > 1) for one in found.items())


def _learning_figure(folder: RunFolder, federation: str, panels: Panels, many: bool) -> Figure:
    title, names = frame.titled(LEARNING_TITLE, federation, many), _defenses(panels)
    styles = frame.line_styles(((name, False) for name in names), folder.line_of)
    return panel_figure(
        f"learning-{federation}",
        [
            Panel(room=label_room(_ends(metric, curves).values()), draw=partial(_panel, metric, curves, styles))
            for metric, curves in panels.items()
        ],
        head=_TOP,
        plots=(max(_HEIGHT, label_height(len(names))),),
        foot=_LEARNING_FOOT,
        legend=styles,
        title=title,
        description=LEARNING_DESCRIPTION,
        table=_learning_table(title, panels),
    )


def _panel(metric: str, curves: Mapping[str, Curve], styles: Mapping[str, dict[str, Any]], ax: Axes) -> None:
    ax.grid(axis="y")
    for name, curve in curves.items():
        ax.plot(list(curve), [drawn(metric, point.value) for point in curve.values()], **styles[name])
    right = max(max(curve) for curve in curves.values())
    ax.set(xlabel="round", ylabel=numerals.metric(metric).name, xlim=(0, right))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if metric == numerals.LOSS:
        loss_scale(ax, [point.value for curve in curves.values() for point in curve.values()])
    last = {name: drawn(metric, curve[max(curve)].value) for name, curve in curves.items()}
    ends = _ends(metric, curves)
    label_column(ax, [(right, last[name], ends[name], styles[name]["color"]) for name in curves])


def _ends(metric: str, curves: Mapping[str, Curve]) -> dict[str, str]:
    """The label of each curve: its last value. The legend names the curve."""
    return {name: numerals.metric_value(metric, curve[max(curve)].value) for name, curve in curves.items()}


def _defenses(panels: Panels) -> list[str]:
    return list(dict.fromkeys(name for curves in panels.values() for name in curves))


def _learning_table(title: str, panels: Panels) -> Table:
    defenses = _defenses(panels)
    rows = tuple(
        (f"{number}", numerals.metric(metric).name, *(_cell(metric, curves.get(name, {}), number) for name in defenses))
        for metric, curves in panels.items()
        for number in sorted(set().union(*curves.values()))
    )
    headers = ("round", "metric", *defenses)
    return Table(title=title, headers=headers, rows=rows, numeric=frozenset({0, *range(2, len(headers))}))


def _cell(metric: str, curve: Curve, number: int) -> str:
    return numerals.metric_value(metric, curve[number].value if number in curve else None)


KEY = "accuracy-spent"
ACCURACY_SPENT_TITLE = "Accuracy and loss against the ε spent so far"
ACCURACY_SPENT_DESCRIPTION = (
    "Test accuracy of the global model after each round (mean over seeds) against the ε that the claim's own "
    "accountant gives for the rounds so far, with the noise of this defense. Within a panel, higher and further left "
    "is better; panels cannot be compared. Lower panels: the mean cross-entropy on the same data. A point before the "
    "end of a line is not a claim of the defense: a defense that stops there would have used other noise. Dashed "
    "lines: final values without a defense. Red: controls, which break their claim on purpose."
)
_ACCURACY, _LOSS, _ACCURACY_SPENT_FOOT = 200.0, 130.0, 52.0


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A defense's claim, and its accuracy and loss after each round, of which those count whose epsilon is stated."""

    stated: StatedClaim
    curves: Mapping[str, Curve]

    @property
    def spent(self) -> dict[int, float]:
        return {rounds: epsilon for rounds, epsilon in self.stated.spent if rounds in self.curves["accuracy"]}


def accuracy_spent(folder: RunFolder) -> Figure | None:
    """Draw accuracy against epsilon spent; return None if no claim of a trained federation states the epsilon spent up
    to intermediate rounds.
    """
    lines = (
        _Line(stated=stated, curves=_accuracy_and_loss(folder, federation, defense))
        for federation, defense in product(folder.order.federations, folder.order.defenses)
        for stated in spent(folder, federation, defense)
    )
    panels = gathered(
        ((line.stated.federation, neighbours_of(line.stated.claim), line.stated.claim.observer.phrase), line)
        for line in lines
        # A single point is no curve; the figure of privacy and utility shows it.
        if len(line.spent) > 1
    )
    if not panels:
        return None
    reference = undefended(folder.order.defenses) or ""
    accuracy = max(_ACCURACY, *(label_height(len(lines)) for lines in panels.values()))
    # Runs of earlier versions stored no loss.
    low = (_LOSS,) if any(line.curves[numerals.LOSS] for lines in panels.values() for line in lines) else ()
    return panel_figure(
        KEY,
        [
            Panel(
                title=neighbours,
                below=f"adversary: {observer}",
                room=label_room(line.stated.defense for line in lines),
                draw=partial(_against_spent, lines, _accuracy_and_loss(folder, federation, reference)),
            )
            for (federation, neighbours, observer), lines in panels.items()
        ],
        plots=(accuracy, *low),
        foot=_ACCURACY_SPENT_FOOT,
        title=ACCURACY_SPENT_TITLE,
        description=ACCURACY_SPENT_DESCRIPTION,
        table=_table(panels),
    )


def _accuracy_and_loss(folder: RunFolder, federation: str, defense: str) -> dict[str, Curve]:
    return {metric: utility_curve(folder, federation, defense, metric) for metric in ("accuracy", numerals.LOSS)}


def _against_spent(lines: Sequence[_Line], reference: Mapping[str, Curve], *plots: Axes) -> None:
    """Draw the accuracy of every line with its label, and where there is a second plot the loss below it."""
    for metric, ax in zip(("accuracy", numerals.LOSS), plots, strict=False):
        shown = [value for place, line in enumerate(lines) for value in _spent_line(ax, place, line, metric)]
        if final := reference[metric]:
            shown.append(final[max(final)].value)
            ax.axhline(shown[-1], **frame.REFERENCE_LINE)
        ax.grid()
        ax.set(ylabel=numerals.metric(metric).name, xlim=(0, 1.03 * max(max(line.spent.values()) for line in lines)))
        if metric == numerals.LOSS and shown:
            loss_scale(ax, shown)
    plots[0].set_ylim(0, 1)
    for ax in plots[:-1]:
        ax.tick_params(labelbottom=False)
    plots[-1].set_xlabel("ε so far")
    ends = [(max(line.spent.values()), line.curves["accuracy"][max(line.spent)].value) for line in lines]
    labels = [(line.stated.defense, _colour(place, line)) for place, line in enumerate(lines)]
    label_column(plots[0], [(*end, *label) for end, label in zip(ends, labels, strict=True)])


def _spent_line(ax: Axes, place: int, line: _Line, metric: str) -> list[float]:
    """Draw one metric against the epsilon of the rounds so far; return its values."""
    curve = line.curves[metric]
    points = [(epsilon, curve[rounds].value) for rounds, epsilon in line.spent.items() if rounds in curve]
    if points:
        dash = frame.DASHES[place % len(frame.DASHES)]
        ax.plot(*zip(*points, strict=True), color=_colour(place, line), linestyle=dash, linewidth=1.6)
    return [value for _, value in points]


def _colour(place: int, line: _Line) -> str:
    return frame.RED if line.stated.control else frame.SERIES[place % len(frame.SERIES)]


def _table(panels: Mapping[tuple[str, str, str], list[_Line]]) -> Table:
    many = len({federation for federation, *_ in panels}) > 1
    points = [
        (federation if many else "", line, rounds)
        for (federation, *_), lines in panels.items()
        for line in lines
        for rounds in thinned(line.spent, _TABLED)
    ]
    return tabulate(
        ACCURACY_SPENT_TITLE,
        points,
        {
            "defense": lambda one: defense_words(one[1].stated.defense, one[1].stated.control, one[0]),
            "claim": lambda one: one[1].stated.claim.describe(),
            Right("rounds so far"): lambda one: f"{one[2]}",
            Right("ε so far"): lambda one: numerals.epsilon(one[1].spent[one[2]]),
            Right("accuracy"): lambda one: pooled_words("accuracy", one[1].curves["accuracy"][one[2]]),
            Right("test loss"): lambda one: pooled_words(numerals.LOSS, one[1].curves[numerals.LOSS].get(one[2])),
        },
        about=2,
    )
