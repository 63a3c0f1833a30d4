"""Nearest names: the known names that an error lists when a name is unknown."""

from collections.abc import Iterable
from difflib import SequenceMatcher

_MOST, _SHOWN = 8, 6


def nearest(word: str, known: Iterable[str]) -> str:
    """The known names as one phrase, the most similar first; of more than eight names the six most similar.

    ``nearest("clip", ["norm", "clip_norm"])`` -> "clip_norm or norm".
    """
    names = sorted(known, key=lambda name: (-SequenceMatcher(None, word.lower(), name.lower()).ratio(), name))
    if len(names) > _MOST:
        names = [*names[:_SHOWN], f"{len(names) - _SHOWN} others"]
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "(no name is known)"
