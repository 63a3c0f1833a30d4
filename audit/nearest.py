"""Known names, nearest first: what an error says when a name is unknown."""

from collections.abc import Iterable
from difflib import SequenceMatcher


def nearest(word: str, known: Iterable[str]) -> str:
    """The known names as one phrase, the likeliest first.

    ``nearest("clip", ["norm", "clip_norm"])`` -> "clip_norm or norm".
    """
    names = sorted(known, key=lambda name: (-SequenceMatcher(None, word.lower(), name.lower()).ratio(), name))
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else "(nothing is known)"
