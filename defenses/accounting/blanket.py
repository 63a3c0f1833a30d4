"""Bound the privacy of shuffled reports by the privacy blanket of their own randomiser.

Every report is drawn with some probability from a blanket, a distribution that does not depend on its client's value;
only such reports of others hide a client (Balle, Bell, Gascon, Nissim 2019, Lemma 5.3). With ``one`` and ``other`` the
densities of the client's report under its two values, and ``blanket`` the density that every other report has at least,

    delta(epsilon) <= E[(X_1 + ... + X_n)+] / n,   X = (one - e^epsilon other) / blanket   with density ``blanket``,

and X = 0 with the rest of the probability. Here the others' reports that are no blanket are known to the adversary.

**Worst values.** X depends on the client's two values. Of two laws with one mean, the larger one in convex order gives
the larger bound, for every n. For noise of Laplace and Gauss in one dimension, clipped or not, the two ends of the
range give the largest law. Let r_x be the density of the report of x over the blanket's. For x >= 0 and every t the set
r_x > t is one of the sets y > b or y < -a with a >= b, and the probability of such a set grows with x; so r_x lies
below r_C in convex order for the end C. Further r_C grows with y and r_-C falls, so that r_C - e^epsilon r_-C is the
comonotone sum, the largest in convex order of all with these parts.

**Numbers.** Convex order also orders roundings: values between two levels are moved to both, so that their mean is
kept. First the ratios are put on levels, then X on a grid. The sums are convolved by Fourier transform with weights
e^(order * x), so that errors are small against the tail that is asked for. All that rounding, window and transform may
leave out is added.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from ...audit.arrays import FloatArray
from ...fl.fields import check_positive
from ..defense import check_whole
from .counts import least_epsilon
from .pld import convolved, gaussian_cells

_LEVELS = 160
_COARSEST, _LENGTH = 0.05, 2**13
"""Largest distance of the grid over the weighted spread of one report, which raises delta by at most 2 % in far tails,
and the number of its points for the sum of few reports, which have closer ones.
"""
_MOST_CELLS, _SELDOM = 2**14, 1e-4
_CUT_OFF, _LARGEST = 1e-16, 600.0
_ROUNDING = 1e-15
_FARTHEST = 8.5


@dataclass(frozen=True, eq=False, kw_only=True)
class BlanketPair:
    """An upper bound on the privacy profile for one client among ``reports`` shuffled reports, for two values of this
    client.

    Args:
        one, other: the probabilities ``(k,)`` of its outcomes under the two values, or measures whose hockey-stick
            divergence is at least that of the two.
        blanket: a measure ``(k,)`` > 0 of total at most 1 that is below the law of every other report.
        lost: probability of an outcome that is counted as a privacy failure.
    """

    one: FloatArray
    other: FloatArray
    blanket: FloatArray
    reports: int
    lost: float = 0.0

    def __post_init__(self) -> None:
        check_whole("reports", self.reports)
        rows = (self.one, self.other, self.blanket)
        if {row.shape for row in rows} != {(self.blanket.size,)} or not min(row.min() for row in rows) >= 0:
            raise ValueError(f"one, other and blanket must be rows of equal length of numbers >= 0, got {rows}")
        if not (self.blanket.min() > 0 and self.blanket.sum() <= 1 + 1e-9):
            raise ValueError(f"blanket must be above 0 and sum to at most 1, got a sum of {self.blanket.sum()}")

    @cached_property
    def pure_epsilon(self) -> float:
        """Return the epsilon at delta 0, which is that of a single report."""
        if self.lost > 0 or bool(((self.one == 0) | (self.other == 0)).any()):
            return math.inf
        return float(np.abs(np.log(self.one / self.other)).max())

    @property
    def similarity(self) -> float:
        """Return the probability with which a report is drawn from the blanket."""
        return min(1.0, float(self.blanket.sum()))

    def delta(self, epsilon: float) -> float:
        """Compute an upper bound on delta at ``epsilon`` >= 0."""
        if epsilon >= self.pure_epsilon:
            return self.lost
        ahead, behind = self.one / self.blanket, math.exp(epsilon) * self.other / self.blanket
        # Rounded up by what rounding may have taken from their difference.
        values = ahead - behind + _ROUNDING * (ahead + behind)
        # Seldom hidden by another report, it is counted as never hidden.
        if (self.reports - 1) * self.similarity < _SELDOM:
            return min(1.0, float(self.blanket @ np.maximum(values, 0.0)) + self.lost)
        values = np.append(values, 0.0)
        chances = np.append(self.blanket, 1 - self.similarity)
        return min(1.0, mean_excess(values, chances, self.reports) / self.reports + self.lost)

    def epsilon(self, delta: float) -> float:
        """Compute the smallest epsilon at ``delta`` in (0, 1), rounded up by at most 1e-9; this epsilon never exceeds
        the pure epsilon.
        """
        return min(self.pure_epsilon, least_epsilon(self.delta, delta, surely=self.lost))

    def hidden_by(self, chances: FloatArray) -> Self:
        """Return the bound for other clients with different budgets, whose reports are drawn from this blanket with
        their own ``chances``. The bound is exact for equal chances.

        The number of blanket reports among the m likeliest ones is at least, in stochastic order, that of m equal
        chances of their geometric mean (Boland, Singh, Cukic 2002), and more of them hide no less; m makes the
        expected number of the latter largest.
        """
        ranked = np.sort(chances[chances > 0])[::-1]
        counts = np.arange(1, ranked.size + 1)
        means = np.exp(np.cumsum(np.log(ranked)) / counts)
        kept = int(np.argmax(counts * means)) if ranked.size else -1
        chance = float(means[kept]) if ranked.size else 1.0
        return replace(self, blanket=min(1.0, chance) / self.blanket.sum() * self.blanket, reports=kept + 2)

    def checked_in(self, rate: float) -> Self:
        """Return the bound if each client (this one included) sends its report only with probability ``rate``, by its
        own coin, and the adversary sees only the number of reports.

        A client that sends nothing is one more outcome of its randomiser (Liew et al. 2022, "Shuffled check-in").
        """
        return self._mixed(rate, np.append(0.0 * self.one, 1.0), more=True)

    def one_of(self, records: int) -> Self:
        """Return the bound for one of the client's ``records`` records, if the client's report is about one record
        drawn uniformly.

        For two-valued randomised response, whose least favourable other records are like the one without.
        """
        check_whole("records", records)
        return replace(self, one=self.one / records + (1 - 1 / records) * self.other)

    def drawn(self, rate: float) -> Self:
        """Return the bound if each client sends its own report with probability ``rate``, and otherwise a report from
        the blanket, which the adversary cannot distinguish from a client's own report.
        """
        return self._mixed(rate, self.blanket / self.blanket.sum(), more=False)

    def _mixed(self, rate: float, without: FloatArray, *, more: bool) -> Self:
        _check_rate("rate", rate)
        if rate == 1:
            return self
        rows = (np.append(row, 0.0) if more else row for row in (self.one, self.other, self.blanket))
        one, other, blanket = (rate * row + (1 - rate) * without for row in rows)
        return replace(self, one=one, other=other, blanket=blanket, lost=rate * self.lost)


def mean_excess(values: FloatArray, chances: FloatArray, times: int) -> float:
    """Compute an upper bound on E[(X_1 + ... + X_n)+] of n = ``times`` independent numbers, each one of ``values`` with
    the probabilities ``chances``; the mean of each number is at most 0.
    """
    high = float(values.max())
    if high <= 0:
        return 0.0
    # The mean of n numbers exceeds 0 by no more than one of them does.
    alone = times * float(chances @ np.maximum(values, 0.0))
    order = _order(values, chances)
    step, start, masses = _gridded(values, chances, order, min(_COARSEST, 24 * math.sqrt(times) / _LENGTH))
    # From here on in units of the grid.
    order *= step
    places = start + np.arange(len(masses))
    with np.errstate(divide="ignore"):
        logs = np.log(masses) + order * places
    top = float(logs.max())
    moment = top + math.log(float(np.exp(logs - top).sum()))
    if times * moment > _LARGEST:
        return alone  # Too large values for the grid.
    begun, sums = convolved([(np.exp(logs - moment), times)], _CUT_OFF)
    at = times * start + begun + np.arange(len(sums))
    kept = at > 0
    # Each mass has the error of the transform's power, which is small against the largest one.
    error = (times * (1 + order * len(masses)) + 100) * _ROUNDING
    likely = np.maximum(sums[kept], 0.0) + error * float(sums.max())
    found = float(likely @ (at[kept] * np.exp(-order * at[kept])))
    # Beyond the window, at the place where its excess weighs most.
    least, most = max(float(at[-1]), 0.0), float(times * places[-1])
    worst = min(max(1 / order if order > 0 else most, least), most)
    found += _CUT_OFF * worst * math.exp(-order * worst)
    return min(alone, step * found * (1 + error) * math.exp(times * moment))


def _order(values: FloatArray, chances: FloatArray) -> float:
    """The weight e^(order * x) under which the mean is 0, so that the sum's sign changes in the middle of its law."""

    def drift(order: float) -> float:
        weights = order * values
        return float(chances * np.exp(weights - weights.max()) @ values)

    if drift(0.0) >= 0:
        return 0.0
    last = 1e-3 / max(float(np.abs(values).max()), 1e-300)
    while drift(last) < 0 and last * float(values.max()) < 700:
        last *= 4
    return float(brentq(drift, 0.0, last, rtol=1e-6)) if drift(last) > 0 else last


def _gridded(values: FloatArray, chances: FloatArray, order: float, fine: float) -> tuple[float, int, FloatArray]:
    """The step of a grid of its multiples, the first of them, and masses on it that have the mean of the values."""
    low, high = float(values.min()), float(values.max())
    weights = chances * np.exp(order * (values - high))
    mean = weights @ values / weights.sum()
    spread = math.sqrt(max(float(weights @ (values - mean) ** 2 / weights.sum()), 1e-300))
    step = max(fine * spread, (high - low) / _MOST_CELLS)
    # So the highest value, which counts most, is on the grid too, unless it is below the first point.
    step = high / math.ceil(high / step) if step < high else step
    first, last = math.floor(low / step), max(1, round(high / step))
    cells = last - first
    places = np.clip(values / step - first, 0.0, cells)
    below = np.minimum(places.astype(np.int64), cells - 1)
    upper = chances * np.clip(places - below, 0.0, 1.0)
    masses = np.bincount(below, chances - upper, cells + 1) + np.bincount(below + 1, upper, cells + 1)
    return step, first, np.asarray(masses, dtype=np.float64)


def randomised_response(*, epsilon0: float, values: int, reports: int) -> BlanketPair:
    """Return the bound for ``values``-ary randomised response at ``epsilon0``, whose blanket is the uniform law."""
    check_positive("epsilon0", epsilon0)
    if values != int(values) or values < 2:
        raise ValueError(f"values must be a whole number >= 2, got {values!r}")
    lie = 1 / (math.expm1(epsilon0) + values)
    # All values but the client's two are one outcome, which tells nothing.
    one = lie * np.array([math.exp(epsilon0), 1.0, values - 2.0])[: 2 + (values > 2)]
    blanket = lie * np.array([1.0, 1.0, values - 2.0])[: len(one)]
    other = np.concatenate([one[1::-1], one[2:]])
    return BlanketPair(one=one, other=other, blanket=blanket, reports=reports)


def laplace(*, epsilon0: float, reports: int, clipped: bool) -> BlanketPair:
    """Return the bound for a number in a range, with Laplace noise of scale range / ``epsilon0``, for any two values;
    ``clipped``: whether the noise is conditioned on the range (clip-Laplace).

    The blanket's probability is 2 / (1 + e^(eps0 / 2)) where clipped, else e^(-eps0 / 2).
    """
    check_positive("epsilon0", epsilon0)
    levels = np.exp(np.linspace(0.0, epsilon0, _LEVELS + 1))
    roots, half = np.sqrt(levels), math.exp(-epsilon0 / 2)
    # The probability of one side of the range, by the ratio of the densities, falls as the inverse of its root.
    cells = -np.diff(1 / roots) * half / (-math.expm1(-epsilon0) if clipped else 2)
    masses = _on_levels(levels, cells, cells * roots[1:] * roots[:-1])
    masses[-1] += 0.0 if clipped else half**2 / 2
    return _two_sided(levels, masses, reports)


def laplace_chances(neighbours: FloatArray, epsilon: float, *, clipped: bool) -> FloatArray:
    """Compute the probabilities with which reports at the budgets ``neighbours``, of any value, are drawn from the
    normalised blanket of ``laplace`` at ``epsilon``. Each probability is the smallest ratio of the neighbour's blanket
    to this blanket.

    It is at the middle of the range for smaller budgets and at its ends for larger ones. Without clipping a larger
    budget has thinner tails and no such chance.
    """
    if not clipped:
        chances = neighbours / epsilon * np.exp(-neighbours / 2)
        return np.asarray(np.where(neighbours <= epsilon, chances, 0.0), dtype=np.float64)
    exponents = -np.maximum(neighbours, 2 * neighbours - epsilon) / 2
    masses = 2 * math.expm1(-epsilon / 2) / np.expm1(-neighbours)
    return np.asarray(neighbours / epsilon * masses * np.exp(exponents), dtype=np.float64)


def gaussian(*, sigma: float, reports: int) -> BlanketPair:
    """Return the bound for a number in a range, with Gaussian noise of ``sigma`` ranges, for any two values. A report
    beyond 8.5 sigma counts as a privacy failure, with probability 1e-17.
    """
    check_positive("sigma", sigma)
    places = np.linspace(0.0, 0.5 + _FARTHEST * sigma, 4 * _LEVELS)
    cells, ahead = (np.exp(gaussian_cells((places + shift) / sigma)) for shift in (0.5, -0.5))
    levels = np.exp(places / sigma**2)
    masses = _on_levels(levels, cells, ahead)
    masses[-1] += ndtr(-(places[-1] + 0.5) / sigma)
    return _two_sided(levels, masses, reports, float(ndtr(-_FARTHEST)))


def _two_sided(levels: FloatArray, masses: FloatArray, reports: int, lost: float = 0.0) -> BlanketPair:
    """Ratios ``levels`` to the blanket on the one value's side of the range, 1 on the other's, and the mirror image."""
    ratios, both = np.append(levels, np.ones(len(levels))), np.append(masses, masses)
    kept = both > 0
    one, other = ratios * both, np.roll(ratios, len(levels)) * both
    return BlanketPair(one=one[kept], other=other[kept], blanket=both[kept], reports=reports, lost=lost)


def _on_levels(levels: FloatArray, cells: FloatArray, weighted: FloatArray) -> FloatArray:
    """Masses on the levels ``(k + 1,)`` that keep mass and mean of the ``cells (k,)`` between them; ``weighted``: each
    cell's mass times its mean.
    """
    upper = np.clip((weighted - levels[:-1] * cells) / np.diff(levels), 0.0, cells)
    return np.asarray(np.append(cells - upper, 0.0) + np.append(0.0, upper), dtype=np.float64)


def _check_rate(name: str, rate: float) -> None:
    if not 0 < rate <= 1:
        raise ValueError(f"{name} must be in (0, 1], got {rate!r}")
