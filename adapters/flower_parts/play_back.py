"""Plays frozen replies through a Flower strategy and compares neighbouring ones: how far one client moves the model.

The unit is the last node that is asked. Without it, its update has a thousandth of the clip norm.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.check import EFFECTIVE, REPLAYED, Check, CheckResult
from ...audit.ledger import WATCHED
from ..checks.finite import finite_check
from ..play_back import Shift, deviation_of, held_lengths, largest_deviation, smallest_deviation
from ..watch import Watched
from .hooks import QUIET
from .play import FlowerPlay

LENGTHS = (10.0, 1e20)
"""Lengths of the unit's update, in clip norms."""
_LONG = 10.0
"""Length of other clients' updates that are clipped, in clip norms."""
_SLACK = 5e-3
_DRAWS = 16
_DIFFERENT = 1e-4
"""Level at which the noise of a tensor counts as different from that of all tensors: a few numbers say little."""


@dataclass(frozen=True, kw_only=True)
class Replies:
    """Which replies of a round arrive, and with which numbers of examples.

    Args:
        words: as printed.
        examples: of the unit and of every other client, >= 0.
        arrived: share of the replies that arrive, in (0, 1]; the unit's is among them.
        rounds: in each of which the unit takes part.
    """

    words: str
    examples: tuple[float, float] = (1, 1)
    arrived: float = 1.0
    rounds: int = 1


EQUAL = Replies(words="equal examples")
CASES = (
    EQUAL,
    Replies(words="the unit has ten times the examples", examples=(10, 1)),
    Replies(words="the other clients have no examples", examples=(1, 0)),
    Replies(words="half of the replies", arrived=0.5),
    Replies(words="two rounds", rounds=2),
)


@dataclass(frozen=True, eq=False)
class FlowerPlayBack:
    """The plays of one strategy.

    Args:
        play: the strategy.
        seed: of all plays.
        lengths: of the unit's update, in clip norms.
        draws: of the noise, >= 2.
        cases: of replies for which the claim must hold.
    """

    play: FlowerPlay
    seed: int = 0
    lengths: tuple[float, ...] = LENGTHS
    draws: int = _DRAWS
    cases: tuple[Replies, ...] = CASES

    def shifts(self, case: Replies) -> tuple[Shift, ...]:
        """Return how far each unit moves the released models, the furthest first; none where nothing is released.

        In standard deviations of the noise of each tensor, for several rounds divided by the root of their number.
        """
        found = [
            Shift(over_noise=moved, witness=words) for words, moved in self._moved(case, deviation_of) if moved >= 0
        ]
        return tuple(sorted(found, key=lambda one: -one.over_noise))

    def effective_multiplier(self, case: Replies = EQUAL) -> float:
        """Return the noise multiplier that a round really has: 1 over the largest movement.

        Infinite where no unit moves anything, and where the strategy releases nothing.
        """
        shifts = self.shifts(case)
        return 1 / shifts[0].over_noise if shifts and shifts[0].over_noise > 0 else math.inf

    def worst(self, case: Replies = EQUAL) -> tuple[Tensor, Tensor, Tensor]:
        """Return the pair of neighbouring replies that differ most.

        Updates ``(n, d)`` with and without the unit, and the direction ``(d,)`` of the movement in the last round.
        Raises ValueError where nothing is released or moves.
        """
        found = [
            (float(torch.linalg.vector_norm(moved[-1])), rows, others, moved[-1])
            for _, rows, others, moved in self._kept(case)
        ]
        length, rows, others, moved = max(found, key=lambda one: one[0], default=(0.0, None, None, None))
        if rows is None or others is None or moved is None or length == 0:
            raise ValueError(f"no unit moves what is released, with {case.words}")
        return rows, others, moved / length

    def released(self, updates: Tensor, case: Replies, seed: int) -> Tensor | None:
        """Play updates ``(n, d)`` in clip norms; ``(rounds, d)``, or None where a round releases nothing."""
        unit, others = case.examples
        examples = [float(others)] * (len(updates) - 1) + [float(unit)]
        rows = updates * self.play.stated.clip_norm
        return self.play.releases(rows, seed, examples=examples, rounds=case.rounds)

    def results(self) -> Watched:
        """Return the results of all checks, one multiplier per case."""
        try:
            replayed = self._replayed()
        except Exception as error:  # Foreign strategies may refuse frozen replies by any exception.
            words = f"the strategy raises {type(error).__name__}: {error}"
            return Watched(results=(REPLAYED.skipped(words),))
        if not replayed:
            words = "two plays with one seed differ: noise that cannot be seeded, or state between runs"
            return Watched(results=(REPLAYED.skipped(words),))
        done = REPLAYED.passes("two plays with one seed are equal")
        return Watched(results=(done, *(self._multiplier(case) for case in self.cases), self._finite()))

    def _multiplier(self, case: Replies) -> CheckResult:
        name, claimed = Check(f"{EFFECTIVE}, {case.words}"), self.play.stated.noise_multiplier
        try:
            shifts = self.shifts(case)
            at = WATCHED.level("watched run", len(shifts) + 1)
            certain = max((moved for _, moved in self._moved(case, lambda v: largest_deviation(v, at))), default=0.0)
        except Exception as error:  # Foreign strategies may refuse replies by any exception.
            words = f"the strategy raises {type(error).__name__}: {error}"
            return name.skipped(words)
        if not shifts:
            return name.skipped("the strategy releases nothing")
        bound = math.inf if certain == 0 else 1 / certain
        estimate = self.effective_multiplier(case)
        if bound < claimed * (1 - _SLACK):
            measured = min(estimate, bound)
            return name.at_least(measured, claimed, unit="sensitivities", witness=shifts[0].witness)
        words = f"of {len(shifts)} units; estimated {estimate:.4g}, claimed {claimed:.4g}"
        return name.passes(words)

    def _finite(self) -> CheckResult:
        """What updates that are zero or no numbers do."""
        around = dict(self._surroundings(self._count(EQUAL)))["quiet"]

        def tried(value: float) -> Tensor | None:
            row = torch.zeros(1, around.shape[1], dtype=torch.float64)
            row[0, 0] = value
            return self.released(torch.cat([around, row]), EQUAL, self.seed)

        updates = (("zero", 0.0), ("NaN", math.nan), ("infinite", math.inf))
        tries = {f"an update of {name}": partial(tried, value) for name, value in updates}
        return finite_check(tries, where="model", otherwise="clients that cannot send such updates")

    def _replayed(self) -> bool:
        rows = dict(self._surroundings(self._count(EQUAL) + 1))["split"]
        one, other = (self.released(rows, EQUAL, self.seed) for _ in range(2))
        return (one is None and other is None) or (one is not None and other is not None and torch.equal(one, other))

    def _count(self, case: Replies) -> int:
        """The number of other replies."""
        return max(1, math.ceil(case.arrived * self.play.asked)) - 1

    def _surroundings(self, count: int) -> Iterator[tuple[str, Tensor]]:
        """Updates of the others ``(count, d)`` by name, with lengths in clip norms."""
        first, even = self._directions
        signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(count)[:count, None]
        yield "quiet", QUIET * first.repeat(count, 1)
        yield "clipped", _LONG * first.repeat(count, 1)
        yield "split", _LONG * signs * first
        yield "spread", _LONG * signs * even

    def _units(self) -> Iterator[tuple[str, Tensor]]:
        first, even = self._directions
        for length in held_lengths(self.lengths, self.play.largest / self.play.stated.clip_norm):
            for sign in (1, -1):
                words = f"an update of {sign * length:g} clip norms"
                yield f"{words} in the first coordinate", sign * length * first
                yield f"{words} in all tensors", sign * length * even
        slices = {name: place for name, place in self.play.layout.slices.items() if place.stop > place.start}
        for name, place in slices.items() if len(slices) > 1 else ():
            row = torch.zeros_like(even)
            row[place] = 1 / math.sqrt(place.stop - place.start)
            yield f"an update of {_LONG:g} clip norms in {name}", _LONG * row

    @cached_property
    def _directions(self) -> tuple[Tensor, Tensor]:
        dim = self.play.layout.dim
        first = torch.zeros(dim, dtype=torch.float64)
        first[0] = 1
        return first, torch.full((dim,), dim**-0.5, dtype=torch.float64)

    def _pairs(self, case: Replies) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
        """Words, updates with and without the unit, and the movement ``(rounds, d)``."""
        for around, others in self._surroundings(self._count(case)):
            without = torch.cat([others, QUIET * self._directions[0][None]])
            quiet = self.released(without, case, self.seed)
            if quiet is None:
                continue
            for words, unit in self._units():
                rows = torch.cat([others, unit[None]])
                released = self.released(rows, case, self.seed)
                if released is not None:
                    yield f"{words}, others {around}", rows, without, released - quiet

    def _moved(self, case: Replies, deviation: Callable[[FloatArray], float]) -> Iterator[tuple[str, float]]:
        # The size of noise may depend on whether updates are clipped; by what is added up it is measured once.
        around = dict(self._surroundings(self._count(case)))
        for words, _, _, moved in self._kept(case):
            name = "quiet" if words.endswith("quiet") else "clipped"
            yield words, self._over(moved, self._noise(case, around[name]), deviation)

    def _kept(self, case: Replies) -> list[tuple[str, Tensor, Tensor, Tensor]]:
        if case not in self._plays:
            self._plays[case] = list(self._pairs(case))
        return self._plays[case]

    @cached_property
    def _plays(self) -> dict[Replies, list[tuple[str, Tensor, Tensor, Tensor]]]:
        return {}

    @cached_property
    def _noises(self) -> dict[tuple[Replies, bytes], FloatArray]:
        return {}

    def _noise(self, case: Replies, rows: Tensor) -> FloatArray:
        """Draws of the noise less their mean, ``(draws, rounds, d)``."""
        key = case, rows.numpy().tobytes()
        if key not in self._noises:
            updates = torch.cat([rows, QUIET * self._directions[0][None]])
            drawn = [self.released(updates, case, self.seed + 1 + n) for n in range(self.draws)]
            values = np.stack([one.numpy() for one in drawn if one is not None])
            self._noises[key] = (values - values.mean(0)) * math.sqrt(len(values) / (len(values) - 1))
        return self._noises[key]

    def _over(self, moved: Tensor, noise: FloatArray, deviation: Callable[[FloatArray], float]) -> float:
        """Length of a movement in standard deviations of each tensor's noise; infinite where it is no number."""
        if not bool(moved.isfinite().all()):
            return math.inf
        total = 0.0
        for number, row in enumerate(moved):
            for place in self.play.layout.slices.values():
                length = float(torch.linalg.vector_norm(row[place]))
                if length > 0:
                    scale = _scale(noise[:, number], place, deviation)
                    total += math.inf if scale == 0 else (length / scale) ** 2
        return math.sqrt(total / len(moved))


def _scale(noise: FloatArray, place: slice, deviation: Callable[[FloatArray], float]) -> float:
    """The deviation of one tensor's noise ``(draws, d)``: that of all tensors, unless the tensor's differs from it."""
    own, together = noise[:, place], deviation_of(noise)
    low, high = smallest_deviation(own, _DIFFERENT), largest_deviation(own, _DIFFERENT)
    return deviation(noise) if low <= together <= high else deviation(own)
