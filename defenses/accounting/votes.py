"""Account for the labels that teachers' votes release: for all possible votes, for the given votes alone, or for the
given votes with a bound that is published with noise.

Account for released labels of teachers' votes, whatever the votes are: the sensitivities of a histogram of votes.

One teacher that votes otherwise takes a vote from one label and gives it to another: two counts change by one.

Bound the Renyi divergence of GNMax by what the votes were: where teachers agree, a label reveals almost nothing.

The bound depends on the votes, which are private. Whatever is computed here is **not** a claim and must not be
published as it is (``smooth_sensitivity`` releases it with noise).

Publish the data-dependent Renyi divergence of GNMax with noise that its smooth sensitivity allows.

The idea is that of Papernot et al. 2018 (appendix B, after Nissim, Raskhodnikova, Smith 2007). The bound that is
released here is a simpler one than theirs, of which every step can be shown: each query enters only by its **gap**, the
votes of the first label less those of the second. One teacher changes a gap by two at most. With K labels the error
probability is at most (K - 1) times that of the second label, so that the bound in the gap holds, and the largest
bound of all greater gaps makes it fall with the gap. Then

- the local sensitivity of a query with gap g is the change of the bound within two of g;
- after d teachers changed, each gap has moved by 2 d at most, so that the sum over the queries of the largest local
  sensitivity within 2 d bounds that of all queries;
- the largest ``e^(-beta d)`` times this sum is beta-smooth: of neighbours, each one's is at most e^beta the other's.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import dp_accounting
import numpy as np
from dp_accounting.dp_event import LaplaceDpEvent, SelfComposedDpEvent
from numpy.typing import ArrayLike
from scipy.ndimage import maximum_filter1d
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp
from scipy.stats import norm

from ...audit.arrays import FloatArray, IntArray
from ...audit.claim import Adjacency
from ...fl.fields import check_positive
from ..defense import check_epsilon, check_share, check_whole
from .accountant import epsilon_from_rdp, epsilon_of
from .gaussian import gaussian_noise
from .integer_noise import check_order

VOTE_L1, VOTE_L2 = 2.0, math.sqrt(2)
"""L1 and L2 distance of two histograms of which one teacher's vote differs."""
_INTERVAL = 1e-3


def label_noise(*, epsilon: float, delta: float, labels: int) -> float:
    """Return the standard deviation of the Gaussian noise on each vote count with which ``labels`` noisy maxima
    together satisfy (epsilon, delta) (GNMax: Papernot et al. 2018, Section 4.1; analytic Gaussian).

    Each maximum has the Renyi divergence ``order / sigma^2``, that of a Gaussian with noise multiplier sigma / sqrt 2.
    """
    return VOTE_L2 * gaussian_noise(epsilon=epsilon, delta=delta, releases=labels)


def laplace_event(scale: float, labels: int) -> dp_accounting.DpEvent:
    """Return, as an event of dp-accounting, ``labels`` noisy maxima with Laplace noise of this scale; a changed vote
    moves two counts by one.
    """
    return SelfComposedDpEvent(LaplaceDpEvent(scale), 2 * labels)


def laplace_epsilon(scale: float, *, delta: float, labels: int) -> float:
    """Compute epsilon at ``delta`` of ``labels`` noisy maxima with Laplace noise of this ``scale`` on every count.

    At delta 0 it is 2 / scale for each; otherwise the smaller one of this and the composition of the noised counts by
    privacy-loss distributions.
    """
    pure = VOTE_L1 / scale * labels
    if delta == 0:
        return pure
    event = laplace_event(scale, labels)
    return min(pure, epsilon_of(event, delta=delta, adjacency=Adjacency.ADD_REMOVE, interval=_INTERVAL))


def laplace_scale(*, epsilon: float, delta: float, labels: int) -> float:
    """Return the smallest scale (up to a relative error of 1e-4) at which ``labels`` noisy maxima with Laplace noise
    together satisfy (epsilon, delta).
    """
    check_epsilon(epsilon)
    check_whole("labels", labels)
    pure = VOTE_L1 * labels / epsilon

    def excess(scale: float) -> float:
        return laplace_epsilon(scale, delta=delta, labels=labels) - epsilon

    # With a delta less noise may be enough; with half of it at each of many labels it never is below the square root.
    least = pure / max(2.0, 4 * math.sqrt(labels))
    if delta == 0 or excess(pure * (1 - 1e-4)) > 0:
        return pure
    while excess(least) <= 0:
        least /= 2
    found = float(brentq(excess, least, pure, rtol=1e-4))
    # The root may lie on either side within the tolerance; more noise is on the safe one.
    return min(pure, float(np.nextafter(found * (1 + 2e-4), math.inf)))


def log_error(counts: ArrayLike, sigma: float) -> FloatArray:
    """Bound the log probability that GNMax releases a label other than the one with most votes (Papernot et al. 2018,
    Proposition 7): ``ln sum_i erfc(gap_i / (2 sigma)) / 2``, at most 0.

    ``counts``: (..., classes) votes; the result is (...,). Two counts with noise of deviation sigma differ by noise of
    deviation sqrt(2) sigma, and the union bound adds the labels.
    """
    check_positive("sigma", sigma)
    ordered = np.sort(np.asarray(counts, dtype=np.float64), axis=-1)
    gaps = ordered[..., -1:] - ordered[..., :-1]
    return np.asarray(np.minimum(logsumexp(log_ndtr(-gaps / (math.sqrt(2) * sigma)), axis=-1), 0.0))


def gnmax_rdp(log_q: ArrayLike, *, sigma: float, order: float) -> FloatArray:
    """Bound the Renyi divergence of one GNMax label at ``order`` > 1 by the log probability ``log_q`` that it is not
    the most voted one, ``(...,)`` (Papernot et al. 2018, Theorem 6 with the orders of their Proposition 10).

    ``ln((1 - q) A^(order - 1) + q B^(order - 1)) / (order - 1)`` with ``A = (1 - q) / (1 - (q e^e2)^((m2 - 1) /
    m2))``, ``B = e^e1 / q^(1 / (m1 - 1))``, ``m2 = sigma sqrt(ln 1/q)``, ``m1 = m2 + 1``, ``e = m / sigma^2``. Where
    the theorem does not apply, and never above, it is the data-independent ``order / sigma^2``.
    """
    check_positive("sigma", sigma)
    check_order(order)
    logs = np.asarray(log_q, dtype=np.float64)
    general = order / sigma**2
    high = sigma * np.sqrt(-logs)
    # m1 > order, m2 > 1, and q small enough for A to be positive and the bound to grow with q.
    safe = (high > 1) & (high + 1 > order)
    m2 = np.where(safe, high, max(2.0, order))
    q = np.where(safe, logs, -((m2 / sigma) ** 2))
    m1, e1, e2 = m2 + 1, (m2 + 1) / sigma**2, m2 / sigma**2
    safe &= q <= (m2 - 1) * e2 - m2 * (np.log(m1 / (m1 - 1)) + np.log(m2 / (m2 - 1)))
    safe &= q + e2 < 0
    with np.errstate(invalid="ignore", divide="ignore"):
        right = _log1mexp(q)
        log_a = right - _log1mexp((q + e2) * (1 - 1 / m2))
        log_b = e1 - q / (m1 - 1)
        bound = np.logaddexp(right + (order - 1) * log_a, q + (order - 1) * log_b) / (order - 1)
    return np.where(safe, np.clip(bound, 0.0, general), general)


def data_dependent_rdp(counts: ArrayLike, *, sigma: float, order: float) -> float:
    """Bound the Renyi divergence at ``order`` of the labels of all queries, given the votes ``counts (queries,
    classes)``.
    """
    return float(gnmax_rdp(log_error(counts, sigma), sigma=sigma, order=order).sum())


def data_dependent_epsilon(counts: ArrayLike, *, sigma: float, delta: float) -> float:
    """Compute an epsilon at ``delta`` that holds only for these votes, ``counts (queries, classes)``.

    It is **not** a privacy claim: it depends on the private votes and reveals them, and for other votes it is larger.
    """
    logs = log_error(counts, sigma)
    return epsilon_from_rdp(lambda order: float(gnmax_rdp(logs, sigma=sigma, order=order).sum()), delta)


def _log1mexp(x: FloatArray) -> FloatArray:
    """``ln(1 - e^x)`` for x < 0, with all digits near 0 and far below."""
    return np.asarray(np.where(x > -math.log(2), np.log(-np.expm1(x)), np.log1p(-np.exp(x))))


@dataclass(frozen=True, kw_only=True)
class GapBound:
    """A bound on the Renyi divergence of GNMax labels that depends only on the queries' gaps (differences of the two
    largest counts).

    Args:
        teachers: number of votes per query.
        classes: number of labels.
        sigma: standard deviation of the noise on each count.
        order: of the divergence, > 1.
    """

    teachers: int
    classes: int
    sigma: float
    order: float

    def __post_init__(self) -> None:
        check_whole("teachers", self.teachers)
        check_whole("classes", self.classes)
        check_positive("sigma", self.sigma)
        check_order(self.order)

    def gaps(self, counts: ArrayLike) -> IntArray:
        """Return the votes of the first label minus those of the second: ``(..., classes)`` become ``(...,)``."""
        ordered = np.sort(np.asarray(counts), axis=-1)
        return np.asarray(np.rint(ordered[..., -1] - ordered[..., -2]), dtype=np.int64)

    @cached_property
    def by_gap(self) -> FloatArray:
        """The bound for a query with each gap 0..teachers; the bound falls with the gap."""
        gaps = np.arange(self.teachers + 1)
        logs = math.log(self.classes - 1) + log_ndtr(-gaps / (math.sqrt(2) * self.sigma))
        raw = gnmax_rdp(np.minimum(logs, 0.0), sigma=self.sigma, order=self.order)
        return np.asarray(np.maximum.accumulate(raw[::-1])[::-1])

    def total(self, counts: ArrayLike) -> float:
        """Return the bound for the labels of all queries, given the votes ``counts (queries, classes)``."""
        return float(self.by_gap[self.gaps(counts)].sum())

    @cached_property
    def local_sensitivity(self) -> FloatArray:
        """The largest change of one query's bound by one teacher's vote, for each gap 0..teachers."""
        padded = np.pad(self.by_gap, 2, mode="edge")
        here = self.by_gap
        return np.maximum(padded[:-4] - here, here - padded[4:])

    def smooth_sensitivity(self, counts: ArrayLike, beta: float) -> float:
        """Return the beta-smooth sensitivity, which bounds the change of ``total`` between neighbours; ``counts
        (queries, classes)``.
        """
        check_positive("beta", beta)
        number = np.bincount(self.gaps(counts).ravel(), minlength=self.teachers + 1)
        reach, largest = self.local_sensitivity, 0.0
        for distance in range(self.teachers + 1):
            largest = max(largest, math.exp(-beta * distance) * float(number @ reach))
            wider = maximum_filter1d(reach, size=5, mode="nearest")
            if np.array_equal(wider, reach):
                break
            reach = wider
        return largest


@dataclass(frozen=True, kw_only=True)
class SmoothRelease:
    """The mechanism that publishes a number f with Gaussian noise proportional to its smooth sensitivity S, as ``f + S
    noise (z + Z)`` with a standard normal Z. The constant z is so large that the published number lies below f only
    with probability ``shortfall``.

    Args:
        beta: of the smooth sensitivity.
        noise: standard deviation over the smooth sensitivity.
        shortfall: probability that the published number is below f; it determines z.
    """

    beta: float
    noise: float
    shortfall: float

    def __post_init__(self) -> None:
        check_positive("beta", self.beta)
        check_positive("noise", self.noise)
        check_share("shortfall", self.shortfall)

    @property
    def margin(self) -> float:
        """The number z in the definition of the mechanism."""
        return float(norm.isf(self.shortfall))

    def rdp(self, order: float) -> float:
        """Bound the Renyi divergence of the published number at ``order`` > 1; infinite if no bound is known.

        The numbers of neighbours are Gaussians whose deviations have a ratio r in [e^-beta, e^beta], and whose means
        differ by at most the smaller S times ``1 + z noise (e^beta - 1)``. With D = order r^2 + 1 - order > 0, the
        divergence is ``ln r + ln(r^2 / D) / (2 (order - 1)) + order shift^2 / (2 D)``; its first part is largest at an
        end of the range of r, and its second one at r = e^-beta.
        """
        check_order(order)
        least = 1 - order * -math.expm1(-2 * self.beta)
        if least <= 0:
            return math.inf
        shift = (1 + max(0.0, self.margin) * self.noise * math.expm1(self.beta)) / self.noise
        spread = max(self._spread(order, 2 * sign * self.beta) for sign in (-1, 1))
        return spread + order * shift**2 * math.exp(-2 * self.beta) / (2 * least)

    @staticmethod
    def _spread(order: float, log_square: float) -> float:
        """The divergence of two Gaussians of one mean, the ratio of whose variances has this logarithm."""
        inner = math.log1p(order * math.expm1(log_square))
        return log_square / 2 + (log_square - inner) / (2 * (order - 1))

    def sample(self, values: ArrayLike, sensitivities: ArrayLike, draws: ArrayLike) -> FloatArray:
        """Return the published numbers for standard normal ``draws``; the arguments have one shape, or are numbers."""
        noise = self.noise * (self.margin + np.asarray(draws, dtype=np.float64))
        return np.asarray(np.asarray(values) + np.asarray(sensitivities) * noise, dtype=np.float64)
