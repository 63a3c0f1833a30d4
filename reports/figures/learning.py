"""Draw each defense's accuracy after each round, or IoU for segmentation."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from ..reading.order import Order
from ..reading.rounds import Curve, accuracy
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.table import Table
from .figure import Figure
from .labels import spread
from .sheet import DASHES, SERIES, Sheet

TITLE = "Accuracy round by round"
DESCRIPTION = (
    "Accuracy of the global model on test data after each round (IoU for segmentation), mean over seeds. The utility "
    "table and the figure of privacy and utility show the last round."
)
_WIDTH, _HEIGHT, _LEFT, _PLOT = 940.0, 300.0, 52.0, 700.0


def learning(folder: RunFolder) -> tuple[Figure, ...]:
    """Draw learning curves, one figure per federation whose training stored its metrics round by round."""
    order = Order.of(folder)
    curves: dict[tuple[str, str], dict[str, Curve]] = {}
    metrics = {row.federation: row.metric for row in folder.rows("utility") if row.metric in numerals.HEADLINES}
    for federation in order.federations:
        for defense in order.defenses:
            metric = metrics.get(federation, "accuracy")
            curve = accuracy(folder, federation, defense, metric)
            # A single round is no curve; the utility table shows it.
            if len(curve) > 1:
                curves.setdefault((federation, metric), {})[defense] = curve
    return tuple(
        _figure(federation, metric, by_defense, many=len(curves) > 1)
        for (federation, metric), by_defense in curves.items()
    )


def _figure(federation: str, metric: str, curves: Mapping[str, Curve], many: bool) -> Figure:
    key = f"learning-{federation}"
    with Sheet(key, _WIDTH, _HEIGHT) as sheet:
        ax = sheet.axes(_LEFT, 20, _PLOT, _HEIGHT - 66)
        ax.grid(axis="y")
        for place, curve in enumerate(curves.values()):
            style: dict[str, Any] = {"color": SERIES[place % len(SERIES)], "linestyle": DASHES[place % len(DASHES)]}
            ax.plot(list(curve), [point.value for point in curve.values()], linewidth=1.6, **style)
        longest = max(max(curve) for curve in curves.values())
        ax.set(xlabel="round", ylabel=numerals.metric(metric).name, xlim=(0, longest))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ends = [curve[max(curve)].value for curve in curves.values()]
        # Defenses with similar accuracy would print their labels over each other.
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
    rounds = sorted(set().union(*curves.values()))
    rows = [(f"{number}", *(_cell(metric, curve, number) for curve in curves.values())) for number in rounds]
    numeric = frozenset(range(len(curves) + 1))
    return Table(title=title, headers=("round", *curves), rows=tuple(rows), numeric=numeric)


def _cell(metric: str, curve: Curve, number: int) -> str:
    return numerals.metric_value(metric, curve[number].value if number in curve else None)
