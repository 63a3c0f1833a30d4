"""Move a figure's labels apart so that none covers another, and break long ones into lines."""

import re
from collections.abc import Sequence


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


def wrapped(label: str, letters: int) -> str:
    """Break the label into lines of at most ``letters`` letters, only after underscores."""
    lines = [""]
    for part in re.findall(r"[^_]*_|[^_]+", label):
        if lines[-1] and len(lines[-1] + part) > letters:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)
