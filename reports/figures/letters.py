"""Measure text, and break or shorten it to fit a width."""

import re
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

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
    alike: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        alike.setdefault(shortened(text, size, width), []).append(text)
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
    """Break the text into at most ``most`` lines of at most ``width`` pixels, at blanks, after underscores and at its
    own line breaks; a longer text ends in an ellipsis.
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
    for word in re.findall(r"[^_ ]*_+|[^_ ]+ *| +", text):
        if lines[-1] and text_width((lines[-1] + word).rstrip(), size) > width:
            lines.append("")
        lines[-1] += shortened(word.rstrip(" "), size, width) + " " * (len(word) - len(word.rstrip(" ")))
    return [line.rstrip(" ") for line in lines if line.strip(" ")]
