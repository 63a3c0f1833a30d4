"""The bounds of what a suite may hold: levels of nesting, whole numbers, number of values, length of the text.

Beyond them a parser or a check would fail in its own words, or fill the memory before it fails.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

DEEPEST = 64
MOST_LETTERS = 1_000_000
MOST_VALUES = 100_000
TOO_DEEP = f"its lists or tables are nested more than {DEEPEST} levels deep"
TOO_LONG = f"it must have at most {MOST_LETTERS} letters"
TOO_LARGE = "a whole number has more than 64 bits"
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
_DEEP_KEY = re.compile(rf"(?<![\w-]){_PART}(?:[ \t]*+\.[ \t]*+{_PART}){{{DEEPEST}}}")


def unreadable(text: str) -> str:
    """Return why a TOML text must not be parsed: it is too long, or one of its dotted keys too deep; else empty."""
    if len(text) > MOST_LETTERS:
        return f"{TOO_LONG}, got {len(text)}"
    # Python's parser stores every beginning of a dotted key: the memory grows with the square of its length.
    return TOO_DEEP if _DEEP_KEY.search(text) else ""


def outside_bounds(tree: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
    """Return the place of the first value of a parsed suite that is outside the bounds, and the reason; None if there
    is none.
    """
    # A stack of its own, because Python's may end before the bound of nesting is reached.
    left: list[tuple[tuple[str, ...], Any]] = [((), tree)]
    values = 0
    while left:
        path, value = left.pop()
        values += len(value) if isinstance(value, Mapping | list | tuple) else 0
        if values > MOST_VALUES:
            return (), f"a suite must hold at most {MOST_VALUES} values"
        if len(path) > DEEPEST:
            return path[:4], f"{'.'.join(path[:4])} is nested more than {DEEPEST} levels deep"
        if reason := _wrong_number(value):
            return path, f"{'.'.join(path)} {reason}"
        left += reversed(_inside(path, value))
    return None


def _inside(path: tuple[str, ...], value: Any) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        return [((*path, str(key)), item) for key, item in value.items()]
    items = value if isinstance(value, list | tuple) else ()
    return [((*path, str(number)), item) for number, item in enumerate(items)]


def _wrong_number(value: Any) -> str:
    # TOML has nan and inf, but JSON, in which the manifest is written, does not.
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite, got NaN or infinity"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"must be a whole number of at most 64 bits, got one of {value.bit_length()} bits"
    return ""
