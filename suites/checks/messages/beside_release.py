"""Hold against the claim how far one unit moves numbers beside the release, over the noise of these numbers.

Counts, statistics of inputs, losses and answers to queries may travel with a report, with noise of their own. Runs with
equal draws show how far a unit moves them; runs with other noise show how large their noise is, and whether it looks
Gaussian. All rounds are summed up by one number, so that an array that is sent once, kept, or averaged counts as what
it is. The epsilon of this number alone must not exceed the claim's. For noise of any other shape
it is bounded by Chebyshev's (Cantelli's) inequality. A correct defense with Gaussian noise fails once in 10^7 checks.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import chi2, kstest

from ....audit.arrays import BoolArray, FloatArray
from ....audit.binomial import upper_bound
from ....audit.check_result import CheckResult
from ....audit.claim import Adjacency, Claim, Unit
from ....defenses.accounting.below import composed, gaussian_pair
from ....fl.channels import BESIDE, Channels
from ....fl.plan import Plan
from ....fl.replay import ManyRuns
from ..false_alarms import level
from .message_checks import Pair

BESIDE_RELEASE = "numbers beside the release"
_RUNS, _LEAST, _NUMBERS = 512, 96, 2**28
"""Runs of each kind, at most and at least, and numbers of rows of clients or samples of all of them in all rounds."""
_LEARNT = 4
"""The direction in which a unit moves the numbers is learnt from one run in so many."""
_TRIES, _ARRAYS = 3, 6
"""Pairs of inputs for one array, and arrays, that are looked at."""
_NORMAL, _TAILS = 1.2, 5.0
"""Distance from the normal distribution, times the root of the number of draws, and standard errors of the fourth
moment, from which noise does not look Gaussian.
"""
_MOVED = 0.1
"""Share of the largest movement from which a number counts as moved."""
_TESTS = 2 * _TRIES * _ARRAYS


@dataclass(kw_only=True)
class BesideRelease:
    """The check of numbers beside the release; ``add`` looks at a pair of runs, ``results`` returns the check."""

    claim: Claim
    plan: Plan
    found: list[CheckResult] = field(default_factory=list)
    reason: str = ""
    _tries: dict[str, int] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """The least chance that a unit takes part in a round."""
        return self.plan.cohort_rate * min(self.plan.lot.rate(size) for size in self.plan.sizes)

    def add(self, pair: Pair) -> None:
        """Compare one more pair of runs."""
        moved = {name for name in _moved(pair) if self._tries.get(name, 0) < _TRIES}
        if not moved or (len(self._tries) >= _ARRAYS and not moved <= self._tries.keys()):
            return
        # Two records that replace each other: runs in which neither is sampled are unlike both kinds of runs.
        if not pair.sampled and self.rate < 1 and self._replaced(pair):
            return
        samples = max(self.plan.sizes) if self.claim.unit is Unit.SAMPLE else 1
        numbers = max(self.plan.clients, samples) * self.plan.layout.dim
        runs = min(_RUNS, _NUMBERS // numbers)
        if pair.many is None or runs < _LEAST:
            self.reason = self.reason or f"the model is too large for {_LEAST} runs"
            return
        self._tries |= {name: self._tries.get(name, 0) + 1 for name in moved}
        rate = 1.0 if pair.sampled else self.rate
        # Of more rounds than can be run the first ones are a part of what is received. A report is protected by itself,
        # and a unit that is sampled is seldom in every round.
        single = self.claim.unit is Unit.REPORT or rate < 1
        rounds = 1 if single else min(self.claim.rounds, _NUMBERS // (numbers * runs))
        try:
            without, present = pair.many(1, runs, rounds)
        except Exception as error:  # A user's own hooks may raise anything in several runs at once.
            self.reason = f"several runs at once are not possible: {type(error).__name__}: {error}"
            return
        for name in sorted(moved):
            self._compare(name, pair, without, present, rate)

    def results(self) -> Iterator[CheckResult]:
        """The check; none where no unit moved a number beside the release that has noise."""
        if self.found:
            yield max(self.found, key=lambda one: (one.passed is False, one.passed is None, one.measured or 0.0))
        elif self.reason:
            yield CheckResult(name=BESIDE_RELEASE, passed=None, witness=self.reason)

    def _replaced(self, pair: Pair) -> bool:
        return pair.rows == 2 or self.claim.adjacency is not Adjacency.ADD_REMOVE

    def _compare(self, name: str, pair: Pair, without: ManyRuns, present: ManyRuns, rate: float) -> None:
        arrays = [runs.beside_together(name) for runs in (without, present)]
        if arrays[0] is None or arrays[1] is None or arrays[0].shape != arrays[1].shape:
            return
        one, other = (array.numpy() for array in arrays if array is not None)
        noisy = np.isfinite(one).all(0) & np.isfinite(other).all(0) & (one.std(0) > 0)
        # Numbers without noise are findings of the message.
        one, moves = one[:, noisy], (other - one)[:, noisy]
        taking = np.abs(moves).max(1, initial=0.0) > 1e-9 * np.abs(one).max(initial=0.0)
        learnt = len(one) // _LEARNT
        if not taking[:learnt].any() or not taking[learnt:].any():
            return
        mean = moves[:learnt][taking[:learnt]].mean(0)
        weights = mean / one.var(0)
        numbers = one[:, np.abs(mean) > _MOVED * np.abs(mean).max()]
        self._hold(
            name,
            pair,
            moves[learnt:] @ weights,
            one[learnt:] @ weights,
            taking[learnt:],
            rate,
            gaussian=_looks_gaussian(numbers) and _looks_gaussian(one @ weights[:, None]),
        )

    def _hold(
        self,
        name: str,
        pair: Pair,
        shifts: FloatArray,
        noise: FloatArray,
        taking: BoolArray,
        rate: float,
        *,
        gaussian: bool,
    ) -> None:
        """Hold the movement of a number, which sums up all rounds, against its noise.

        Args:
            shifts, noise: by how much the unit moves the number in each run, and the number without it, ``(R,)``.
            taking: the runs in which it moves it.
            rate: chance that the unit takes part, apart from these runs.
            gaussian: whether the noise looks Gaussian.
        """
        # Three of four movements are at least as large.
        shift, runs = float(np.quantile(shifts[taking], 0.25)), len(shifts)
        smaller = int((shifts < shift * (1 - 1e-6)).sum())
        share = rate * (1 - float(upper_bound(smaller, runs, level(_TESTS))))
        deviation = float(noise.std(ddof=1)) * math.sqrt((runs - 1) / float(chi2.ppf(level(_TESTS), runs - 1)))
        if shift <= 0 or share <= 0 or deviation == 0:
            return
        steps, claim = shift / deviation, self.claim
        epsilon, delta = claim.epsilon, claim.delta
        if pair.rows == 2 and claim.adjacency is not Adjacency.REPLACE_ONE:
            # One record in another's place is two steps of such a claim.
            epsilon, delta = 2 * epsilon, delta * (1 + math.exp(min(epsilon, 700.0)))
        measured = _any_noise(steps, share, delta)
        if gaussian and delta > 0:
            measured = max(measured, _gaussian(steps, share, delta, epsilon))
        words = f"{name}, {pair.witness}: moved by {steps:.3g} standard deviations of its noise"
        words += f" in all rounds, in {share:.2g} of the runs at least"
        if measured <= epsilon and not gaussian:
            words += "; its noise is not Gaussian, and its size alone was compared"
            self.found.append(CheckResult(name=BESIDE_RELEASE, passed=None, witness=words))
            return
        self.found.append(CheckResult.at_most(BESIDE_RELEASE, measured, epsilon, unit="epsilon", witness=words))


def _looks_gaussian(draws: FloatArray) -> bool:
    """Whether draws ``(R, k)`` of k numbers, which may depend on each other, look Gaussian, all together."""
    values = ((draws - draws.mean(0)) / draws.std(0)).ravel()
    root = math.sqrt(len(draws))
    # The standard error of the fourth moment of n normal numbers is the root of 24 / n.
    tails = abs(float((values**4).mean()) - 3) * root / math.sqrt(24)
    return tails < _TAILS and float(kstest(values, "norm").statistic) * root < _NORMAL


def _moved(pair: Pair) -> set[str]:
    """Names of arrays beside the release that the unit moves in any round."""
    found = set()
    for before, after in zip(pair.before.channels, pair.after.channels, strict=False):
        one, other = _arrays(before), _arrays(after)
        found |= {name for name in one.keys() & other.keys() if not np.array_equal(one[name], other[name])}
    return {name.partition(" of client ")[0] for name in found}


def _arrays(channels: Channels) -> dict[str, FloatArray]:
    return {name: one for name, one in channels.items() if name.startswith(BESIDE) and isinstance(one, np.ndarray)}


def _gaussian(steps: float, share: float, delta: float, reach: float) -> float:
    """A lower bound on the epsilon of a number that a unit moves by ``steps`` standard deviations of Gaussian noise,
    or further, in a ``share`` of the runs.
    """
    pair = gaussian_pair(steps, rate=min(1.0, share))
    return max(composed([one], reach=reach).epsilon(delta) for one in (pair, pair.swapped()))


def _any_noise(steps: float, share: float, delta: float) -> float:
    """A lower bound on the epsilon of one release, by the chance that noise of any shape crosses half of the way."""
    rare = 1 / (1 + steps**2 / 4)
    often = share * (1 - rare) - delta
    return max(0.0, math.log(often / rare)) if often > 0 else 0.0
