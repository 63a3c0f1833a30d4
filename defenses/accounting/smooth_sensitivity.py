"""Publish the data-dependent Renyi divergence of GNMax with noise that its smooth sensitivity allows.

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

import numpy as np
from numpy.typing import ArrayLike
from scipy.ndimage import maximum_filter1d
from scipy.special import log_ndtr
from scipy.stats import norm

from ...audit.arrays import FloatArray, IntArray
from ...fl.fields import check_positive
from ..defense import check_share, check_whole
from .data_dependent import gnmax_rdp
from .discrete import check_order


@dataclass(frozen=True, kw_only=True)
class GapBound:
    """A bound on the Renyi divergence of GNMax labels that depends on the gaps of the queries alone.

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
        """Return the votes of the first label less those of the second: ``(..., classes)`` give ``(...,)``."""
        ordered = np.sort(np.asarray(counts), axis=-1)
        return np.asarray(np.rint(ordered[..., -1] - ordered[..., -2]), dtype=np.int64)

    @cached_property
    def by_gap(self) -> FloatArray:
        """The bound for a query of each gap 0..teachers, which falls with the gap."""
        gaps = np.arange(self.teachers + 1)
        logs = math.log(self.classes - 1) + log_ndtr(-gaps / (math.sqrt(2) * self.sigma))
        raw = gnmax_rdp(np.minimum(logs, 0.0), sigma=self.sigma, order=self.order)
        return np.asarray(np.maximum.accumulate(raw[::-1])[::-1])

    def total(self, counts: ArrayLike) -> float:
        """Return the bound for all labels of the queries with votes ``counts (queries, classes)``."""
        return float(self.by_gap[self.gaps(counts)].sum())

    @cached_property
    def local_sensitivity(self) -> FloatArray:
        """The largest change of one query's bound by one teacher's vote, for each gap 0..teachers."""
        padded = np.pad(self.by_gap, 2, mode="edge")
        here = self.by_gap
        return np.maximum(padded[:-4] - here, here - padded[4:])

    def smooth_sensitivity(self, counts: ArrayLike, beta: float) -> float:
        """Return the beta-smooth bound on how much ``total`` differs between neighbours; ``counts (queries,
        classes)``.
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
    """The mechanism that publishes a number f by Gaussian noise in proportion to its smooth sensitivity S: ``f + S
    noise (z + Z)`` with a standard normal Z, so that the number lies below f with probability ``shortfall`` only.

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
        """The z of the definition."""
        return float(norm.isf(self.shortfall))

    def rdp(self, order: float) -> float:
        """Bound the Renyi divergence of the published number at ``order`` > 1; infinite where none is known.

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
