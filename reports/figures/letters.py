"""Measure, break and shorten text to fit a width, and move labels apart so that none covers another."""

import math
import re
import warnings
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from scipy.optimize import isotonic_regression

from ..reading.pooling import gathered

SMALL = 10.0
"""The smallest font of a drawing."""
_WIDE = re.compile("[\u2e80-\U0010ffff]")


@lru_cache(maxsize=4096)
def text_width(text: str, size: float, bold: bool = False) -> float:
    """Return the width of one line in pixels. The font is matplotlib's own, which is wider than most readers' fonts."""
    font = FontProperties(family="DejaVu Sans", size=size, weight="bold" if bold else "normal")
    # The font lacks these characters, and the reader's font shows most of them as wide as the font is high.
    wide = len(_WIDE.findall(text))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)
        width, _, _ = text_to_path.get_text_width_height_descent(_WIDE.sub("", text), font, ismath=False)
    return float(width) + size * wide


def shortened(text: str, size: float, width: float, bold: bool = False) -> str:
    """Return the text, or its beginning and its end around an ellipsis if it is wider than ``width`` pixels.

    Names of a run often differ at their ends only.
    """
    if text_width(text, size, bold) <= width:
        return text
    fitting = bisect_right(range(len(text)), width, key=lambda kept: text_width(_halves(text, kept + 1), size, bold))
    return _halves(text, max(1, fitting))


def _halves(text: str, kept: int) -> str:
    if kept >= len(text):
        return text
    return f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"


def distinct(texts: Sequence[str], size: float, width: float) -> dict[str, str]:
    """Shorten each text to ``width`` pixels; if some would then be equal, keep the part in which the texts differ.
    The result has the order of ``texts``.
    """
    alike = gathered((shortened(text, size, width), text) for text in dict.fromkeys(texts))
    short = {group[0]: one for one, group in alike.items() if len(group) == 1}
    for group in alike.values():
        if len(group) > 1:
            first, last = _shared(group), _shared([text[::-1] for text in group])
            short |= {text: _around(text, first, max(first, len(text) - last), size, width) for text in group}
    return {text: short[text] for text in texts}


def _shared(texts: Sequence[str]) -> int:
    """The number of letters with which all texts begin."""
    columns = enumerate(zip(*texts, strict=False))
    return next((place for place, letters in columns if len(set(letters)) > 1), min(map(len, texts)))


def _around(text: str, start: int, end: int, size: float, width: float) -> str:
    """The text from ``start`` to ``end`` with as much before and after it as fits."""
    shown = _cut(text, start, end)
    while (start > 0 or end < len(text)) and text_width(_cut(text, start - 1, end + 1), size) <= width:
        start, end = max(0, start - 1), min(len(text), end + 1)
        shown = _cut(text, start, end)
    return shortened(shown, size, width)


def _cut(text: str, start: int, end: int) -> str:
    start = max(0, start)
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


def broken(text: str, size: float, width: float, most: int = 9) -> list[str]:
    """Break the text into at most ``most`` lines of at most ``width`` pixels, at blanks, after underscores, at
    hyphens before a letter and at its own line breaks; a longer text ends in an ellipsis.
    """
    lines = [line for part in text.split("\n") for line in _filled(part, size, width)]
    if len(lines) <= most:
        return lines
    last = lines[most - 1]
    while last and text_width(f"{last} …", size) > width:
        last = last[:-1]
    return [*lines[: most - 1], f"{last.rstrip()} …"]


def _filled(text: str, size: float, width: float) -> list[str]:
    lines = [""]
    # No break at a non-breaking space, which \s would match.
    for word in re.findall(r"(?:[^_ -]|-(?![A-Za-z]))*(?:_+|-(?=[A-Za-z]))|[^_ ]+ *| +", text):
        if lines[-1] and text_width((lines[-1] + word).rstrip(), size) > width:
            lines.append("")
        lines[-1] += shortened(word.rstrip(" "), size, width) + " " * (len(word) - len(word.rstrip(" ")))
    return [line.rstrip(" ") for line in lines if line.strip(" ")]


_FAR = 30
Label = tuple[float, float, str, str]
"""x and y of a point in data coordinates, its text and its colour."""
MOST_WIDE, GAP, _ASIDE = 124.0, 14.0, 14.0
"""Width of a label, distance from one label to the next, and their distance from the axes, all in pixels."""


def spread(heights: Sequence[float], gap: float, lowest: float = -math.inf, highest: float = math.inf) -> list[float]:
    """Move labels, given by their vertical positions ``heights``, as little as possible (least squares) until they are
    ``gap`` apart, and keep their order. All labels stay between ``lowest`` and ``highest``, where there must be room
    for them.

    This is isotonic regression of height minus rank times gap. Labels with enough space do not move.
    """
    if not heights:
        return []
    order = np.argsort(heights, kind="stable")
    ranks = gap * np.arange(len(heights))
    # Without the ranks the limits are equal for all labels, and cutting the levels at them is still the best fit.
    levels = np.clip(isotonic_regression(np.asarray(heights)[order] - ranks).x, lowest, highest - ranks[-1])
    apart = np.empty(len(heights))
    apart[order] = levels + ranks
    found: list[float] = apart.tolist()
    return found


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
    """Return the height at which a figure draws a value. Only R2, which has no lower limit, is changed: values below -1
    are drawn at -1.
    """
    return max(value, -1.0) if metric == "r2" else value


def loss_scale(ax: Axes, values: Sequence[float]) -> None:
    """Choose the scale of an axis of losses. It is logarithmic if the losses differ by more than a factor of thirty,
    because one training that diverges would otherwise flatten all other curves.
    """
    if min(values) > 0 and max(values) > _FAR * min(values):
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.minorticks_off()
    else:
        ax.set_ylim(bottom=0)
