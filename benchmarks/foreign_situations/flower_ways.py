"""Situations of Flower apps: the ways of the tests, each with clip and noise at another place."""

from functools import partial

from situation import Situation, named
from test_flower_ways import BROKEN, UNSEEN, WAYS, app_of

_BROKEN_AND_UNSEEN = (
    "wrapper forgotten, random training",
    "own strategy, noise in the messages",
    "own strategy, nodes asked twice",
)
"""Broken ones that end with exit code 11."""


def rows() -> list[Situation]:
    """Return a situation for each way."""
    return named(
        Situation(
            name=way,
            kind="Flower",
            right=code != BROKEN and way not in _BROKEN_AND_UNSEEN,
            source="flower.ai, differential privacy" if "wrapper" in way or "local mod" in way else "own",
            make=partial(app_of, way),
        )
        for way, (code, *_) in WAYS.items()
    )


assert all(WAYS[way][0] == UNSEEN for way in _BROKEN_AND_UNSEEN)
