"""Plays frozen replies through a Flower strategy and compares neighbouring ones: how far one client moves the model.

The user's strategy and mods run, and no client trains. The unit is the last node that is asked. Without it, its update
has a thousandth of the clip norm.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import FloatArray
from ..audit.check import EFFECTIVE, REPLAYED, CheckResult
from ..audit.finite import HOLDS
from ..audit.ledger import WATCHED
from ..checks.watched_run import Watched
from ..fl.laws import GaussianLaw, clip
from ..fl.layout import Layout
from ..fl.streams import seeded
from .flower_grid import (
    LocalClients,
    ProcessGrid,
    added,
    context,
    flat,
    in_process,
    innermost,
    is_training,
    largest_number,
    layout_of,
    only_arrays,
    zeros_like,
)
from .flower_hooks import QUIET, StatedNoise, cause_of_share, mend_of_share, noises_reports, stated_by_mod, stated_noise
from .flower_rounds import NOT_STARTED, StrategyRounds, starting
from .play_back import (
    Shift,
    compared_multiplier,
    deviation_of,
    finite_check,
    held_lengths,
    largest_deviation,
    over_noise,
    smallest_deviation,
)

LENGTHS = (10.0, 1e20)
"""Lengths of the unit's update, in clip norms."""
_LONG = 10.0
"""Length of other clients' updates that are clipped, in clip norms."""
_DRAWS = 16
_DIFFERENT = 1e-4
"""Level at which the noise of a tensor counts as different from that of all tensors: a few numbers say little."""
_PLACES = 64
"""Other messages of a round in which a unit is tried, at most."""
_OTHER_SEEDS, _ALIKE = 4, 0.25
"""Seeds under which a movement is repeated, and its relative difference from which it depends on the noise."""
_MOSTLY = 0.9
"""Share of a squared movement from which on one place is named."""
_ESTIMATED = 0.1
"""Relative difference from a multiplier that is estimated, more than three standard deviations of it."""
_SUM = 1e-3
"""Relative error of a sum that is rounding, as that of single precision."""


NOT_A_SUM = (
    "the change of the model is not the stated multiple of the sum of clipped updates, so it is unknown to which "
    "sum noise is added"
)


class _Started(BaseException):
    """Leaves the main function of a server app as soon as it starts its strategy."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FlowerPlay:
    """Rounds of the strategy that a server app starts, run on given updates instead of training.

    Arguments as those of ``App``.
    """

    make_server_app: Callable[[], Any]
    make_client_app: Callable[[], Any]
    nodes: int
    law: GaussianLaw | None = None
    run_config: Mapping[str, Any] = field(default_factory=dict)
    differences: bool = False
    """Whether clients send differences of models, and not models."""

    def releases(
        self, updates: Tensor, seed: int, *, examples: Sequence[float] | None = None, rounds: int = 1
    ) -> Tensor | None:
        """Return the sum that each round released, ``(rounds, d)``; None if a round released nothing.

        ``updates``: of the nodes whose replies arrive, before all mods and clips, ``(n, d)``, equal in all rounds;
        ``examples``: their numbers, ``(n,)``, 1 by default; ``seed``: of all generators. The sum is the movement of the
        model times the number of clients that the strategy states; for a mod that noises each report, it is the
        report of the last node.
        """
        weights = [1.0] * len(updates) if examples is None else list(examples)
        # Strategies of users compute with updates of up to 1e20 clip norms, and with NaN.
        with seeded(seed), in_process(), np.errstate(over="ignore", invalid="ignore"):
            rounds_ = self._started()
            arrays = self._initial(rounds_)
            clients = _Clients(self, rounds_, updates, weights)
            found = []
            for number in range(1, rounds + 1):
                stated = stated_noise(rounds_.strategy, self.law)
                scale = 1.0 if stated is None else stated.clients
                before = flat(arrays)
                replies = clients.replies(number, arrays)
                if clients.local is not None and self.law is None:
                    assert clients.report is not None
                    found.append(clients.report - before)
                    continue
                arrays = rounds_.aggregated(number, replies)
                if arrays is None:
                    return None
                found.append(scale * (flat(arrays) - before))
            return torch.stack(found)

    @cached_property
    def stated(self) -> StatedNoise:
        """The stated noise, clip norm and number of clients. Raises ValueError if nothing states any."""
        found = self.own if self.law is None else stated_noise(None, self.law)
        if found is None:
            raise ValueError("the strategy states no noise: give the noise distribution of one aggregate as law=")
        return found

    @cached_property
    def own(self) -> StatedNoise | None:
        """The noise that a mod or wrapper of Flower states; None if none does."""
        with seeded(0), in_process():
            rounds = self._started()
            local = _Clients(self, rounds).local
        return stated_noise(rounds.strategy, None) if local is None else stated_by_mod(local)

    @cached_property
    def asked(self) -> int:
        """The number of nodes that the strategy asks for updates in a round."""
        with seeded(0), in_process():
            rounds = self._started()
            return len(rounds.asked(1, self._initial(rounds), _Clients(self, rounds).grid))

    @property
    def draws_clients(self) -> bool:
        """Whether a round asks only some of the nodes; False if no round can be played."""
        try:
            return self.asked < self.nodes
        except Exception:  # Foreign strategies may refuse by any exception.
            return False

    @cached_property
    def layout(self) -> Layout:
        """The names and shapes of the model's arrays."""
        with seeded(0), in_process():
            return layout_of(self._initial(self._started()))

    @cached_property
    def largest(self) -> float:
        """The largest number that the types of all arrays of the model can represent."""
        with seeded(0), in_process():
            return largest_number(self._initial(self._started()))

    def _initial(self, rounds: StrategyRounds) -> Any:
        return self._initial_of_client if (found := rounds.initial) is None else found

    @cached_property
    def _initial_of_client(self) -> Any:
        """Asked for once, because it may take long to make a client, and outside of the generators of a play."""
        with seeded(0), in_process():
            rounds = self._started()
            return rounds.initial_of_client(_Clients(self, rounds).grid)

    def _started(self) -> StrategyRounds:
        """The rounds of a new strategy of the server app."""
        caught: list[StrategyRounds] = []

        def found(rounds: StrategyRounds) -> None:
            caught.append(rounds)
            raise _Started

        grid = ProcessGrid(LocalClients(None), self.nodes, run_config={}, answered=lambda *_: None)
        with starting(found):
            try:
                self.make_server_app()(grid, context(self.run_config))
            except _Started:
                return caught[0]
        raise TypeError(NOT_STARTED)


MADE_BEFORE = (
    "make_client_app must make a new ClientApp and register its functions: a ClientApp takes its mods when it is "
    "made, and frozen replies and the canary enter through a mod; the text 'package.module:app' makes the app of a "
    "module again"
)
"""Why an app that was made before cannot be played."""


class _Clients:
    """The client side of a play: the frozen updates pass the user's mods, in the order of the messages."""

    def __init__(
        self, play: FlowerPlay, rounds: StrategyRounds, updates: Tensor | None = None, examples: Sequence[float] = ()
    ) -> None:
        self._play, self._rounds = play, rounds
        self._updates, self._examples, self._number = updates, examples, 0
        self.local: Any = None
        self.report: Tensor | None = None
        self._received: tuple[Any, list[Any]] = (None, [])
        with innermost(self._frozen, self._see) as self._made:
            client = play.make_client_app()
        clients = LocalClients(client, copied=lambda message: message)
        self.grid = ProcessGrid(clients, play.nodes, run_config=play.run_config, answered=self._answered)

    def replies(self, number: int, arrays: Any) -> Any:
        """Return the replies of the first nodes that are asked, one for each update; the others never answer."""
        if not self._made:
            raise ValueError(MADE_BEFORE)
        self._number = 0
        asked = self._rounds.asked(number, arrays, self.grid)
        return self._rounds.replies(asked, len(self._examples), self.grid)

    def _see(self, mod: Any) -> None:
        if noises_reports(mod):
            self.local = mod

    def _frozen(self, message: Any, context: Any, call_next: Any) -> Any:
        if not is_training(message):
            return call_next(message, context)
        assert self._updates is not None
        received = only_arrays(message.content)[1]
        update, weight = self._updates[self._number].double(), self._examples[self._number]
        self._number += 1
        if self._received[0] is not received:
            # Read once in a round, because all nodes receive one record.
            start = zeros_like(received) if self._play.differences else received
            self._received = received, start.to_numpy_ndarrays()
        return self._rounds.frozen(message, added(received, update, arrays=self._received[1]), weight)

    def _answered(self, asked: Any, reply: Any) -> Any:
        if self.local is not None and is_training(asked) and reply.has_content():
            # Read now, because servers of the older interface empty replies.
            self.report = flat(only_arrays(reply.content)[1])
        return reply


@dataclass(frozen=True, kw_only=True)
class Replies:
    """A choice of which replies of a round arrive, and with which numbers of examples.

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

    def __post_init__(self) -> None:
        if not 0 < self.arrived <= 1 or self.rounds < 1 or min(self.examples) < 0:
            raise ValueError(
                f"arrived must be in (0, 1], rounds >= 1 and all examples >= 0, got {self.arrived}, "
                f"{self.rounds} and {self.examples}"
            )


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
    """Rounds of one strategy, run again on chosen replies (play-back).

    Args:
        play: the strategy.
        seed: of all these rounds.
        lengths: of the unit's update, in clip norms.
        draws: of the noise, >= 2.
        cases: of replies for which the claim must hold.
        unplantable: why frozen replies show nothing of the noise; empty where they do.
    """

    play: FlowerPlay
    seed: int = 0
    lengths: tuple[float, ...] = LENGTHS
    draws: int = _DRAWS
    cases: tuple[Replies, ...] = CASES
    unplantable: str = ""

    def shifts(self, case: Replies) -> tuple[Shift, ...]:
        """Return how far each unit moves the released models, largest movement first; empty if nothing is released.

        In standard deviations of the noise of each tensor, for several rounds divided by the root of their number.
        """
        found = [
            Shift(over_noise=moved, witness=words) for words, moved in self._moved(case, deviation_of) if moved >= 0
        ]
        return tuple(sorted(found, key=lambda one: -one.over_noise))

    def effective_multiplier(self, case: Replies = EQUAL) -> float:
        """Return the effective noise multiplier of a round: 1 over the largest movement that a unit causes.

        Infinite where no unit moves anything, and where the strategy releases nothing.
        """
        shifts = self.shifts(case)
        return 1 / shifts[0].over_noise if shifts and shifts[0].over_noise > 0 else math.inf

    def worst(self, case: Replies = EQUAL) -> tuple[Tensor, Tensor, Tensor]:
        """Return the pair of neighbouring replies with the largest difference of the released models.

        Updates ``(n, d)`` with and without the unit, and the direction ``(d,)`` of the movement in the last round.
        Raises ValueError where nothing is released or moves.
        """
        found = [
            (float(torch.linalg.vector_norm(moved[-1])), rows, others, moved[-1])
            for _, rows, others, moved in self._kept(case)
        ]
        length, rows, others, moved = max(found, key=lambda one: one[0], default=(0.0, None, None, None))
        if rows is None or others is None or moved is None or length == 0:
            raise ValueError(f"no unit changes the release, with {case.words}")
        return rows, others, moved / length

    def released(self, updates: Tensor, case: Replies, seed: int) -> Tensor | None:
        """Play updates ``(n, d)``, given in clip norms; return the releases ``(rounds, d)``, or None if a round
        releases nothing.
        """
        unit, others = case.examples
        examples = [float(others)] * (len(updates) - 1) + [float(unit)]
        rows = updates * self.play.stated.clip_norm
        return self.play.releases(rows, seed, examples=examples, rounds=case.rounds)

    @cached_property
    def adds_up(self) -> bool:
        """Whether the model moves in two rounds by the stated multiple of the sum of all clipped updates. Equal seeds
        give equal noise, so that differences of replies show this exactly.
        """
        case, unit = Replies(words="two rounds", rounds=2), _LONG * self._directions[1][None]
        for _, others in self._surroundings(self._count(EQUAL)):
            rows, without = (torch.cat([others, one]) for one in (unit, QUIET * self._directions[0][None]))
            released = [self.released(one, case, self.seed) for one in (rows, without)]
            if released[0] is None or released[1] is None:
                return False
            expected = (clip(rows, 1.0).sum(0) - clip(without, 1.0).sum(0)) * self.play.stated.clip_norm
            error = torch.linalg.vector_norm(released[0] - released[1] - expected, dim=1).max()
            if not bool(error <= _SUM * torch.linalg.vector_norm(expected)):
                return False
        return True

    def results(self) -> Watched:
        """Return the results of all checks, with one noise multiplier per case."""
        try:
            replayed = self._replayed()
        except Exception as error:  # Foreign strategies may refuse frozen replies by any exception.
            words = f"the strategy raises {type(error).__name__}: {error}"
            return Watched(results=(REPLAYED.skipped(words),))
        if not replayed:
            words = (
                "two repetitions of a round with one seed differ: the noise cannot be seeded, or the app keeps state"
            )
            return Watched(results=(REPLAYED.skipped(words),))
        done = REPLAYED.passes("two calls with one seed give equal results")
        return Watched(
            results=(done, *(self._multiplier(case) for case in self.cases), *self._left_out(), self._finite())
        )

    def _left_out(self) -> list[CheckResult]:
        """One result for each of ``CASES`` that the user ruled out."""
        played = {(one.examples, one.arrived, one.rounds) for one in self.cases}
        left = [one for one in CASES if (one.examples, one.arrived, one.rounds) not in played]
        # Any training may have two rounds: that they were not played limits no deployment.
        ruled_out = [one.words for one in left if one.rounds == 1]
        which = f"replies were not tested that `cases` rules out ({'; '.join(ruled_out)})"
        words = f"{which}: {HOLDS} deployments in which none of them occurs"
        return [EFFECTIVE.of(one.words).skipped(words if one.rounds == 1 else "left out of `cases`") for one in left]

    def _multiplier(self, case: Replies) -> CheckResult:
        name, claimed = EFFECTIVE.of(case.words), self.play.stated.noise_multiplier
        if self.unplantable:
            return name.skipped(self.unplantable)
        try:
            shifts = self.shifts(case)
            at = WATCHED.level("watched run", len(shifts) + 1)
            certain = max((moved for _, moved in self._moved(case, lambda v: largest_deviation(v, at))), default=0.0)
        except Exception as error:  # Foreign strategies may refuse replies by any exception.
            words = f"the strategy raises {type(error).__name__}: {error}"
            return name.skipped(words)
        if not shifts:
            return name.skipped("the strategy releases nothing")
        found = compared_multiplier(name, shifts, certain, self.effective_multiplier(case), claimed)
        if found.passed is False and self._has_own_seed:
            return name.skipped(
                "noise differs between rounds, but not when a round is repeated: it depends on the number of the "
                "round, or on a secret drawn once per process"
            )
        if found.passed is False and self._depends_on_noise(case):
            return name.skipped(
                "how far a unit changes the model depends on the noise, for example because the model is rounded "
                "afterwards"
            )
        if found.passed is False and (where := self._moved_place(case)):
            found = replace(found, witness=f"{found.witness}; {where}")
        return self._explained(case, found) if found.passed is False else found

    def _explained(self, case: Replies, found: CheckResult) -> CheckResult:
        """Name the cause where the unit's share of the replies explains the multiplier."""
        (unit, others), stated, multiplier = case.examples, self.play.stated, self.effective_multiplier(case)
        if unit == 0 or multiplier == 0:
            return found
        examples, length = [others] * self._count(case) + [unit], stated.noise_multiplier / multiplier
        cause = cause_of_share(examples, stated.clients, length, within=_ESTIMATED)
        ruled_out = "; or state by `cases` of App which replies can occur in the deployment"
        return replace(found, cause=cause, mend=mend_of_share(cause) + ruled_out) if cause else found

    def _moved_place(self, case: Replies) -> str:
        """The array or number that is hardly clipped, where a unit moves one of several by more than the clip norm."""
        rows, _, direction = self.worst(case)
        moved = max(float(torch.linalg.vector_norm(found[-1])) for _, _, _, found in self._kept(case))
        if moved <= self.play.stated.clip_norm * (1 + _ALIKE):
            return ""
        index = int(direction.abs().argmax())
        name, place = next(
            (one, place) for one, place in self.play.layout.slices.items() if place.start <= index < place.stop
        )
        if direction[index] ** 2 > _MOSTLY and torch.count_nonzero(rows[-1]) > 1:
            return f"number {index - place.start} of the array {name} moves most"
        return f"the array {name} moves most" if float(direction[place].square().sum()) > _MOSTLY else ""

    @cached_property
    def _has_own_seed(self) -> bool:
        """Whether there is noise that no seed of a play changes, and that differs between rounds."""
        case, quiet = (
            Replies(words="two rounds", rounds=2),
            QUIET * self._directions[0].repeat(self._count(EQUAL) + 1, 1),
        )
        drawn = [self.released(quiet, case, self.seed + n) for n in range(_OTHER_SEEDS)]
        found = torch.stack([one for one in drawn if one is not None])
        if len(found) < _OTHER_SEEDS:
            return False
        noise = found[0] - quiet.sum(0) * self.play.stated.clip_norm
        size, least = float(torch.linalg.vector_norm(noise)), _SUM * self.play.stated.clip_norm
        same = float((found - found[0]).abs().max()) <= _SUM * size
        return size > least and same and float(torch.linalg.vector_norm(noise[1] - noise[0])) > _ALIKE * size

    def _depends_on_noise(self, case: Replies) -> bool:
        """Whether a unit moves the model otherwise under other seeds: what is done after the noise is not linear."""
        rows, without, _ = self.worst(case)
        moved = []
        for seed in range(self.seed, self.seed + _OTHER_SEEDS):
            pair = [self.released(one, case, seed) for one in (rows, without)]
            if pair[0] is None or pair[1] is None:
                return False
            moved.append(pair[0] - pair[1])
        length = float(torch.linalg.vector_norm(moved[0]))
        return max(float(torch.linalg.vector_norm(one - moved[0])) for one in moved) > _ALIKE * length

    def _finite(self) -> CheckResult:
        """What updates that are zero or no numbers do."""
        return finite_check(
            lambda updates: self.released(updates, EQUAL, self.seed),
            dict(self._surroundings(self._count(EQUAL)))["quiet"],
            {"an update of zero": 0.0, "an update of NaN": math.nan, "an update of infinite": math.inf},
            where="model",
            whom="clients",
        )

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
            # Mods and strategies may treat nodes differently.
            for place in range(min(len(others), _PLACES)) if around == "quiet" and case == EQUAL else ():
                rows = without.clone()
                rows[place] = _LONG * self._directions[0]
                released = self.released(rows, case, self.seed)
                if released is not None:
                    words = f"an update of {_LONG:g} clip norms in message {place + 1}"
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
        """Length of a movement ``(rounds, d)`` in standard deviations of each tensor's noise, over the rounds' root."""
        layout = self.play.layout
        rounds = zip(moved, noise.transpose(1, 0, 2), strict=True)
        found = [over_noise(row, layout, partial(_scale, drawn, deviation, layout)) for row, drawn in rounds]
        return math.sqrt(sum(one**2 for one in found) / len(found))


def _scale(noise: FloatArray, deviation: Callable[[FloatArray], float], layout: Layout, name: str) -> float:
    """The deviation of one tensor's noise ``(draws, d)``: that of all tensors, unless the tensor's differs from it."""
    own, together = noise[:, layout.slices[name]], deviation_of(noise)
    low, high = smallest_deviation(own, _DIFFERENT), largest_deviation(own, _DIFFERENT)
    return deviation(noise) if low <= together <= high else deviation(own)
