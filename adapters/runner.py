"""A foreign system that can be run with and without one unit, and all its deterministic checks: one watched run, and
play-back where the system offers it.
"""

from typing import Any, Protocol

from ..audit.check import PLAYED
from ..audit.claim import Claim
from ..checks.training_record import Plant, TrainingRecord
from ..checks.watched_run import Watched, watched
from ..fl.laws import GaussianLaw

_PARTS = ("claim", "law", "replayable")


class Runner(Protocol):
    """A foreign system that can be run with and without one unit.

    Equal ``seed`` means equal everything, where ``replayable`` says so.
    """

    @property
    def claim(self) -> Claim:
        """The claim that the system's accountant implies."""
        ...

    @property
    def law(self) -> GaussianLaw | None:
        """The law of one release; None where it is not the same in all steps."""
        ...

    @property
    def replayable(self) -> bool:
        """Whether two runs with one seed are equal."""
        ...

    def run(self, member: bool, seed: int, *, noise: int = 0, plant: Plant | None = None) -> TrainingRecord:
        """Run the system and return what was seen.

        ``member``: whether the planted unit takes part. ``noise``: another number gives other noise of the mechanism,
        with all else equal.
        """
        ...


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
