"""Compare a privacy claim with how far one unit moves numbers of the public state, and arrays sent with reports.

Hold against the claim how often a number exceeds a threshold with and without one unit that moves it far over its
noise.

The numbers are those of the public state after one round, and the size of a release's noise: a clip norm or a noise
scale that follows the raw data without noise of its own shows the unit. Single runs with equal draws select suspects.
Of a suspect, the threshold is chosen in some runs of other noise, and exceeding it is counted in others, so that the
epsilon is an exact lower bound whatever the noise's distribution. A correct defense fails once in 10^7 checks.

Hold against the claim how far one unit moves arrays that are sent with reports, over the noise of these arrays.

Counts, statistics of inputs and answers to queries may travel with a report, with noise of their own. Runs with equal
draws show how far a unit moves them; runs with other noise show how large their noise is. All rounds are summed up by
one number, so that an array that is sent once, kept, or averaged counts as what it is.

The shape of noise far out cannot be seen in some hundred runs. So noise must look Gaussian, and is then given the tails
of Student's distribution with five degrees of freedom, which are far heavier, or of Laplace's. The event that bounds
epsilon is crossing the whole way of the move. Where the noise is Gaussian the true epsilon is larger, and a fault that
is less gross is left to the trials of everything received.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from scipy.special import stdtr
from scipy.stats import beta, chi2, kstest

from ..audit.arrays import BoolArray, FloatArray
from ..audit.binomial import upper_bound
from ..audit.check import ODDS, SIDE_ARRAYS, CheckResult
from ..audit.claim import Adjacency, Unit
from ..audit.ledger import SUITE
from ..audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED
from ..fl.channels import SIDE, Channels, changes_broadcast
from ..fl.replay import ManyRuns
from .canaries import JOINT
from .neighbours import ReplaySetup, RunPair

_FAR = 4.0
"""Multiple of the noise of a few runs from which a number is a suspect."""
_LOUDER = 1.2
"""Factor of the noise of equal draws from which its size is a suspect."""
_LEARNT, _APART = 64, 3.0
"""Runs of each kind from which a threshold is chosen, and standard deviations of both kinds between their means."""
_SUSPECTS, _NUMBERS, _AT_ONCE = 4, 2**26, 2**22
"""Suspects that are counted at most, and numbers of rows of clients or samples of all runs and of one batch."""

Many = Callable[[int, int], tuple[ManyRuns, ManyRuns]]
"""From the number of a noise and the number of runs, runs of two rounds without and with the unit."""


@dataclass(kw_only=True)
class EventOdds:
    """A check of released numbers that a unit changes; ``add`` compares a pair of runs, and ``results`` returns the
    check.

    ``setup``: with cohorts and lots as the plan draws them.
    """

    setup: ReplaySetup
    suspects: int = 0
    found: list[CheckResult] = field(default_factory=list)
    reason: str = ""
    _known: set[str] = field(default_factory=set)

    @property
    def released(self) -> bool:
        """Whether the size of a release's noise is compared, because the observer receives a sum or a client's
        report.
        """
        rank = self.setup.claim.observer.rank
        sees = rank not in (SHUFFLED.rank, FINAL_MODEL.rank)
        return sees and not (rank < AGGREGATE.rank and changes_broadcast(self.setup.protection))

    @property
    def needed(self) -> int:
        """The number of runs per arm with which an event that always occurs in one arm and never in the other refutes
        the claim.
        """
        claim, rate = self.setup.claim, self.setup.rate
        odds = (math.exp(min(claim.epsilon, 30.0)) + rate) / max(rate - claim.delta, 1e-9)
        return math.ceil(1.1 * -math.log(SUITE.level("noise", 2 * _SUSPECTS)) * odds)

    def add(self, pair: RunPair) -> None:
        """Compare a pair of runs by the public state after the first round, and by the noise of a release in which the
        unit takes part.
        """
        # One record in another's place is two steps of a claim of added ones.
        if not pair.adjacent or pair.of_data:
            return
        self._add_state(pair)
        if pair.compares_noise and pair.before.senders == pair.after.senders:
            self._add_noise(pair)

    def _add_state(self, pair: RunPair) -> None:
        before, after, others = pair.before, pair.after, pair.others
        if self.setup.claim.observer.rank < GLOBAL_MODELS.rank or min(map(len, (before.states, after.states))) < 2:
            return
        for name, one in before.states[1].items():
            other, noisy = after.states[1].get(name), [run.states[1].get(name) for run in others]
            rows = [row for row in noisy if row is not None and row.shape == one.shape]
            if other is None or other.shape != one.shape or len(rows) < 2 or name in self._known:
                continue
            spread = np.max([(row - rows[0]).abs().numpy() for row in rows[1:]], axis=0)
            moved = (other - one).abs().numpy()
            # Without any noise it is a finding of the message.
            far = np.where(spread > 0, moved / np.maximum(spread, 1e-300), 0.0)
            if far.size and far.max() > _FAR:
                self._known.add(name)
                where = int(far.argmax())
                self._count(_State(name=name, where=where), pair.many, f"public state {name}, {pair.witness}")

    def _add_noise(self, pair: RunPair) -> None:
        """Compare the size of the noise of the unit's row of the first round's release, from equal draws."""
        senders = pair.before.senders
        if senders is not None and pair.sender not in senders:
            # In the compared rounds no client sends anything, as while a federation warms up.
            return
        row = 0 if senders is None else senders.index(pair.sender)
        try:
            drawn = [runs.releases[0] for runs in pair.many(2, 2)]
        except Exception:  # Hooks that cannot run several times at once are reported by the noise of many runs.
            return
        if not self.released or any(rows.shape[1] != len(senders or (0,)) for rows in drawn):
            return
        sizes = [float(torch.linalg.vector_norm(rows[0, row] - rows[1, row])) for rows in drawn]
        if min(sizes) > 0 and not 1 / _LOUDER < sizes[1] / sizes[0] < _LOUDER:
            self._count(_Size(row=row), pair.many, f"the norm of the noise of a release, {pair.witness}")

    def results(self) -> Iterator[CheckResult]:
        """The check's results; empty if nothing was suspected."""
        if self.found:
            yield max(self.found, key=lambda one: (one.passed is False, one.measured or 0.0))
        elif self.reason:
            yield ODDS.skipped(self.reason)

    def _count(self, number: "_State | _Size", many: Many, words: str) -> None:
        self.suspects += 1
        if self.suspects > _SUSPECTS:
            self.reason = self.reason or (
                f"{words}: not counted, because more than {_SUSPECTS} numbers would have to be compared"
            )
            return
        if self.setup.rate < 1 and self.setup.claim.adjacency is not Adjacency.ADD_REMOVE:
            self.reason = f"{words}: not counted, because runs in which the unit is not sampled belong to neither arm"
            return
        try:
            self._counted(number, many, words)
        except Exception as error:  # A user's own hooks may raise anything in several runs at once.
            self.reason = (
                f"{words}: not counted, because the defense cannot make several runs in one batch: "
                f"{type(error).__name__}: {error}"
            )

    def _counted(self, number: "_State | _Size", many: Many, words: str) -> None:
        most = _NUMBERS // self.setup.numbers
        # A model too large to learn from is too large to count with.
        known = number.learn(*many(0, _LEARNT)) if _LEARNT * self.setup.numbers <= 4 * _AT_ONCE else (1.0, 0.0)
        if known is None:
            return
        sign, threshold = known
        if self.needed > most:
            self.reason = f"{words}: not counted, because {self.needed} runs are needed and at most {most} can be made"
            return
        counts, total, size = np.zeros(2, dtype=int), 0, max(2, _AT_ONCE // self.setup.numbers)
        while total < self.needed:
            values = [number.values(runs) for runs in many(3 + total, min(size, self.needed - total))]
            if values[0] is None or values[1] is None:
                return
            counts += [int((sign * one > sign * threshold).sum()) for one in values if one is not None]
            total += len(values[0])
        self.found.append(self._held(int(counts[0]), int(counts[1]), total, words))

    def _held(self, without: int, present: int, total: int, words: str) -> CheckResult:
        alpha = SUITE.level("noise", 2 * _SUSPECTS)
        high = float(beta.ppf(1 - alpha, without + 1, total - without)) if without < total else 1.0
        low = float(beta.ppf(alpha, present, total - present + 1)) if present else 0.0
        # A unit that is sampled is there in a share of the runs, and the others are like those without it.
        odds = (self.setup.rate * low - self.setup.claim.delta) / high + 1 - self.setup.rate
        epsilon = math.log(odds) if odds > 1 else 0.0
        witness = (
            f"{words}: beyond a threshold in {present} of {total} runs with the unit and in {without} of "
            f"{total} without it"
        )
        witness += f", rate {self.setup.rate:.3g}" if self.setup.rate < 1 else ""
        return ODDS.at_most(epsilon, self.setup.claim.epsilon, unit="epsilon", witness=witness)


@dataclass(kw_only=True)
class _State:
    """One number of the public state that the first round left."""

    name: str
    where: int

    def learn(self, without: ManyRuns, present: ManyRuns) -> tuple[float, float] | None:
        values = [self.values(runs) for runs in (without, present)]
        return None if values[0] is None or values[1] is None else _threshold(values[0], values[1])

    def values(self, runs: ManyRuns) -> FloatArray | None:
        """The number in every run; None where the runs have no number each."""
        array = runs.states[1].get(self.name)
        if array is None or len(array) != runs.replicas:
            return None
        return np.asarray(array.reshape(runs.replicas, -1)[:, self.where].numpy())


@dataclass(kw_only=True)
class _Size:
    """The distance of one row of the first round's release from the nearer centre of both kinds of runs."""

    row: int
    centres: list[FloatArray] = field(default_factory=list)

    def learn(self, without: ManyRuns, present: ManyRuns) -> tuple[float, float] | None:
        half = without.replicas // 2
        releases = [runs.releases[0][:, self.row].numpy() for runs in (without, present)]
        self.centres = [rows[:half].mean(0) for rows in releases]
        return _threshold(*(self._sizes(rows[half:]) for rows in releases))

    def values(self, runs: ManyRuns) -> FloatArray | None:
        return self._sizes(runs.releases[0][:, self.row].numpy())

    def _sizes(self, rows: FloatArray) -> FloatArray:
        away = np.min([np.linalg.norm(rows - centre, axis=-1) for centre in self.centres], axis=0)
        return np.asarray(np.log(np.maximum(away, 1e-300)))


def _threshold(without: FloatArray, present: FloatArray) -> tuple[float, float] | None:
    """The sign of the move, and the number between both kinds of runs; None where they are not far apart."""
    spreads = [float(values.std()) for values in (without, present)]
    apart = float(present.mean() - without.mean())
    if not abs(apart) > _APART * sum(spreads):
        return None
    share = spreads[0] / sum(spreads) if sum(spreads) > 0 else 0.5
    return math.copysign(1.0, apart), float(without.mean()) + apart * share


_RUNS, _LEAST = 512, 256
"""Runs of each kind: as many where they are affordable, and the fewest that show the shape of noise."""
_SIDE_AT_ONCE, _SIDE_NUMBERS = 2**22, 2**28
"""Numbers of the rows of all clients, or of a client's samples: in the runs of a batch, and in all runs and rounds."""
_SIDE_LEARNT = 4
"""The direction in which a unit moves the numbers is learnt from one run in so many."""
_TRIES, _ARRAYS = 3, 6
"""Pairs of inputs for one array, and arrays, that are looked at."""
_TESTS = 2 * _TRIES * _ARRAYS
_NORMAL, _TAILS = 1.2, 5.0
"""Distance from the normal distribution, times the root of the number of draws, and standard errors of the fourth
moment, from which noise does not look Gaussian.
"""
_MOVED = 0.1
"""Share of the largest movement from which a number counts as moved."""
_FIRST_NOISE = 2**20
"""Numbers of the noise of these runs start here: no other check has them."""


@dataclass(kw_only=True)
class SideArrays:
    """A check of arrays that clients send with their reports; ``add`` compares a pair of runs, ``results`` returns the
    check.
    """

    setup: ReplaySetup
    found: list[CheckResult] = field(default_factory=list)
    reason: str = ""
    _tries: dict[str, int] = field(default_factory=dict)

    def add(self, pair: RunPair) -> None:
        """Compare one more pair of runs."""
        claim, numbers = self.setup.claim, self.setup.numbers
        # Where cohorts or lots are drawn, runs with complete ones are unlike those of the claim.
        if claim.subjects != "all" or claim.part != JOINT or (self.setup.rate < 1 and not pair.sampled):
            return
        moved = sorted(name for name in _moved(pair) if self._tries.get(name, 0) < _TRIES)
        moved = [name for name in moved if name in self._tries or len(self._tries) < _ARRAYS]
        if not moved or not pair.adjacent:
            return
        self._tries |= {name: self._tries.get(name, 0) + 1 for name in moved}
        # A report is protected by itself. Of more rounds than can be run the first ones are a part of what is received.
        rounds = 1 if claim.unit is Unit.REPORT else min(claim.rounds, _SIDE_NUMBERS // (_LEAST * numbers))
        runs = min(_RUNS, _SIDE_NUMBERS // (max(1, rounds) * numbers))
        if rounds < 1 or runs < _LEAST:
            self.reason = self.reason or f"the model is too large for {_LEAST} runs"
            return
        try:
            drawn = _drawn(partial(pair.many, rounds=rounds), moved, runs, max(2, _SIDE_AT_ONCE // numbers))
        except Exception as error:  # A user's own hooks may raise anything in several runs at once.
            self.reason = f"the defense cannot make several runs in one batch: {type(error).__name__}: {error}"
            return
        for name, (without, present) in drawn.items():
            self._compare(name, pair, without, present)

    def results(self) -> Iterator[CheckResult]:
        """The check's results; empty if no unit changed a noisy array that is sent with reports."""
        if self.found:
            yield max(self.found, key=lambda one: (one.passed is False, one.passed is None, one.measured or 0.0))
        elif self.reason:
            yield SIDE_ARRAYS.skipped(self.reason)

    def _compare(self, name: str, pair: RunPair, without: FloatArray, present: FloatArray) -> None:
        """Compare an array's numbers ``(R, k)`` of all rounds, without and with the unit under equal draws."""
        varied = (without.std(0) > 0) & (present.std(0) > 0)
        noisy = np.isfinite(without).all(0) & np.isfinite(present).all(0) & varied
        # Numbers without noise are findings of the message.
        arms = without[:, noisy], present[:, noisy]
        moves = arms[1] - arms[0]
        taking = np.abs(moves).max(1, initial=0.0) > 1e-9 * np.abs(arms[0]).max(initial=0.0)
        learnt = len(moves) // _SIDE_LEARNT
        if not taking[:learnt].any() or not taking[learnt:].any():
            return
        mean = moves[:learnt][taking[:learnt]].mean(0)
        weights = mean / arms[0].var(0)
        most = np.abs(mean) > _MOVED * np.abs(mean).max()
        gaussian = all(_looks_gaussian(arm[:, most]) and _looks_gaussian(arm @ weights[:, None]) for arm in arms)
        noise = max(float((arm[learnt:] @ weights).std(ddof=1)) for arm in arms)
        self._hold(name, pair, moves[learnt:] @ weights, noise, taking[learnt:], gaussian=gaussian)

    def _hold(
        self, name: str, pair: RunPair, shifts: FloatArray, noise: float, taking: BoolArray, *, gaussian: bool
    ) -> None:
        """Hold the movement of the number that sums up all rounds against its noise.

        Args:
            shifts: by how much the unit moves it in each run, ``(R,)``.
            noise: its standard deviation without and with the unit, the larger one.
            taking: the runs in which the unit moves it.
            gaussian: whether the noise looks Gaussian.
        """
        # Three of four movements are at least as large.
        shift, runs = float(np.quantile(shifts[taking], 0.25)), len(shifts)
        smaller = int((shifts < shift * (1 - 1e-6)).sum())
        share = 1 - float(upper_bound(smaller, runs, SUITE.level("noise", _TESTS)))
        deviation = noise * math.sqrt((runs - 1) / float(chi2.ppf(SUITE.level("noise", _TESTS), runs - 1)))
        if shift <= 0 or share <= 0:
            return
        claim = self.setup.claim
        epsilon, delta = claim.epsilon, claim.delta
        if pair.rows == 2 and claim.adjacency is not Adjacency.REPLACE_ONE:
            # One record in another's place is two steps of such a claim.
            epsilon, delta = 2 * epsilon, delta * (1 + math.exp(min(epsilon, 700.0)))
        measured = heavy_tailed_epsilon(shift / deviation, share, delta)
        words = (
            f"{name}, {pair.witness}: the unit changes it by {shift / deviation:.3g} standard deviations of its noise "
        )
        words += f"in at least {share:.2g} of the runs"
        if not gaussian or (measured <= epsilon and claim.delta == 0):
            words += (
                "; its noise does not look Gaussian"
                if not gaussian
                else "; the claim has delta 0, which Gaussian noise cannot give"
            )
            self.found.append(SIDE_ARRAYS.skipped(words))
            return
        result = SIDE_ARRAYS.at_most(measured, epsilon, unit="epsilon", witness=words)
        self.found.append(result if result.passed else replace(result, proposal=pair.proposal))


def heavy_tailed_epsilon(steps: float, share: float, delta: float) -> float:
    """Return a lower bound on epsilon for a number that a unit moves by at least ``steps`` standard deviations in a
    ``share`` of the runs, if the noise has tails like Student's t distribution with five degrees of freedom or like
    Laplace's.

    In the other runs the number may lie half of the way, as where a record is in no lot.
    """

    def beyond(moved: float) -> float:
        # Student's distribution with five degrees of freedom has a variance of 5/3. Laplace's has more near its centre.
        return max(float(stdtr(5, -moved * math.sqrt(5 / 3))), 0.5 * math.exp(-math.sqrt(2) * moved))

    # Half of the noise lies beyond the number's new centre.
    often, rare = share / 2 - delta, (1 - share) * beyond(steps / 2) + beyond(steps)
    return math.log(often / rare) if often > rare else 0.0


def _drawn(
    many: Callable[..., tuple[ManyRuns, ManyRuns]], names: list[str], runs: int, batch: int
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """The numbers ``(R, k)`` of each array in all rounds, without and with the unit."""
    parts: dict[str, list[tuple[FloatArray, FloatArray]]] = {name: [] for name in names}
    for start in range(0, runs, batch):
        both = many(_FIRST_NOISE + start, min(batch, runs - start))
        for name in names:
            arrays = [made.side_array(name) for made in both]
            if arrays[0] is not None and arrays[1] is not None and arrays[0].shape == arrays[1].shape:
                parts[name].append((arrays[0].numpy(), arrays[1].numpy()))
    found = {}
    for name, part in parts.items():
        if part and len({one.shape[1] for one, _ in part}) == 1:
            found[name] = np.concatenate([one for one, _ in part]), np.concatenate([other for _, other in part])
    return found


def _looks_gaussian(draws: FloatArray) -> bool:
    """Whether draws ``(R, k)`` of k numbers, which may depend on each other, look Gaussian, all together."""
    values = ((draws - draws.mean(0)) / draws.std(0)).ravel()
    root = math.sqrt(len(draws))
    # The standard error of the fourth moment of n normal numbers is the root of 24 / n.
    tails = abs(float((values**4).mean()) - 3) * root / math.sqrt(24)
    return tails < _TAILS and float(kstest(values, "norm").statistic) * root < _NORMAL


def _moved(pair: RunPair) -> set[str]:
    """Names of arrays sent with reports that the unit moves in any round."""
    found = set()
    for before, after in zip(pair.before.channels, pair.after.channels, strict=False):
        one, other = _arrays(before), _arrays(after)
        found |= {name for name in one.keys() & other.keys() if not np.array_equal(one[name], other[name])}
    return {name.partition(" of client ")[0] for name in found}


def _arrays(channels: Channels) -> dict[str, FloatArray]:
    return {name: one for name, one in channels.items() if name.startswith(SIDE) and isinstance(one, np.ndarray)}
