"""Draw accuracy, loss and noise against the epsilon spent so far, and clip norms by client.

Noise and clip norms are those that a protection publishes round by round (``numbers.csv`` next to ``rounds.csv``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ...audit.arrays import FloatArray
from ...suites.results.claims_file import StatedClaim
from ...suites.results.record import Record
from ..reading.pooling import Curve, spent, thinned, utility_curve
from ..reading.run_folder import RunFolder, once_per_run
from ..tables import numerals
from ..tables.pooled_rows import undefended
from ..tables.printed import defense_words, neighbours_of, pooled_words
from ..tables.table import Right, Table, tabulate
from .letters import label_column, label_height, label_room, loss_scale
from .sheet import (
    DASHES,
    INK,
    RED,
    SERIES,
    Figure,
    Panel,
    heading_lines,
    line_handles,
    panel_figure,
)

KEY = "accuracy-spent"
ACCURACY_SPENT_TITLE = "Accuracy and loss against the ε spent so far"
ACCURACY_SPENT_DESCRIPTION = (
    "Test accuracy of the global model after each round (mean over seeds) against the ε that the claim's own "
    "accountant gives for the rounds so far, at the noise of the whole claim. Within a panel, higher and further left "
    "is better; panels cannot be compared. Lower panels: the mean cross-entropy on the same data. A point before the "
    "end of a line is not a claim of the defense: calibrated to stop there, it would have used other noise. Dashed "
    "lines: final values without a defense. Red: controls, which break their claim on purpose."
)
_ACCURACY, _LOSS, _ACCURACY_SPENT_FOOT = 200.0, 130.0, 52.0
_TABLED = 5


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A defense's claim, and its accuracy and loss after each round, of which those count whose epsilon is stated."""

    stated: StatedClaim
    curve: Curve
    loss: Curve

    @property
    def spent(self) -> dict[int, float]:
        return {rounds: epsilon for rounds, epsilon in self.stated.spent if rounds in self.curve}

    @property
    def name(self) -> str:
        return self.stated.defense


def accuracy_spent(folder: RunFolder) -> Figure | None:
    """Draw accuracy against epsilon spent; return None if no claim of a trained federation states the epsilon spent up
    to intermediate rounds.
    """
    order = folder.order
    panels: dict[tuple[str, str, str], list[_Line]] = {}
    for federation in order.federations:
        for defense in order.defenses:
            curve, loss = (utility_curve(folder, federation, defense, metric) for metric in ("accuracy", numerals.LOSS))
            for stated in spent(folder, federation, defense):
                line = _Line(stated=stated, curve=curve, loss=loss)
                # A single point is no curve; the figure of privacy and utility shows it.
                if len(line.spent) > 1:
                    about = (federation, neighbours_of(stated.claim), stated.claim.observer.phrase)
                    panels.setdefault(about, []).append(line)
    if not panels:
        return None
    accuracy = max(_ACCURACY, *(label_height(len(lines)) for lines in panels.values()))
    # Runs of earlier versions stored no loss.
    low = (_LOSS,) if any(line.loss for lines in panels.values() for line in lines) else ()
    return panel_figure(
        KEY,
        [
            Panel(
                title=neighbours,
                below=heading_lines(f"adversary: {observer}"),
                room=label_room(line.name for line in lines),
                draw=partial(_accuracy_and_loss, lines, _final(folder, federation, undefended(order.defenses))),
            )
            for (federation, neighbours, observer), lines in panels.items()
        ],
        plots=(accuracy, *low),
        foot=_ACCURACY_SPENT_FOOT,
        title=ACCURACY_SPENT_TITLE,
        description=ACCURACY_SPENT_DESCRIPTION,
        table=_table(panels),
    )


def _accuracy_and_loss(lines: list[_Line], final: Mapping[str, float], upper: Axes, lower: Axes | None = None) -> None:
    upper.set(ylabel="accuracy", ylim=(0, 1))
    _accuracy_spent_panel(upper, lines, "accuracy", final.get("accuracy"))
    if lower is not None:
        upper.tick_params(labelbottom=False)
        lower.set(ylabel=numerals.metric(numerals.LOSS).name)
        _accuracy_spent_panel(lower, lines, numerals.LOSS, final.get(numerals.LOSS))
    (lower or upper).set(xlabel="ε so far")


def _final(folder: RunFolder, federation: str, reference: str | None) -> dict[str, float]:
    """The accuracy and the loss after the last round without a defense, as far as they were stored."""
    curves = {
        metric: utility_curve(folder, federation, reference or "", metric) for metric in ("accuracy", numerals.LOSS)
    }
    return {metric: curve[max(curve)].value for metric, curve in curves.items() if curve}


def _colour(place: int, line: _Line) -> str:
    return RED if line.stated.control else SERIES[place % len(SERIES)]


def _accuracy_spent_panel(ax: Axes, lines: list[_Line], metric: str, final: float | None) -> None:
    """Draw one metric of every line; labels are printed at the accuracy only."""
    values = []
    for place, line in enumerate(lines):
        colour, dash = _colour(place, line), DASHES[place % len(DASHES)]
        curve = line.loss if metric == numerals.LOSS else line.curve
        points = [(epsilon, curve[rounds].value) for rounds, epsilon in line.spent.items() if rounds in curve]
        if points:
            ax.plot(*zip(*points, strict=True), color=colour, linestyle=dash, linewidth=1.6)
        values += [value for _, value in points]
    if final is not None:
        ax.axhline(final, color=INK, linewidth=1.1, linestyle=(0, (5, 3)))
        values.append(final)
    ax.grid()
    ax.set_xlim(0, 1.03 * max(max(line.spent.values()) for line in lines))
    if metric != numerals.LOSS:
        ends = [(max(line.spent.values()), line.curve[max(line.spent)].value, line.name) for line in lines]
        label_column(
            ax, [(*end, _colour(place, line)) for place, (end, line) in enumerate(zip(ends, lines, strict=True))]
        )
    elif values:
        loss_scale(ax, values)


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
            Right("accuracy"): lambda one: pooled_words("accuracy", one[1].curve[one[2]]),
            Right("test loss"): lambda one: pooled_words(numerals.LOSS, one[1].loss.get(one[2])),
        },
        about=2,
    )


SPENDING_TITLE = "Accuracy, loss and noise against the spent budget"
SPENDING_DESCRIPTION = (
    "Accuracy and mean cross-entropy of the global model on test data, and the noise multiplier of each round, against "
    "the largest ε that a client had spent before that round according to its privacy filter, which counts at one "
    "Rényi order and never starts at 0. First seed."
)
NORMS_TITLE = "Clip norms by client"
NORMS_DESCRIPTION = "The clip norm of each client in each round, one line per client. First seed."
_PREFIX = "clip_norm_"
_TOP, _HEIGHT, _NORMS, _SPENDING_FOOT = 10.0, 240.0, 200.0, 56.0
_MARKS = 10


@dataclass(frozen=True, kw_only=True)
class _Spent:
    """One training: the ``numbers`` that its protection published and the metrics of its model (``curve``), one row per
    round and one column per name, of which one is the round.
    """

    numbers: pd.DataFrame
    curve: pd.DataFrame

    @property
    def norms(self) -> pd.DataFrame:
        """The clip norms, one column per client."""
        return self.numbers.filter(regex=f"^{_PREFIX}")

    def at_rounds(self, name: str) -> FloatArray:
        """Return a published number at the rounds of the curve, which may be fewer than those of the numbers."""
        return np.asarray(np.interp(self.curve["round"], self.numbers["round"], self.numbers[name]))


def spending(folder: RunFolder) -> tuple[Figure, ...]:
    """For each federation, draw accuracy, loss and noise against epsilon, and the clip norms if they change."""
    order, drawn = folder.order, list[Figure]()
    for federation in order.federations:
        found = {name: one for name in order.defenses if (one := _first(folder, federation, name)) is not None}
        if found:
            drawn.append(_budget(federation, found))
        moved = {name: one for name, one in found.items() if (one.norms.max() > one.norms.min()).any()}
        if moved:
            drawn.append(_norms(federation, moved))
    return tuple(drawn)


@once_per_run
def _first_seeds(folder: RunFolder) -> dict[tuple[str, str], Record]:
    """A row of the first seed of each federation and defense."""
    found: dict[tuple[str, str], Record] = {}
    for record in sorted(folder.rows("utility", status="ok"), key=lambda record: record.seed or 0):
        found.setdefault((record.federation, record.defense), record)
    return found


def _first(folder: RunFolder, federation: str, defense: str) -> _Spent | None:
    first = _first_seeds(folder).get((federation, defense))
    if first is None:
        return None
    # The columns that have a value in every row.
    numbers, curve = (
        pd.DataFrame(rows).dropna(axis="columns") for rows in (folder.files.numbers(first), folder.files.rounds(first))
    )
    # Segmentation has no accuracy; its IoU is drawn with the learning curves.
    if not {"epsilon", "noise_multiplier"} <= {*numbers} or "accuracy" not in curve:
        return None
    return _Spent(numbers=numbers, curve=curve)


def _style(place: int) -> dict[str, Any]:
    return {"color": SERIES[place % len(SERIES)], "linestyle": DASHES[place % len(DASHES)], "linewidth": 1.6}


def _budget(federation: str, found: Mapping[str, _Spent]) -> Figure:
    title = f"{SPENDING_TITLE} ({federation})"
    # Runs of earlier versions stored no loss.
    metrics = ["accuracy", *([numerals.LOSS] if any(numerals.LOSS in one.curve for one in found.values()) else [])]
    noise = Panel(draw=partial(_noise, found))
    return panel_figure(
        f"spending-{federation}",
        [*(Panel(draw=partial(_curves, found, metric)) for metric in metrics), noise],
        head=_TOP,
        plots=(_HEIGHT,),
        foot=_SPENDING_FOOT,
        legend=lambda: line_handles({name: _style(place) for place, name in enumerate(found)}),
        title=title,
        description=SPENDING_DESCRIPTION,
        table=_budget_table(title, found),
    )


def _curves(found: Mapping[str, _Spent], metric: str, ax: Axes) -> None:
    curves = [one.curve.get(metric, pd.Series(dtype=float)) for one in found.values()]
    for place, (one, values) in enumerate(zip(found.values(), curves, strict=True)):
        ax.plot(one.at_rounds("epsilon")[: len(values)], values, **_style(place))
    ax.set(xlabel="ε spent", ylabel=numerals.metric(metric).name)
    ax.grid(axis="y")
    if metric == numerals.LOSS:
        loss_scale(ax, np.concatenate(curves).tolist())


def _noise(found: Mapping[str, _Spent], ax: Axes) -> None:
    for place, one in enumerate(found.values()):
        ax.plot(one.numbers["epsilon"][1:], one.numbers["noise_multiplier"][1:], **_style(place))
    ax.set(xlabel="ε spent", ylabel="noise multiplier")
    ax.grid(axis="y")
    ax.set_ylim(bottom=0)


def _budget_table(title: str, found: Mapping[str, _Spent]) -> Table:
    points = [
        point
        for name, one in found.items()
        for point in one.curve.assign(
            defense=name, epsilon=one.at_rounds("epsilon"), noise=one.at_rounds("noise_multiplier")
        ).to_dict("records")
    ]
    return tabulate(
        title,
        points,
        {
            "defense": lambda point: point["defense"],
            Right("rounds"): lambda point: f"{point['round']:.0f}",
            Right("ε spent"): lambda point: numerals.epsilon(point["epsilon"]),
            Right("accuracy"): lambda point: numerals.metric_value("accuracy", point["accuracy"]),
            Right("test loss"): lambda point: numerals.metric_value(numerals.LOSS, point.get(numerals.LOSS)),
            Right("noise multiplier"): lambda point: numerals.significant(point["noise"]),
        },
    )


def _norms(federation: str, moved: Mapping[str, _Spent]) -> Figure:
    title = f"{NORMS_TITLE} ({federation})"
    return panel_figure(
        f"clip-norms-{federation}",
        [Panel(title=name, draw=partial(_spending_panel, one)) for name, one in moved.items()],
        plots=(_NORMS,),
        foot=_SPENDING_FOOT,
        title=title,
        description=NORMS_DESCRIPTION,
        table=_norms_table(title, moved),
    )


def _norms_table(title: str, moved: Mapping[str, _Spent]) -> Table:
    points = [
        (name, one.numbers["round"][mark], one.norms.iloc[mark])
        for name, one in moved.items()
        for mark in sorted({round(share * (len(one.numbers) - 1) / _MARKS) for share in range(_MARKS + 1)})
    ]
    # The norms of the published method fall to 1e-12, which fixed decimals would print as 0.
    return tabulate(
        title,
        points,
        {
            "defense": lambda point: point[0],
            Right("round"): lambda point: f"{point[1]:.0f}",
            Right("least"): lambda point: f"{point[2].min():.3g}",
            Right("median"): lambda point: f"{point[2].median():.3g}",
            Right("largest"): lambda point: f"{point[2].max():.3g}",
        },
    )


def _spending_panel(one: _Spent, ax: Axes) -> None:
    for place, client in enumerate(one.norms):
        ax.plot(one.numbers["round"], one.norms[client], **(_style(place) | {"linewidth": 1.0}))
    ax.set(yscale="log", xlabel="round", ylabel="clip norm")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.minorticks_off()
    ax.grid(axis="y")
