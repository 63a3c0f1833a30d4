"""Counts: the exact law of a number of successes, and two such laws that neighbours leave."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from scipy.stats import binom

from ...audit.arrays import FloatArray
from ..defense import check_delta

_DROPPED = math.exp(-70)
_PRECISION = 1e-9
_NEVER = 1e-290


@dataclass(frozen=True, eq=False)
class CountLaw:
    """``pmf[i]`` is the chance of ``first + i`` successes; ``lost`` bounds the mass outside, which counts as leaked."""

    first: int
    pmf: FloatArray
    lost: float = 0.0

    @property
    def values(self) -> FloatArray:
        """The counts that ``pmf`` is about, as floats."""
        return np.arange(self.first, self.first + self.pmf.size, dtype=np.float64)


def binomial(trials: int, probability: float) -> CountLaw:
    """The law of ``trials`` >= 0 successes of one probability in [0, 1].

    The window around the mean leaves out at most 2 exp(-70) by Hoeffding's inequality.
    """
    _check_trials(trials)
    _check_probabilities(np.asarray([probability]))
    if probability < _NEVER:  # The library's law overflows there.
        return CountLaw(0, np.ones(1), trials * probability)
    reach = math.sqrt(-trials * math.log(_DROPPED) / 2)
    low = max(0, math.floor(trials * probability - reach))
    high = min(trials, math.ceil(trials * probability + reach))
    pmf = binom.pmf(np.arange(low, high + 1), trials, probability)
    return CountLaw(low, pmf, 0.0 if high - low == trials else 2 * _DROPPED)


def poisson_binomial(probabilities: Sequence[float] | FloatArray) -> CountLaw:
    """The law of the number of successes in independent trials, each of its own probability in [0, 1].

    Merged in pairs by sums of positive terms alone: the tails keep their digits, as they do not by FFT.
    """
    chances = np.asarray(probabilities, dtype=np.float64)
    _check_probabilities(chances)
    laws = [CountLaw(0, np.array([1 - chance, chance])) for chance in chances] or [CountLaw(0, np.ones(1))]
    while len(laws) > 1:
        odd = laws[len(laws) // 2 * 2 :]
        laws = [_sum(one, other) for one, other in zip(laws[::2], laws[1::2], strict=False)] + odd
    return laws[0]


def _sum(one: CountLaw, other: CountLaw) -> CountLaw:
    pmf = np.convolve(one.pmf, other.pmf)
    # What is below this at both ends sums to less than 1e-30 a merge.
    kept = np.flatnonzero(pmf > _DROPPED / pmf.size)
    low, high = int(kept[0]), int(kept[-1]) + 1
    lost = one.lost + other.lost + float(pmf[:low].sum() + pmf[high:].sum())
    return CountLaw(one.first + other.first + low, pmf[low:high], lost)


@dataclass(frozen=True, eq=False)
class CountPair:
    """The laws ``p`` and ``q``, ``(k,)`` each, that two neighbouring inputs leave; ``lost`` counts as leaked."""

    p: FloatArray
    q: FloatArray
    lost: float = 0.0

    @property
    def pure_epsilon(self) -> float:
        """The largest log-ratio of a count; infinite where one side has a count that the other has not."""
        if self.lost > 0 or bool(((self.p == 0) != (self.q == 0)).any()):
            return math.inf
        both = self.p > 0
        return float(np.abs(np.log(self.p[both] / self.q[both])).max())

    def delta(self, epsilon: float) -> float:
        """The larger hockey-stick divergence of the two directions at ``epsilon`` >= 0."""
        ratio = math.exp(epsilon)
        ahead, behind = np.maximum(self.p - ratio * self.q, 0).sum(), np.maximum(self.q - ratio * self.p, 0).sum()
        return float(max(ahead, behind)) + self.lost

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 at ``delta``, rounded up by at most 1e-9.

        Raises:
            ValueError: where outcomes that only one side has weigh more than ``delta``.
        """
        return least_epsilon(self.delta, delta, surely=max(self.p[self.q == 0].sum(), self.q[self.p == 0].sum()))


def bit_among(others: CountLaw, *, epsilon: float) -> CountPair:
    """What the number of ones tells of one client's bit (1 against 0), randomised at its ``epsilon``.

    ``others`` is the law of the ones that the other clients send.
    """
    one, zero = float(expit(epsilon)), float(expit(-epsilon))
    return CountPair(np.convolve(others.pmf, [zero, one]), np.convolve(others.pmf, [one, zero]), others.lost)


def least_epsilon(profile: Callable[[float], float], delta: float, surely: float = 0.0) -> float:
    """The least epsilon >= 0 whose ``profile`` is at most ``delta``, rounded up; ``surely`` leaks at any epsilon."""
    check_delta(delta)
    if surely >= delta:
        raise ValueError(f"delta must be above {surely:.3g}, which leaks at every epsilon, got {delta}")
    low, high = 0.0, 1.0
    if profile(low) <= delta:
        return 0.0
    while profile(high) > delta:
        low, high = high, 2 * high
    while high - low > _PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if profile(middle) > delta else (low, middle)
    return high


def _check_trials(trials: int) -> None:
    """ValueError unless ``trials`` is a whole number >= 0."""
    if trials < 0 or int(trials) != trials:
        raise ValueError(f"trials must be a whole number >= 0, got {trials!r}")


def _check_probabilities(chances: FloatArray) -> None:
    """ValueError unless ``chances`` is one row of numbers in [0, 1]."""
    if chances.ndim != 1 or not np.all((chances >= 0) & (chances <= 1)):
        raise ValueError(f"probabilities must be one row of numbers in [0, 1], got {chances!r}")
