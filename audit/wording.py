"""Numbers and bounds as printed in audit results, and the error for an unknown name, which lists the known names."""

import math
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from enum import StrEnum

_MOST, _SHOWN = 8, 6


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known names as one phrase for an error message, the most similar to ``word`` first.

    Of more than eight names, only the six most similar are listed.

    ``nearest("clip", ["norm", "clip_norm"])`` -> "clip_norm or norm".
    """
    names = sorted(known, key=lambda name: (-SequenceMatcher(None, word.lower(), name.lower()).ratio(), name))
    if len(names) > _MOST:
        names = [*names[:_SHOWN], f"{len(names) - _SHOWN} others"]
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "(no name is known)"


def plain(number: float) -> str:
    """Format a number with at most six significant digits and no padding: ``4.0 -> "4"``, ``1e-05 -> "1e-5"``."""
    mantissa, mark, exponent = f"{number:g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if mark else mantissa


def at_least(number: float) -> str:
    """Format a lower bound, rounded down to three significant digits so that it never states more than was shown."""
    return plain(_round(number, math.floor, digits=3))


def at_most(share: float) -> str:
    """Format an upper bound on a share in [0, 1], rounded up to two significant digits: ``.0207 -> ".021"``."""
    text = plain(_round(share, math.ceil, digits=2))
    return text.removeprefix("0") if text.startswith("0.") else text


def _round(number: float, towards: Callable[[float], int], digits: int) -> float:
    if number == 0 or not math.isfinite(number):
        return number
    places = digits - 1 - math.floor(math.log10(abs(number)))
    # Rounding to nine more digits first: in binary floating point 2.30 * 100 is below 230, and its floor would be 229.
    return float(towards(round(number * 10.0**places, 9))) / 10.0**places


class NamedEnum(StrEnum):
    """An enumeration of names; for an unknown name, its error lists the known ones."""

    @classmethod
    def _missing_(cls, value: object) -> "NamedEnum":
        raise unknown(cls.__name__.lower(), str(value), cls)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural if needed: ``1 claim``, ``1,200 claims``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def listed(labels: Iterable[str]) -> str:
    """Join the distinct labels with commas; if there are more than four, name four and count the others."""
    # A defense audited on several seeds or federations would otherwise be listed several times.
    unique = list(dict.fromkeys(labels))
    return ", ".join(unique[:4]) + (f" and {len(unique) - 4} more" if len(unique) > 4 else "")


def unknown(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """Build the ValueError for an unknown name; its message lists the known names, the most similar first."""
    return ValueError(f"{kind} must be {nearest(name, known)}, got {name!r}")


def shortened(value: object, most: int = 60) -> str:
    """Return the ``repr`` of a value on one line, with the middle left out if it is too long."""
    text = " ".join(repr(value).split())
    kept = most // 2 - 2
    return text if len(text) <= most else f"{text[:kept]} ... {text[-kept:]}"


def duration(seconds: float) -> str:
    """Return a time >= 0 in words: ``about 4 minutes``."""
    if seconds < 1.5:
        return "about a second"
    for size, unit, most in ((1, "seconds", 100), (60, "minutes", 100), (3600, "hours", 48)):
        if seconds < size * most:
            return f"about {seconds / size:.0f} {unit}"
    return f"about {seconds / 86400:.0f} days"
