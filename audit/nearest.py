"""Selects the known names that an error message lists when a given name is unknown."""

from collections.abc import Iterable
from difflib import SequenceMatcher

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
