"""A foreign system that can be run with and without one unit, and all its deterministic checks: those of one watched
run, and play-back if the system offers it.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from ..audit.check import PLAYED
from ..audit.claim import Claim
from ..checks.training_record import Plant, RecordError, TrainingRecord, equal_releases
from ..checks.watched_run import Watched, watched
from ..fl.laws import GaussianLaw


class Runner(Protocol):
    """The interface of a foreign system that can be run with and without one unit.

    Equal ``seed`` means equal everything, where ``replayable`` says so.
    """

    @property
    def claim(self) -> Claim:
        """The privacy claim that the system's accountant implies."""
        ...

    @property
    def law(self) -> GaussianLaw | None:
        """The noise distribution (law) of one release; None if it differs between steps."""
        ...

    @property
    def replayable(self) -> bool:
        """Whether two runs with the same seed are equal."""
        ...

    def run(self, member: bool, seed: int, *, plant: Plant | None = None) -> TrainingRecord:
        """Run the system and return what was recorded. ``member``: whether the planted unit takes part."""
        ...


def why_not_planted(runner: Runner) -> str:
    """Return why no unit (canary) can be planted in a system, as its optional attribute ``unplantable`` states; empty
    if one can.
    """
    return str(getattr(runner, "unplantable", ""))


def check_stated(runner: Runner) -> None:
    """Raise ValueError unless a system states a claim, and either the noise distribution of its releases or None."""
    for name, kinds, words in (
        ("claim", Claim, "a Claim"),
        ("law", GaussianLaw | None, "a GaussianLaw, or None if the noise differs between steps"),
    ):
        if not isinstance(found := getattr(runner, name), kinds):
            raise ValueError(f"{name} of {type(runner).__name__} must be {words}, got {found!r}")


def run_once(runner: Runner, member: bool, seed: int, *, plant: Plant | None = None, where: str) -> TrainingRecord:
    """Run a system once; ``where`` names the run in error messages, such as ``run 3 with the planted unit``.

    Raises:
        ValueError: a method ``run`` that does not take these arguments, or returns anything but a ``TrainingRecord``
            with fields of the right kinds.
        Exception: whatever the system raises, with a note that names the run.
    """
    name = f"run of {type(runner).__name__}"
    try:
        inspect.signature(runner.run).bind(member, seed, plant=plant)
    except TypeError:
        signature = inspect.signature(runner.run)
        raise ValueError(f"{name} must take (member, seed, *, plant=None), but its signature is {signature}") from None
    try:
        found = runner.run(member, seed, plant=plant)
    except SystemExit as error:
        raise RuntimeError(f"{name} ends the process by sys.exit({error.code!r}) in {where}") from error
    except RecordError:  # It says all, and is no fault inside of the system.
        raise
    except Exception as error:
        error.add_note(f"raised in {where}, seed {seed}")
        raise
    if not isinstance(found, TrainingRecord):
        raise ValueError(f"{name} must return a TrainingRecord, got {type(found).__name__} in {where}")
    return found


def is_replayable(
    first: TrainingRecord, run: Callable[..., TrainingRecord], *, same: Callable[[TrainingRecord, TrainingRecord], bool]
) -> bool:
    """Return whether two runs with the same seed release the same numbers; ``first``: the run with seed 0.

    Raises ValueError where a run with another seed is the ``same``: the system seeds its generators itself, so that its
    runs are not independent of each other.
    """
    again, other = run(seed=0), run(seed=1)
    if same(first, other):
        raise ValueError(
            "runs with two seeds have the same noise, because the system sets its own seeds: let the audit set them"
        )
    return equal_releases(first, again)


def watch(runner: Runner, *, seed: int = 0) -> Watched:
    """Watch one run of a system, and play frozen inputs through it; each is skipped if the system lacks ``watch`` or
    ``play_back``.

    A check that fails is a fault that was seen; checks that pass do not show that the claim holds. Raises whatever the
    system raises, and ValueError as ``check_stated`` and ``run_once``.
    """
    system: Any = runner
    if not hasattr(system, "watch"):
        # Adapters with a watch of their own take trainings too whose claim cannot be stated, such as without noise.
        check_stated(runner)
        found = watched(run_once(runner, False, seed, where="the watched run"))
        found = replace(found, sampled=found.sampled or (runner.law is not None and runner.law.rate < 1))
    else:
        try:
            found = system.watch(seed)
        except SystemExit as error:
            raise RuntimeError(f"the system ends the process by sys.exit({error.code!r}) in the watched run") from error
        except ValueError:  # Also the words of an adapter on a training that it cannot watch.
            raise
        except Exception as error:
            error.add_note(f"raised in the watched run, seed {seed}")
            raise
    if not hasattr(system, "play_back"):
        return found
    try:
        played = system.play_back(seed).results().results
    except ValueError as error:
        played = (PLAYED.skipped(str(error)),)
    return replace(found, results=(*found.results, *played))
