"""Accuracy, or a segmentation's IoU, round by round, for each defense: what the budget buys while it is spent."""

import csv
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from .. import numerals
from ..order import Order
from ..run_folder import RunFolder
from ..table import Table
from .figure import Figure
from .labels import spread
from .sheet import DASHES, SERIES, Sheet

TITLE = "Accuracy round by round"
DESCRIPTION = (
    "Accuracy on test data, of a segmentation IoU, of the global model after each round, mean over seeds. The last "
    "round is what the utility table and the frontier show."
)
Curve = NDArray[np.float64]
_WIDTH, _HEIGHT, _LEFT, _PLOT = 940.0, 300.0, 52.0, 700.0


def learning(folder: RunFolder) -> tuple[Figure, ...]:
    """One figure per federation whose training left its rounds."""
    order = Order.of(folder)
    curves: dict[tuple[str, str], dict[str, Curve]] = {}
    metrics = {row.federation: row.metric for row in folder.rows("utility") if row.metric in numerals.HEADLINES}
    for federation in order.federations:
        for defense in order.defenses:
            curve = _mean_curve(folder, federation, defense)
            if curve is not None and len(curve) > 1:
                curves.setdefault((federation, metrics[federation]), {})[defense] = curve
    return tuple(
        _figure(federation, metric, by_defense, many=len(curves) > 1)
        for (federation, metric), by_defense in curves.items()
    )


def _mean_curve(folder: RunFolder, federation: str, defense: str) -> Curve | None:
    """Mean over seeds of the rounds that every seed reached: (rounds, 2), round and value."""
    records = [
        r
        for r in folder.rows("utility", status="ok")
        if (r.federation, r.defense) == (federation, defense) and r.metric in numerals.HEADLINES
    ]
    paths = [folder.artifact(record) for record in sorted(records, key=lambda record: record.seed or 0)]
    curves = [_read(path.read_text(encoding="utf-8")) for path in paths if path and path.suffix == ".csv"]
    if not curves:
        return None
    rounds = min(len(curve) for curve in curves)
    return np.asarray(np.mean([curve[:rounds] for curve in curves], axis=0))


def _read(text: str) -> Curve:
    rows = list(csv.reader(text.splitlines()))[1:]
    return np.array([(float(number), float(value)) for number, value in rows]).reshape(-1, 2)


def _figure(federation: str, metric: str, curves: Mapping[str, Curve], many: bool) -> Figure:
    key = f"learning-{federation}"
    with Sheet(key, _WIDTH, _HEIGHT) as sheet:
        ax = sheet.axes(_LEFT, 20, _PLOT, _HEIGHT - 66)
        ax.grid(axis="y")
        for place, curve in enumerate(curves.values()):
            style: dict[str, Any] = {"color": SERIES[place % len(SERIES)], "linestyle": DASHES[place % len(DASHES)]}
            ax.plot(curve[:, 0], curve[:, 1], linewidth=1.6, **style)
        ax.set(
            xlabel="round",
            ylabel=numerals.metric(metric).name,
            xlim=(0, max(curve[-1, 0] for curve in curves.values())),
        )
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ends = [float(curve[-1, 1]) for curve in curves.values()]
        heights = spread(ends, gap=0.062 * float(np.ptp(ax.get_ylim())))
        for place, (defense, height) in enumerate(zip(curves, heights, strict=True)):
            ax.annotate(
                f"{defense}  {numerals.metric_value(metric, ends[place])}",
                (1.0, height),
                xycoords=("axes fraction", "data"),
                xytext=(10, 0),
                textcoords="offset points",
                size=10.5,
                va="center",
                color=SERIES[place % len(SERIES)],
            )
        svg = sheet.svg()
    title = f"{TITLE} ({federation})" if many else TITLE
    return Figure(key=key, title=title, description=DESCRIPTION, svg=svg, table=_table(title, metric, curves))


def _table(title: str, metric: str, curves: Mapping[str, Curve]) -> Table:
    longest = max(curves.values(), key=len)
    rows = [
        (f"{number:.0f}", *(_cell(metric, curve, place) for curve in curves.values()))
        for place, number in enumerate(longest[:, 0])
    ]
    numeric = frozenset(range(len(curves) + 1))
    return Table(title=title, headers=("round", *curves), rows=tuple(rows), numeric=numeric)


def _cell(metric: str, curve: Curve, place: int) -> str:
    return numerals.metric_value(metric, float(curve[place, 1]) if place < len(curve) else None)
