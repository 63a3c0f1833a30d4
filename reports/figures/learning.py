"""Draw each defense's accuracy (or the first metric of another task) and loss after each round."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ..reading.order import Order
from ..reading.rounds import Curve, utility_curve
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.table import Table
from .figure import Figure
from .labels import drawn, label_ends, loss_scale
from .sheet import DASHES, SERIES, Sheet

TITLE = "Accuracy and loss round by round"
DESCRIPTION = (
    "Accuracy of the global model on test data after each round (IoU for segmentation, R2 for regression, macro F1 for "
    "several labels per sample), and its mean loss on the same data, mean over seeds. R2 below -1 is drawn at -1. The "
    "loss axis is logarithmic where losses differ by more than a factor of thirty. The utility table and the figure of "
    "privacy and utility show the last round."
)
_WIDTH, _HEIGHT, _LEFT, _PLOT, _PANEL, _RIGHT = 940.0, 300.0, 52.0, 700.0, 290.0, 580.0
Panels = Mapping[str, Mapping[str, Curve]]
"""Metric -> defense -> curve: the accuracy or the first metric of another task, then the loss if it was stored."""


def learning(folder: RunFolder) -> tuple[Figure, ...]:
    """Draw learning curves, one figure per federation whose training stored its metrics round by round."""
    order = Order.of(folder)
    found: dict[str, dict[str, dict[str, Curve]]] = {}
    metrics = {row.federation: row.metric for row in folder.rows("utility") if row.metric in numerals.HEADLINES}
    for federation in order.federations:
        for metric in (metrics.get(federation, "accuracy"), numerals.LOSS):
            curves = {name: utility_curve(folder, federation, name, metric) for name in order.defenses}
            # A single round is no curve; the utility table shows it.
            if drawn := {name: curve for name, curve in curves.items() if len(curve) > 1}:
                found.setdefault(federation, {})[metric] = drawn
    return tuple(_figure(federation, panels, many=len(found) > 1) for federation, panels in found.items())


def _figure(federation: str, panels: Panels, many: bool) -> Figure:
    key = f"learning-{federation}"
    with Sheet(key, _WIDTH, _HEIGHT) as sheet:
        # Runs of earlier versions stored no loss, and keep the wide panel.
        width = _PANEL if len(panels) > 1 else _PLOT
        places = {name: place for place, name in enumerate(_defenses(panels))}
        for left, (metric, curves) in zip((_LEFT, _RIGHT), panels.items(), strict=False):
            _panel(sheet.axes(left, 20, width, _HEIGHT - 66), metric, curves, places, named=left == _LEFT)
        svg = sheet.svg()
    title = f"{TITLE} ({federation})" if many else TITLE
    return Figure(key=key, title=title, description=DESCRIPTION, svg=svg, pdf=sheet.pdf, table=_table(title, panels))


def _panel(ax: Axes, metric: str, curves: Mapping[str, Curve], places: Mapping[str, int], named: bool) -> None:
    ax.grid(axis="y")
    for name, curve in curves.items():
        place = places[name]
        style: dict[str, Any] = {"color": SERIES[place % len(SERIES)], "linestyle": DASHES[place % len(DASHES)]}
        ax.plot(list(curve), [drawn(metric, point.value) for point in curve.values()], linewidth=1.6, **style)
    ax.set(xlabel="round", ylabel=numerals.metric(metric).name, xlim=(0, max(max(curve) for curve in curves.values())))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if metric == numerals.LOSS:
        loss_scale(ax, [point.value for curve in curves.values() for point in curve.values()])
    right, labels = ax.get_xlim()[1], []
    for name, curve in curves.items():
        last = curve[max(curve)].value
        # The loss panel shares the colours of the panel to its left, which names them.
        words = f"{name}  {numerals.metric_value(metric, last)}" if named else numerals.metric_value(metric, last)
        labels.append((right, drawn(metric, last), words, SERIES[places[name] % len(SERIES)]))
    label_ends(ax, labels, size=10.5)


def _defenses(panels: Panels) -> list[str]:
    return list(dict.fromkeys(name for curves in panels.values() for name in curves))


def _table(title: str, panels: Panels) -> Table:
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
