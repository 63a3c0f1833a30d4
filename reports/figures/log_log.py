"""Draw a log-log ROC panel: axes, the region that a claim excludes, and curves thinned out for a screen."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ...audit.arrays import FloatArray
from ...audit.claim import Claim
from ...audit.metrics import largest_tpr
from ...audit.wording import plain
from .sheet import FAINT, INK, MUTED

STATED: dict[str, Any] = {"color": INK, "linewidth": 1.3, "linestyle": (0, (5, 2.5))}
CHANCE_LINE: dict[str, Any] = {"color": FAINT, "linewidth": 0.8, "linestyle": (0, (1, 2))}


CLAIM_ENTRIES = 3
"""Number of entries that `legend_handles` returns."""


def legend_handles() -> list[Artist]:
    """Return the legend entries of the panels that ``open_panel`` draws. Call it inside a `Sheet`, because the entries
    take the sheet's style.
    """
    return [
        Line2D([], [], label="stated trade-off curve", **STATED),
        Patch(facecolor="none", edgecolor=FAINT, hatch="////", linewidth=0.8, label="excluded by (ε, δ)"),
        Line2D([], [], label="chance", **CHANCE_LINE),
    ]


def open_panel(ax: Axes, claims: Sequence[Claim], lowest_fpr: float, lowest_tpr: float) -> None:
    """Draw log-log axes that start at the lowest rates, the diagonal of chance, the region that ``claims`` together
    exclude (hatched), and the claims' trade-off curves (dashed).
    """
    ax.set(xscale="log", yscale="log", xlim=(lowest_fpr, 1.0), ylim=(lowest_tpr, 1.15))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: plain(value))
    ax.minorticks_off()
    ax.grid(which="major")
    grid = np.geomspace(lowest_fpr, 1.0, 120)
    if claims:
        # The tightest claim decides at each rate, and no single one need be tightest everywhere.
        limit = np.min([largest_tpr(grid, claim.epsilon, claim.delta) for claim in claims], axis=0)
        ax.fill_between(grid, limit, 1.0, hatch="////", facecolor="none", edgecolor=FAINT, linewidth=0.0)
        ax.plot(grid, limit, color=MUTED, linewidth=0.9)
    for claim in claims:
        if claim.curve is not None:
            ax.plot(grid, 1 - claim.curve.fnr(grid), **STATED)
    ax.plot(grid, grid, **CHANCE_LINE)


def drawable(
    fpr: FloatArray, tpr: FloatArray, lowest_fpr: float, lowest_tpr: float, width: float
) -> tuple[FloatArray, FloatArray]:
    """Return the ROC curve's points at rates of at least 1/n for n trials, without points that a panel of ``width``
    pixels cannot show apart.

    Below that, a rate would extrapolate beyond the data.
    """
    beyond = fpr > lowest_fpr
    reached = tpr[~beyond].max()
    x, y = np.concatenate([[lowest_fpr], fpr[beyond]]), np.concatenate([[reached], tpr[beyond]])
    x, y = x[y >= lowest_tpr], y[y >= lowest_tpr]
    # Vertices less than half a pixel apart look like one. This reduces ten thousand scores to about a hundred points.
    pixels = np.round(2 * width * np.log([x, y]).T / np.log([[lowest_fpr, lowest_tpr]]))
    last = np.append(np.any(np.diff(pixels, axis=0) != 0, axis=1), True)
    return x[last], y[last]
