"""Draw accuracy, loss and noise against the epsilon spent so far, and clip norms by client.

It covers trainings whose protection publishes its numbers round by round (``numbers.csv`` next to ``rounds.csv``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ...audit.arrays import FloatArray
from ...suites.results.record import Record
from ..reading.order import Order
from ..reading.run_folder import RunFolder, once_per_run
from ..tables import numerals
from ..tables.table import Table
from .columns import AXIS, PLOT, heading_height, legend_height, rows_of
from .figure import Figure
from .labels import loss_scale
from .sheet import DASHES, SERIES, Sheet

TITLE = "Accuracy, loss and noise against the spent budget"
DESCRIPTION = (
    "Accuracy and mean cross-entropy of the global model on test data, and the noise multiplier of each round, against "
    "the largest ε that a client had spent before that round according to its privacy filter, which counts at one "
    "Rényi order and never starts at 0. First seed."
)
NORMS_TITLE = "Clip norms by client"
NORMS_DESCRIPTION = "The clip norm of each client in each round, one line per client. First seed."
_PREFIX = "clip_norm_"
_TOP, _HEIGHT, _NORMS, _FOOT = 10.0, 240.0, 200.0, 56.0
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
    title = f"{TITLE} ({federation})"
    losses = np.concatenate([one.losses[:, 1] for one in found.values()])
    # Runs of earlier versions stored no loss.
    names = ["accuracy", *([numerals.metric(numerals.LOSS).name] if len(losses) else []), "noise multiplier"]
    top, height = legend_height(len(found)), _TOP + _HEIGHT + _FOOT
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
        return sheet.figure(title=title, description=DESCRIPTION, table=_budget_table(title, found))


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
    height = head + _NORMS + _FOOT
    with Sheet(f"clip-norms-{federation}", height * rows_of(len(moved))) as sheet:
        for (left, top), (name, one) in zip(sheet.cells(len(moved), 0.0, height), moved.items(), strict=True):
            sheet.heading(left, top, name, [])
            _panel(sheet.axes(left + AXIS, top + head, PLOT, _NORMS), one)
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


def _panel(ax: Axes, one: _Spent) -> None:
    for place, line in enumerate(one.norms.values()):
        ax.plot(one.rounds, line, **(_style(place) | {"linewidth": 1.0}))
    ax.set(yscale="log", xlabel="round", ylabel="clip norm")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.minorticks_off()
    ax.grid(axis="y")
