"""All deterministic checks of a foreign system: one watched run, and play-back where the system offers it."""

from typing import Any

from ..audit.check import PLAYED
from .recording import Runner
from .watch import Watched, watched

_PARTS = ("claim", "law", "replayable")


def is_runner(found: object) -> bool:
    """Whether an object is a foreign system that can be run with and without a unit. None of its parts is computed."""
    held = {*dir(type(found)), *getattr(found, "__dict__", {})}
    return not isinstance(found, type) and callable(getattr(found, "run", None)) and held.issuperset(_PARTS)


def probe(runner: Runner, *, seed: int = 0) -> Watched:
    """Watch one run of a system, and play frozen inputs through it, where it has ``watch`` and ``play_back``.

    A check that fails is a fault that was seen; checks that pass do not show that the claim holds. Raises whatever the
    system raises.
    """
    system: Any = runner
    try:
        seen = system.watch(seed) if hasattr(system, "watch") else watched(runner.run(False, seed))
    except ValueError:  # Also the words of an adapter on a training that it cannot watch.
        raise
    except Exception as error:
        error.add_note(f"raised in the watched run, seed {seed}")
        raise
    found = tuple(seen.results)
    if not hasattr(system, "play_back"):
        return Watched(results=found)
    try:
        played = tuple(system.play_back(seed).results().results)
    except ValueError as error:
        played = (PLAYED.skipped(str(error)),)
    return Watched(results=(*found, *played))
