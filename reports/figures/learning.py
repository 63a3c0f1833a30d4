"""Draw each defense's accuracy (or the first metric of another task) and loss after each round."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ..reading.order import Order
from ..reading.rounds import Curve, utility_curve
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.table import Table
from .columns import AXIS, PLOT, legend_height
from .figure import Figure
from .labels import drawn, label_column, label_height, label_room, loss_scale
from .sheet import Sheet, line_styles

TITLE = "Accuracy and loss round by round"
DESCRIPTION = (
    "Accuracy of the global model on test data after each round (IoU for segmentation, R2 for regression, macro F1 for "
    "several labels per sample), and its mean loss on the same data, mean over seeds. R2 below -1 is drawn at -1. The "
    "loss axis is logarithmic where losses differ by more than a factor of thirty. The utility table and the figure of "
    "privacy and utility show the last round."
)
_TOP, _HEIGHT, _FOOT = 10.0, 234.0, 52.0
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
    title = f"{TITLE} ({federation})" if many else TITLE
    names = _defenses(panels)
    styles = line_styles((name, False) for name in names)
    top, plot = legend_height(len(names)), max(_HEIGHT, label_height(len(names)))
    height = _TOP + plot + _FOOT
    with Sheet(f"learning-{federation}", top + height) as sheet:
        sheet.legend([Line2D([], [], label=name, **style) for name, style in styles.items()])
        cells = sheet.cells(len(panels), top, height)
        for (left, above), (metric, curves) in zip(cells, panels.items(), strict=True):
            room = label_room(_ends(metric, curves).values())
            _panel(sheet.axes(left + AXIS, above + _TOP, PLOT - room, plot), metric, curves, styles)
        return sheet.figure(title=title, description=DESCRIPTION, table=_table(title, panels))


def _panel(ax: Axes, metric: str, curves: Mapping[str, Curve], styles: Mapping[str, dict[str, Any]]) -> None:
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
