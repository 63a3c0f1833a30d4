"""Draw accuracy, loss and noise against the epsilon spent so far, and clip norms by client.

Noise and clip norms are those that a protection publishes round by round (``numbers.csv`` next to ``rounds.csv``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ...audit.arrays import FloatArray
from ...suites.results.claims_file import StatedClaim
from ...suites.results.record import Record, printed_label
from ..reading.pooling import Curve, spent, thinned, utility_curve
from ..reading.run_folder import Order, RunFolder, once_per_run
from ..tables import numerals
from ..tables.pooled_rows import undefended
from ..tables.printed import defense_words, neighbours_of, pooled_words
from ..tables.table import Table
from .letters import label_column, label_height, label_room, loss_scale
from .sheet import (
    AXIS,
    DASHES,
    INK,
    PLOT,
    RED,
    SERIES,
    Figure,
    Sheet,
    heading_height,
    heading_lines,
    legend_height,
    rows_of,
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
_ACCURACY, _BETWEEN, _LOSS, _ACCURACY_SPENT_FOOT = 200.0, 20.0, 130.0, 52.0
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
        return printed_label(self.stated.defense)

    @property
    def label(self) -> str:
        return defense_words(self.stated.defense, self.stated.control)


def accuracy_spent(folder: RunFolder) -> Figure | None:
    """Draw accuracy against epsilon spent; return None if no claim of a trained federation states the epsilon spent up
    to intermediate rounds.
    """
    order = Order.of(folder)
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
    below = [heading_lines(f"adversary: {observer}") for *_, observer in panels]
    head, accuracy = heading_height(below), max(_ACCURACY, *(label_height(len(lines)) for lines in panels.values()))
    # Runs of earlier versions stored no loss.
    low = _LOSS + _BETWEEN if any(line.loss for lines in panels.values() for line in lines) else 0.0
    height = head + accuracy + low + _ACCURACY_SPENT_FOOT
    with Sheet(KEY, height * rows_of(len(panels))) as sheet:
        cells = sheet.cells(len(panels), 0.0, height)
        for (left, top), ((federation, neighbours, _), lines), words in zip(cells, panels.items(), below, strict=True):
            sheet.heading(left, top, neighbours, words)
            final = _final(folder, federation, undefended(order.defenses))
            width = PLOT - label_room(line.name for line in lines)
            ax = sheet.axes(left + AXIS, top + head, width, accuracy)
            ax.set(ylabel="accuracy", ylim=(0, 1))
            _accuracy_spent_panel(ax, lines, "accuracy", final.get("accuracy"))
            if low:
                ax.tick_params(labelbottom=False)
                ax = sheet.axes(left + AXIS, top + head + accuracy + _BETWEEN, width, _LOSS)
                ax.set(ylabel=numerals.metric(numerals.LOSS).name)
                _accuracy_spent_panel(ax, lines, numerals.LOSS, final.get(numerals.LOSS))
            ax.set(xlabel="ε so far")
        return sheet.figure(title=ACCURACY_SPENT_TITLE, description=ACCURACY_SPENT_DESCRIPTION, table=_table(panels))


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
    rows = [
        (
            f"{federation}/{line.label}" if many else line.label,
            line.stated.claim.describe(),
            f"{rounds}",
            numerals.epsilon(line.spent[rounds]),
            pooled_words("accuracy", line.curve[rounds], intervals=True),
            pooled_words(numerals.LOSS, line.loss.get(rounds), intervals=True),
        )
        for (federation, *_), lines in panels.items()
        for line in lines
        for rounds in thinned(line.spent, _TABLED)
    ]
    return Table(
        title=ACCURACY_SPENT_TITLE,
        headers=("defense", "claim", "rounds so far", "ε so far", "accuracy", "test loss"),
        rows=tuple(rows),
        numeric=frozenset({2, 3, 4, 5}),
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
    """One training. ``rounds``: (m,). ``numbers``: published numbers by name, (m,) each. ``curve``: (k, 2), rounds so
    far and accuracy; ``losses``: (k, 2), rounds so far and loss, no rows if no loss was stored.
    """

    rounds: FloatArray
    numbers: Mapping[str, FloatArray]
    curve: FloatArray
    losses: FloatArray

    @property
    def epsilon(self) -> FloatArray:
        """The epsilon spent before each of ``rounds``, array ``(m,)`` for m rounds."""
        return self.numbers["epsilon"]

    @property
    def norms(self) -> dict[str, FloatArray]:
        """A dictionary from each client's number to the client's clip norms, an array ``(m,)`` over m rounds."""
        return {name.removeprefix(_PREFIX): values for name, values in self.numbers.items() if name.startswith(_PREFIX)}

    def by_epsilon(self, curve: FloatArray) -> FloatArray:
        """Return the same curve ``(k, 2)`` with the epsilon spent after each of its rounds in place of the round."""
        # Accuracy may be measured in fewer rounds than the numbers are published.
        return np.asarray(np.column_stack([np.interp(curve[:, 0], self.rounds, self.epsilon), curve[:, 1]]))


def spending(folder: RunFolder) -> tuple[Figure, ...]:
    """For each federation, draw accuracy, loss and noise against epsilon, and the clip norms if they change."""
    order, drawn = Order.of(folder), list[Figure]()
    for federation in order.federations:
        found = {name: one for name in order.defenses if (one := _first(folder, federation, name)) is not None}
        if found:
            drawn.append(_budget(federation, found))
        moved = {name: one for name, one in found.items() if any(np.ptp(line) > 0 for line in one.norms.values())}
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
    numbers, curve = _columns(folder.files.numbers(first)), _columns(folder.files.rounds(first))
    # Segmentation has no accuracy; its IoU is drawn with the learning curves.
    if not {"epsilon", "noise_multiplier"} <= numbers.keys() or "accuracy" not in curve:
        return None
    losses = np.column_stack([curve["round"], curve[numerals.LOSS]]) if numerals.LOSS in curve else np.zeros((0, 2))
    return _Spent(
        rounds=numbers.pop("round"),
        numbers=numbers,
        curve=np.column_stack([curve["round"], curve["accuracy"]]),
        losses=losses,
    )


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, FloatArray]:
    """The columns that have a value in every row."""
    names = [name for name in (rows[0] if rows else ()) if all(name in row for row in rows)]
    return {name: np.array([row[name] for row in rows]) for name in names}


def _style(place: int) -> dict[str, Any]:
    return {"color": SERIES[place % len(SERIES)], "linestyle": DASHES[place % len(DASHES)], "linewidth": 1.6}


def _budget(federation: str, found: Mapping[str, _Spent]) -> Figure:
    title = f"{SPENDING_TITLE} ({federation})"
    losses = np.concatenate([one.losses[:, 1] for one in found.values()])
    # Runs of earlier versions stored no loss.
    names = ["accuracy", *([numerals.metric(numerals.LOSS).name] if len(losses) else []), "noise multiplier"]
    top, height = legend_height(len(found)), _TOP + _HEIGHT + _SPENDING_FOOT
    with Sheet(f"spending-{federation}", top + height) as sheet:
        sheet.legend([Line2D([], [], label=name, **_style(place)) for place, name in enumerate(found)])
        cells = sheet.cells(len(names), top, height)
        panels = [sheet.axes(left + AXIS, above + _TOP, PLOT, _HEIGHT) for left, above in cells]
        for place, one in enumerate(found.values()):
            panels[0].plot(*one.by_epsilon(one.curve).T, **_style(place))
            if len(losses):
                panels[1].plot(*one.by_epsilon(one.losses).T, **_style(place))
            panels[-1].plot(one.epsilon[1:], one.numbers["noise_multiplier"][1:], **_style(place))
        for ax, words in zip(panels, names, strict=True):
            ax.set(xlabel="ε spent", ylabel=words)
            ax.grid(axis="y")
        if len(losses):
            loss_scale(panels[1], losses.tolist())
        panels[-1].set_ylim(bottom=0)
        return sheet.figure(title=title, description=SPENDING_DESCRIPTION, table=_budget_table(title, found))


def _budget_table(title: str, found: Mapping[str, _Spent]) -> Table:
    rows = [
        (
            name,
            f"{rounds:.0f}",
            numerals.epsilon(float(spent)),
            numerals.metric_value("accuracy", float(accuracy)),
            numerals.metric_value(numerals.LOSS, dict(one.losses.tolist()).get(float(rounds))),
            numerals.significant(float(np.interp(rounds, one.rounds, one.numbers["noise_multiplier"]))),
        )
        for name, one in found.items()
        for rounds, (spent, accuracy) in zip(one.curve[:, 0], one.by_epsilon(one.curve), strict=True)
    ]
    headers = ("defense", "rounds", "ε spent", "accuracy", "test loss", "noise multiplier")
    return Table(title=title, headers=headers, rows=tuple(rows), numeric=frozenset(range(1, 6)))


def _norms(federation: str, moved: Mapping[str, _Spent]) -> Figure:
    title = f"{NORMS_TITLE} ({federation})"
    head = heading_height([])
    height = head + _NORMS + _SPENDING_FOOT
    with Sheet(f"clip-norms-{federation}", height * rows_of(len(moved))) as sheet:
        for (left, top), (name, one) in zip(sheet.cells(len(moved), 0.0, height), moved.items(), strict=True):
            sheet.heading(left, top, name, [])
            _spending_panel(sheet.axes(left + AXIS, top + head, PLOT, _NORMS), one)
        return sheet.figure(title=title, description=NORMS_DESCRIPTION, table=_norms_table(title, moved))


def _norms_table(title: str, moved: Mapping[str, _Spent]) -> Table:
    rows = [
        (
            name,
            f"{one.rounds[mark]:.0f}",
            *_range([line[mark] for line in one.norms.values()]),
        )
        for name, one in moved.items()
        for mark in sorted({round(share * (len(one.rounds) - 1) / _MARKS) for share in range(_MARKS + 1)})
    ]
    headers = ("defense", "round", "least", "median", "largest")
    return Table(title=title, headers=headers, rows=tuple(rows), numeric=frozenset({1, 2, 3, 4}))


def _range(norms: list[float]) -> tuple[str, str, str]:
    # The norms of the published method fall to 1e-12, which fixed decimals would print as 0.
    least, median, largest = (f"{value:.3g}" for value in (min(norms), float(np.median(norms)), max(norms)))
    return least, median, largest


def _spending_panel(ax: Axes, one: _Spent) -> None:
    for place, line in enumerate(one.norms.values()):
        ax.plot(one.rounds, line, **(_style(place) | {"linewidth": 1.0}))
    ax.set(yscale="log", xlabel="round", ylabel="clip norm")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.minorticks_off()
    ax.grid(axis="y")
