"""Move a figure's labels apart so that none covers another, and break long ones into lines."""

import re
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

_FAR = 30


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Move labels, given by their vertical positions ``heights``, as little as possible (least squares) until they are
    ``gap`` apart; keep their order.

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
        apart[place] = level + rank * gap
    return apart


def _mean(block: Sequence[float]) -> float:
    return sum(block) / len(block)


def label_ends(ax: Axes, labels: Sequence[tuple[float, float, str, str]], size: float) -> None:
    """Print labels to the right of the ends of lines. ``labels``: x and y of each line's last point in data
    coordinates, its text and its colour.
    """
    ends = [(x, y) for x, y, _, _ in labels]
    # In pixels, so that the gap is right on a logarithmic axis too.
    heights = [float(height) for _, height in ax.transData.transform(np.array(ends))]
    moved = spread(heights, gap=1.36 * size)
    for end, (_, _, text, colour), height, apart in zip(ends, labels, heights, moved, strict=True):
        ax.annotate(text, end, xytext=(8, apart - height), textcoords="offset pixels", size=size, color=colour,
                    va="center", ha="left", annotation_clip=False)  # fmt: skip


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


def wrapped(label: str, letters: int) -> str:
    """Break the label into lines of at most ``letters`` letters, only after underscores."""
    lines = [""]
    for part in re.findall(r"[^_]*_|[^_]+", label):
        if lines[-1] and len(lines[-1] + part) > letters:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
