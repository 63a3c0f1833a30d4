"""Trials of two arms, without and with the unit: a pilot fixes events, and one event is counted in fresh runs at
planned interim looks.

This is the loop of every statistical test of two arms, of a mechanism or of all that an observer receives. It assumes
nothing but that runs are independent, which ``trial_stream.dependence`` tests.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from numpy.typing import NDArray

from ..arrays import FloatArray
from ..threshold import CountingPlan
from .candidates import candidates
from .scores import Score
from .search import Event, fix_event

Found = TypeVar("Found")
Look = TypeVar("Look")


Counts = TypeVar("Counts", bound=tuple[Any, ...])
Counts_co = TypeVar("Counts_co", bound=tuple[Any, ...], covariant=True)


class Counted(NamedTuple, Generic[Counts]):
    """The counts of an event in ``n0`` runs without and ``n1`` runs with the unit, and the level of their test."""

    out: Counts
    within: Counts
    n0: int
    n1: int
    alpha: float


class Counting(Protocol[Counts_co]):
    """The interface of one or several events, which counts how many outputs lie in each."""

    def guesses(self, outputs: NDArray[Any]) -> Counts_co:
        """Return how many outputs ``(n, ...)`` fall into each event."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trials:
    """Independent runs on two inputs (arms); counts how often an event occurs in each.

    Args:
        draw: (arm, runs) -> outputs ``(n, ...)`` of fresh runs in chunks: arm 0 without the unit, arm 1 with it.
        looks: (runs without, runs with the unit) after which the counts are looked at, ascending.
        alpha: error probability of all looks together.
    """

    draw: Callable[[int, int], Iterable[NDArray[Any]]]
    looks: tuple[tuple[int, int], ...]
    alpha: float

    def count(
        self,
        event: "Counting[Counts]",
        measured: Callable[[Counted[Counts]], Found],
        stop: Callable[[Found], bool] = lambda found: False,
    ) -> Found:
        """Count one or several events in fresh runs, look by look. Return the result of ``measured`` on the counts at
        the last look, or at the look at which ``stop`` returns True.
        """
        guesses: dict[int, Any] = {}
        made = (0, 0)

        def at(look: tuple[int, int], share: float) -> Found:
            nonlocal made
            for arm in (0, 1):
                for outputs in self.draw(arm, look[arm] - made[arm]):
                    new = event.guesses(outputs)
                    before = guesses.get(arm, (0,) * len(new))
                    kind: Any = type(new)
                    guesses[arm] = kind(*map(sum, zip(before, new, strict=True)))
            made = look
            return measured(Counted(guesses[0], guesses[1], *look, share))

        return at_looks(self.looks, self.alpha, at, stop)


def at_looks(
    looks: Sequence[Look], alpha: float, measured: Callable[[Look, float], Found], stop: Callable[[Found], bool]
) -> Found:
    """Return the result of ``measured`` at the look at which a test stops, or at the last one.

    Each look has an equal share of ``alpha``, so that the bounds of all of them hold at once (union bound): stopping at
    any of them, for any reason, costs nothing more. Raises ValueError where no look is planned.
    """
    if not looks:
        raise ValueError("looks must hold at least one number of trials at which results are tested, got none")
    for look in looks:
        found = measured(look, alpha / len(looks))
        if stop(found):
            break
    return found


class ScoredEvent(NamedTuple):
    """An event, with the scores (n,) of the pilot outputs with and without the unit from which it was chosen."""

    event: Event
    member: FloatArray
    nonmember: FloatArray


def scored_events(
    out: NDArray[Any],
    within: NDArray[Any],
    plan: CountingPlan,
    inputs: tuple[Any, Any] = (0, 1),
    *,
    learn: int | None = None,
    thorough: bool = True,
    more: Callable[[NDArray[Any], NDArray[Any]], Iterable[Score]] = lambda out, within: (),
) -> list[ScoredEvent]:
    """Learn scores on the first outputs of a pilot, and fix each score's event on the remaining outputs.

    Args:
        out, within: outputs ``(n, ...)`` without and with the unit.
        inputs, thorough: as for ``candidates``.
        learn: how many outputs of each arm teach scores; by default half of the arm with fewer.
        more: further scores, from the outputs without and with the unit that teach them.
    """
    first = min(len(out), len(within)) // 2 if learn is None else learn
    taught_out, taught_within, out, within = map(_frozen, (out[:first], within[:first], out[first:], within[first:]))
    taught = candidates(taught_within, taught_out, inputs, thorough=thorough, low_bits=False)
    return [_fixed(score, within, out, plan) for score in (*taught, *more(taught_out, taught_within))]


def _frozen(outputs: NDArray[Any]) -> NDArray[Any]:
    """A copy that cannot change, so that no score copies it again."""
    own = outputs.copy()
    own.flags.writeable = False
    return own


def _fixed(score: Score, within: NDArray[Any], out: NDArray[Any], plan: CountingPlan) -> ScoredEvent:
    scores = score.score(within), score.score(out)
    return ScoredEvent(fix_event(score, *scores, plan), *scores)
