"""Compute exact distributions of the number of successes in random trials, and its privacy if it is released."""

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
    """A distribution of a number of successes: ``pmf[i]`` is the probability of ``first + i`` successes. All other
    numbers of successes have a total probability of at most ``lost``, and are treated as privacy failures.
    """

    first: int
    pmf: FloatArray
    lost: float = 0.0

    @property
    def values(self) -> FloatArray:
        """Return, as floats, the number of successes that corresponds to each entry of ``pmf``."""
        return np.arange(self.first, self.first + self.pmf.size, dtype=np.float64)


def binomial(trials: int, probability: float) -> CountLaw:
    """Compute the distribution of the number of successes in ``trials`` >= 0 independent trials, each with the same
    success probability in [0, 1].

    By Hoeffding's inequality the window around the mean omits at most 2 exp(-70).
    """
    _check_trials(trials)
    _check_probabilities(np.asarray([probability]))
    if probability < _NEVER:  # scipy's binomial law overflows there.
        return CountLaw(0, np.ones(1), trials * probability)
    # Hoeffding's window keeps the array short; what is outside counts as leaked.
    reach = math.sqrt(-trials * math.log(_DROPPED) / 2)
    low = max(0, math.floor(trials * probability - reach))
    high = min(trials, math.ceil(trials * probability + reach))
    pmf = binom.pmf(np.arange(low, high + 1), trials, probability)
    return CountLaw(low, pmf, 0.0 if high - low == trials else 2 * _DROPPED)


def poisson_binomial(probabilities: Sequence[float] | FloatArray) -> CountLaw:
    """Compute the distribution of the number of successes in independent trials, each with its own probability in [0,
    1].

    The trials are merged in pairs by sums of positive terms alone, so that the tails stay accurate; by FFT they would
    not.
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
    # The entries below this limit, at both ends together, sum to less than 1e-30 per merge.
    kept = np.flatnonzero(pmf > _DROPPED / pmf.size)
    low, high = int(kept[0]), int(kept[-1]) + 1
    lost = one.lost + other.lost + float(pmf[:low].sum() + pmf[high:].sum())
    return CountLaw(one.first + other.first + low, pmf[low:high], lost)


@dataclass(frozen=True, eq=False)
class CountPair:
    """The distributions ``p`` and ``q`` of a count under two neighbouring inputs, arrays of shape ``(k,)``; ``lost`` is
    the probability of all other counts, which are treated as privacy failures.
    """

    p: FloatArray
    q: FloatArray
    lost: float = 0.0

    @property
    def pure_epsilon(self) -> float:
        """Return epsilon at delta 0, which is the largest log-ratio between the two probabilities of any count;
        infinite if one of the two is 0.
        """
        if self.lost > 0 or bool(((self.p == 0) != (self.q == 0)).any()):
            return math.inf
        both = self.p > 0
        return float(np.abs(np.log(self.p[both] / self.q[both])).max())

    def delta(self, epsilon: float) -> float:
        """Compute delta at ``epsilon`` >= 0: the larger of the two hockey-stick divergences, of ``p`` from ``q`` and of
        ``q`` from ``p``.
        """
        ratio = math.exp(epsilon)
        ahead, behind = np.maximum(self.p - ratio * self.q, 0).sum(), np.maximum(self.q - ratio * self.p, 0).sum()
        return float(max(ahead, behind)) + self.lost

    def epsilon(self, delta: float) -> float:
        """Compute the smallest epsilon >= 0 of the two count distributions at ``delta``, rounded up by at most 1e-9.

        Raises:
            ValueError: where the outcomes of one input alone have more mass than ``delta``.
        """
        return least_epsilon(self.delta, delta, surely=max(self.p[self.q == 0].sum(), self.q[self.p == 0].sum()))


def bit_among(others: CountLaw, *, epsilon: float) -> CountPair:
    """Return two distributions of the number of ones in all clients' reports, one if a given client's bit is 1 and one
    if it is 0; this client reports its bit by randomised response at ``epsilon``.

    ``others`` is the law of the number of ones that the other clients send.
    """
    one, zero = float(expit(epsilon)), float(expit(-epsilon))
    return CountPair(np.convolve(others.pmf, [zero, one]), np.convolve(others.pmf, [one, zero]), others.lost)


def least_epsilon(profile: Callable[[float], float], delta: float, surely: float = 0.0) -> float:
    """Return the smallest epsilon >= 0, rounded up, at which ``profile``, a function from epsilon to delta, is at most
    ``delta``; ``surely`` is the limit of ``profile`` for large epsilon.
    """
    check_delta(delta)
    if surely >= delta:
        raise ValueError(
            f"delta must be above {surely:.3g}, the probability that privacy fails at any epsilon, got {delta}"
        )
    low, high = 0.0, 1.0
    if profile(low) <= delta:
        return 0.0
    # Doubling first: no upper bound of the epsilon is known beforehand.
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
        raise ValueError(f"probabilities must be a one-dimensional array of numbers in [0, 1], got {chances!r}")
