"""Move a figure's labels apart so that none covers another, and choose the scale of its values."""

import math
from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes

from .columns import SMALL
from .letters import distinct, text_width

_FAR = 30
Label = tuple[float, float, str, str]
"""x and y of a point in data coordinates, its text and its colour."""
MOST_WIDE, GAP, _ASIDE = 124.0, 14.0, 14.0
"""Width of a label, distance from one label to the next, and their distance from the axes, all in pixels."""


def spread(heights: Sequence[float], gap: float, lowest: float = -math.inf, highest: float = math.inf) -> list[float]:
    """Move labels, given by their vertical positions ``heights``, as little as possible (least squares) until they are
    ``gap`` apart and between ``lowest`` and ``highest``, which must hold them all; keep their order.

    This is isotonic regression of height minus rank times gap, by pooling adjacent violators. Labels with enough space
    do not move.
    """
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    blocks: list[list[float]] = []
    for rank, place in enumerate(order):
        blocks.append([heights[place] - rank * gap])
        # Merging a block may violate the order with the one before it, so the test is repeated.
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    levels = [_mean(block) for block in blocks for _ in block]
    apart = [0.0] * len(heights)
    for rank, (place, level) in enumerate(zip(order, levels, strict=True)):
        # Without the ranks the limits are equal for all labels, and cutting the levels at them is still the best fit.
        apart[place] = max(lowest, min(level, highest - (len(heights) - 1) * gap)) + rank * gap
    return apart


def _mean(block: Sequence[float]) -> float:
    return sum(block) / len(block)


def label_height(count: int) -> float:
    """Return the height in pixels that a column of labels needs."""
    return GAP * count


def label_room(texts: Iterable[str]) -> float:
    """Return the width in pixels that a column of labels takes to the right of its axes."""
    return min(MOST_WIDE, max((text_width(text, SMALL) for text in texts), default=0.0)) + _ASIDE + 2


def label_column(ax: Axes, labels: Sequence[Label]) -> None:
    """Print labels in a column to the right of the axes, where they cover no mark, with a line from each to its point.

    Call it last, because it needs the
    final limits of the axes.
    """
    # Reading the limits makes matplotlib compute them.
    ax.get_xlim(), ax.get_ylim()
    box = ax.bbox
    # In pixels, so that the gap is right on a logarithmic axis too.
    heights = [float(ax.transData.transform((x, y))[1]) for x, y, _, _ in labels]
    moved = spread(heights, GAP, box.y0 + GAP / 2, box.y1 - GAP / 2)
    short = distinct([text for *_, text, _ in labels], SMALL, MOST_WIDE)
    for (x, y, text, colour), height in zip(labels, moved, strict=True):
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "alpha": 0.7, "shrinkA": 1, "shrinkB": 4,
                "relpos": (0.0, 0.5)}  # fmt: skip
        ax.annotate(short[text], (x, y), xytext=(box.x1 + _ASIDE, height),
                    textcoords="figure pixels", size=SMALL, color=colour, va="center", ha="left", arrowprops=line,
                    annotation_clip=False)  # fmt: skip


def drawn(metric: str, value: float) -> float:
    """Return the height at which a value is drawn: R2 below -1, which has no lower limit, at -1."""
    return max(value, -1.0) if metric == "r2" else value


def loss_scale(ax: Axes, values: Sequence[float]) -> None:
    """Choose the scale of an axis of losses: logarithmic if they differ by more than a factor of thirty, because one
    training that diverges would flatten all others.
    """
    if min(values) > 0 and max(values) > _FAR * min(values):
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.minorticks_off()
    else:
        ax.set_ylim(bottom=0)
