"""Draw accuracy and noise against the epsilon spent so far, and clip norms by client.

It covers trainings whose protection publishes its numbers round by round (``numbers.csv`` next to ``rounds.csv``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from ...audit.arrays import FloatArray
from ..reading.order import Order
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.table import Table
from .figure import Figure
from .sheet import DASHES, SERIES, Sheet

TITLE = "Accuracy and noise against the spent budget"
DESCRIPTION = (
    "Test accuracy of the global model and the noise multiplier of each round, against the largest ε that a client had "
    "spent before that round according to its privacy filter, which counts at one Rényi order and never starts at 0. "
    "First seed."
)
NORMS_TITLE = "Clip norms by client"
NORMS_DESCRIPTION = "The clip norm of each client in each round, one line per client. First seed."
_PREFIX = "clip_norm_"
_WIDTH, _HEIGHT, _PANEL, _LEFT, _GAP = 940.0, 330.0, 380.0, 52.0, 84.0
_COLUMNS, _MARKS = 3, 10


@dataclass(frozen=True, kw_only=True)
class _Spent:
    """One training. ``rounds``: (m,). ``numbers``: published numbers by name, (m,) each. ``curve``: (k, 2), rounds so
    far and accuracy.
    """

    rounds: FloatArray
    numbers: Mapping[str, FloatArray]
    curve: FloatArray

    @property
    def epsilon(self) -> FloatArray:
        """The epsilon spent before each of ``rounds``, array ``(m,)`` for m rounds."""
        return self.numbers["epsilon"]

    @property
    def norms(self) -> dict[str, FloatArray]:
        """A dictionary from each client's number to the client's clip norms, an array ``(m,)`` over m rounds."""
        return {name.removeprefix(_PREFIX): values for name, values in self.numbers.items() if name.startswith(_PREFIX)}

    @property
    def accuracy_by_epsilon(self) -> FloatArray:
        """An array ``(k, 2)`` whose rows hold the epsilon spent and the accuracy after the same round."""
        # Accuracy may be measured in fewer rounds than the numbers are published.
        spent = np.interp(self.curve[:, 0], self.rounds, self.epsilon)
        return np.asarray(np.column_stack([spent, self.curve[:, 1]]))


def spending(folder: RunFolder) -> tuple[Figure, ...]:
    """For each federation, draw accuracy and noise against epsilon, and the clip norms if they change over rounds."""
    order, drawn = Order.of(folder), list[Figure]()
    for federation in order.federations:
        found = {name: one for name in order.defenses if (one := _first(folder, federation, name)) is not None}
        if found:
            drawn.append(_accuracy_and_noise(federation, found))
        moved = {name: one for name, one in found.items() if any(np.ptp(line) > 0 for line in one.norms.values())}
        if moved:
            drawn.append(_norms(federation, moved))
    return tuple(drawn)


def _first(folder: RunFolder, federation: str, defense: str) -> _Spent | None:
    records = [r for r in folder.rows("utility", status="ok") if (r.federation, r.defense) == (federation, defense)]
    if not records:
        return None
    first = min(records, key=lambda record: record.seed or 0)
    numbers, curve = _columns(folder.files.numbers(first)), _columns(folder.files.rounds(first))
    # Segmentation has no accuracy; its IoU is drawn with the learning curves.
    if not {"epsilon", "noise_multiplier"} <= numbers.keys() or "accuracy" not in curve:
        return None
    return _Spent(
        rounds=numbers.pop("round"), numbers=numbers, curve=np.column_stack([curve["round"], curve["accuracy"]])
    )


def _columns(rows: Sequence[Mapping[str, float]]) -> dict[str, FloatArray]:
    """The columns that have a value in every row."""
    names = [name for name in (rows[0] if rows else ()) if all(name in row for row in rows)]
    return {name: np.array([row[name] for row in rows]) for name in names}


def _style(place: int) -> dict[str, Any]:
    return {"color": SERIES[place % len(SERIES)], "linestyle": DASHES[place % len(DASHES)], "linewidth": 1.6}


def _accuracy_and_noise(federation: str, found: Mapping[str, _Spent]) -> Figure:
    key, lines = f"spending-{federation}", -(-len(found) // _COLUMNS)
    with Sheet(key, _WIDTH, _HEIGHT + 18 * lines) as sheet:
        left, right = (
            sheet.axes(_LEFT + place * (_PANEL + _GAP), 14 + 18 * lines, _PANEL, _HEIGHT - 62) for place in (0, 1)
        )
        for place, one in enumerate(found.values()):
            left.plot(*one.accuracy_by_epsilon.T, **_style(place))
            right.plot(one.epsilon[1:], one.numbers["noise_multiplier"][1:], **_style(place))
        for ax, words in ((left, "accuracy"), (right, "noise multiplier")):
            ax.set(xlabel="ε spent", ylabel=words)
            ax.grid(axis="y")
        right.set_ylim(bottom=0)
        sheet.legend([Line2D([], [], label=name, **_style(place)) for place, name in enumerate(found)], _COLUMNS)
        svg = sheet.svg()
    title = f"{TITLE} ({federation})"
    rows = [
        (
            name,
            f"{rounds:.0f}",
            numerals.epsilon(float(spent)),
            numerals.metric_value("accuracy", float(accuracy)),
            numerals.significant(float(np.interp(rounds, one.rounds, one.numbers["noise_multiplier"]))),
        )
        for name, one in found.items()
        for rounds, (spent, accuracy) in zip(one.curve[:, 0], one.accuracy_by_epsilon, strict=True)
    ]
    headers = ("defense", "rounds", "ε spent", "accuracy", "noise multiplier")
    table = Table(title=title, headers=headers, rows=tuple(rows), numeric=frozenset({1, 2, 3, 4}))
    return Figure(key=key, title=title, description=DESCRIPTION, svg=svg, table=table)


def _norms(federation: str, moved: Mapping[str, _Spent]) -> Figure:
    key, down = f"clip-norms-{federation}", -(-len(moved) // 2)
    with Sheet(key, _WIDTH, 24 + 270 * down) as sheet:
        for place, (name, one) in enumerate(moved.items()):
            across, row = place % 2, place // 2
            ax = sheet.axes(_LEFT + across * (_PANEL + _GAP), 26 + 270 * row, _PANEL, 200)
            _panel(ax, name, one)
        svg = sheet.svg()
    title = f"{NORMS_TITLE} ({federation})"
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
    table = Table(title=title, headers=headers, rows=tuple(rows), numeric=frozenset({1, 2, 3, 4}))
    return Figure(key=key, title=title, description=NORMS_DESCRIPTION, svg=svg, table=table)


def _range(norms: list[float]) -> tuple[str, str, str]:
    # The norms of the published method fall to 1e-12, which fixed decimals would print as 0.
    least, median, largest = (f"{value:.3g}" for value in (min(norms), float(np.median(norms)), max(norms)))
    return least, median, largest


def _panel(ax: Axes, name: str, one: _Spent) -> None:
    for place, line in enumerate(one.norms.values()):
        ax.plot(one.rounds, line, **(_style(place) | {"linewidth": 1.0}))
    ax.set(yscale="log", xlabel="round", ylabel="clip norm")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.minorticks_off()
    ax.set_title(name, loc="left", fontsize=10.5)
    ax.grid(axis="y")
