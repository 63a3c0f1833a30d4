"""Account by privacy-loss distributions: of sampled Gaussian noise in arrays, and of half a million equal releases.

Accountant for privacy-loss distributions that computes those of sampled Gaussian noise in arrays.

It is the accountant of the library dp-accounting with equal numbers; the library inverts the privacy loss of one point
after the other, which takes most of its time.

Compose up to half a million releases with equal privacy profiles by convolution of privacy-loss distributions.

Rounding each loss up would cost ``releases * interval``, which is too much for all coordinates of all rounds.
Connecting the dots of the profile (Doroshenko et al. 2022, Algorithm 1) is as sound and only widens each loss by a
fraction of its own spread.

The distribution of the sum of many independent losses that follow the same distribution on a grid.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from dp_accounting.dp_event import GaussianDpEvent, MixtureOfGaussiansDpEvent, PoissonSampledDpEvent
from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import (
    AdjacencyType,
    GaussianPrivacyLoss,
    MixtureGaussianPrivacyLoss,
)
from dp_accounting.privacy_accountant import NeighboringRelation
from scipy.fft import irfft, next_fast_len, rfft

from ...audit.arrays import BoolArray, FloatArray
from ...audit.curve import ProfileCurve
from ...fl.fields import check_positive
from ..defense import check_delta, check_whole

_HALVINGS = 40
"""Of the range of outputs, after which a cut-off is known to 1e-10 of it."""
_Inverse = Callable[[FloatArray], FloatArray]
"""Privacy losses -> the largest outputs whose privacy loss is at least as large."""


class ArrayPLDAccountant(PLDAccountant):  # type: ignore[misc]
    """An accountant like ``PLDAccountant`` that is several times faster for Poisson-subsampled Gaussian noise and for
    mixtures of Gaussians.
    """

    _pld: Any

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        if not do_compose or self.neighboring_relation is NeighboringRelation.REPLACE_ONE:
            return super()._maybe_compose(event, count, do_compose)
        one, interval = None, self._value_discretization_interval
        if _is_sampled(event):
            one = partial(_of_sampled, event.event.noise_multiplier, event.sampling_probability, interval)
        elif _is_mixture(event):
            one = partial(_of_mixture, event, interval)
        if one is None:
            return super()._maybe_compose(event, count, do_compose)
        both = PrivacyLossDistribution(one(AdjacencyType.REMOVE), one(AdjacencyType.ADD))
        self._pld = self._pld.compose(both.self_compose(count))
        return None


def _is_sampled(event: Any) -> bool:
    return (
        isinstance(event, PoissonSampledDpEvent)
        and isinstance(event.event, GaussianDpEvent)
        and 0 < event.sampling_probability < 1
        and event.event.noise_multiplier > 0
    )


def _is_mixture(event: Any) -> bool:
    """Whether an event is a mixture of Gaussians one of which is that of a release without the unit."""
    return (
        isinstance(event, MixtureOfGaussiansDpEvent)
        and event.standard_deviation > 0
        and min(event.sensitivities) == 0 < max(event.sensitivities)
        and min(event.sampling_probs) > 0
    )


def _of_sampled(sigma: float, rate: float, interval: float, kind: AdjacencyType) -> Any:
    """The discretised distribution of the privacy loss of one sampled release; ``interval``: step of the losses."""
    loss = GaussianPrivacyLoss(sigma, sensitivity=1, sampling_prob=rate, adjacency_type=kind)
    inverse = partial(_inverse, sigma=sigma, rate=rate, removing=kind is AdjacencyType.REMOVE)
    return _pmf(loss, inverse, rate, kind, interval)


def _of_mixture(event: Any, interval: float, kind: AdjacencyType) -> Any:
    """The same for one release whose sensitivity is random."""
    loss = MixtureGaussianPrivacyLoss(
        event.standard_deviation, event.sensitivities, event.sampling_probs, adjacency_type=kind
    )
    rate = sum(chance for chance, moved in zip(event.sampling_probs, event.sensitivities, strict=True) if moved)
    return _pmf(loss, partial(_searched, loss, event, kind), rate, kind, interval)


def _pmf(loss: Any, inverse: _Inverse, rate: float, kind: AdjacencyType, interval: float) -> Any:
    bounds = loss.connect_dots_bounds()
    low, high = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
    deltas = _deltas(loss, inverse, rate, kind, np.arange(low, high + 1) * interval)
    return create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)


def _searched(loss: Any, event: Any, kind: AdjacencyType, losses: FloatArray) -> FloatArray:
    """The inverse of a mixture's privacy loss by bisection of all ``losses`` at once."""
    moved, chances = (np.asarray(one, dtype=np.float64) for one in (event.sensitivities, event.sampling_probs))
    variance, sign = event.standard_deviation**2, 1.0 if kind is AdjacencyType.REMOVE else -1.0
    tails = loss.privacy_loss_tail()
    # Beyond the tails the loss changes by less than a step of the grid before no mass is left.
    low = np.full_like(losses, tails.lower_x_truncation - event.standard_deviation)
    high = np.full_like(losses, tails.upper_x_truncation + event.standard_deviation)
    logs = np.log(chances) - moved**2 / (2 * variance)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        terms = logs - sign * np.multiply.outer(middle, moved) / variance
        top = terms.max(axis=1)
        there = sign * (top + np.log(np.exp(terms - top[:, np.newaxis]).sum(axis=1)))
        enough = there >= losses
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    return low


def _deltas(loss: Any, inverse: _Inverse, rate: float, kind: AdjacencyType, epsilons: FloatArray) -> FloatArray:
    """Delta at each epsilon, as ``get_delta_for_epsilon`` of the privacy loss computes it."""
    removing = kind is AdjacencyType.REMOVE
    deltas = np.zeros_like(epsilons)
    if removing:
        inside: BoolArray = epsilons > math.log1p(-rate)
        deltas[~inside] = -np.expm1(epsilons[~inside])
    else:
        inside = epsilons < -math.log1p(-rate)
    cutoffs = inverse(epsilons[inside])
    deltas[inside] = loss.mu_upper_cdf(cutoffs) - np.exp(epsilons[inside] + loss.mu_lower_log_cdf(cutoffs))
    return np.asarray(np.clip(deltas, 0, 1))


def _inverse(losses: FloatArray, *, sigma: float, rate: float, removing: bool) -> FloatArray:
    """The largest outputs whose privacy loss under Poisson sampling is at least ``losses``."""
    sign = 1.0 if removing else -1.0
    # log(1 + (exp(loss) - 1) / rate): the loss of the same output without subsampling.
    d, c = sign * losses + np.log(1 / rate), np.log(1 / rate - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = sign * (d + np.log1p(-np.exp(c - d)))
    whole[losses == 0] = sign * np.log(1 / rate + (1 - 1 / rate))
    edge = math.log(1 - rate) * sign
    whole[np.abs(losses - edge) <= 1e-9 * np.maximum(np.abs(losses), abs(edge))] = -sign * math.inf
    outputs: FloatArray = -0.5 - whole * sigma**2
    return outputs if removing else np.asarray(1 + outputs)


_DOTS_PER_SPREAD = 16
_MOST_DOTS = 8000
_FARTHEST = 100.0
_CUT_OFF = 1e-15
_LEAST_DELTA = 1e-9
_ROUNDING = 1e-11  # Error of the transforms.
_EACH = 2e-15  # Error of one profile value.


class Profile(Protocol):
    """A release that is described by its privacy profile, delta as a function of epsilon; the profile is the same in
    both directions of the neighbouring relation. Instances must be hashable.
    """

    @property
    def pure_epsilon(self) -> float:
        """Return the epsilon of one release at delta 0; infinity if no finite one is known."""
        ...

    def delta(self, epsilon: float) -> float:
        """Return delta at ``epsilon`` >= 0: the hockey-stick divergence between neighbouring inputs."""
        ...

    def __hash__(self) -> int: ...


def many_epsilon(profile: Profile, *, releases: int, delta: float) -> float:
    """Compute the epsilon at ``delta`` of ``releases`` releases that have the same privacy profile and independent
    noise; each release may depend on earlier ones.

    It never exceeds the sum of their pure epsilons, which the dots of a few releases alone would exceed. ``profile``
    must be that of one pair that dominates every release (Zhu, Dong, Wang 2022).

    Raises:
        ValueError: for ``delta`` outside [1e-9, 1), or one that the rounding of the releases alone exceeds.
    """
    check_delta(delta)
    slack = _ROUNDING + releases * _EACH
    if delta < max(_LEAST_DELTA, 2 * slack):
        raise ValueError(f"delta must be >= {max(_LEAST_DELTA, 2 * slack):g} for {releases} releases, got {delta}")
    return min(_composed(profile, releases).epsilon(delta - slack), releases * profile.pure_epsilon)


def many_curve(profile: Profile, *, releases: int, reach: float, failure: float = 0.0) -> ProfileCurve:
    """Return the privacy profile (delta as a function of epsilon) of the composition of ``releases`` releases.

    Args:
        reach: an epsilon; the profile is computed on a grid from 0 to three times it, and at it exactly.
        failure: a probability that is added to every delta.
    """
    check_positive("reach", reach)
    epsilons = np.union1d(np.linspace(0.0, 3 * reach, 120), reach)
    slack = failure + _ROUNDING + releases * _EACH
    deltas = np.minimum(1.0, _composed(profile, releases).delta(epsilons) + slack)
    deltas[epsilons >= releases * profile.pure_epsilon] = failure
    kept = tuple(deltas.tolist())
    return ProfileCurve(epsilons=tuple(epsilons.tolist()), delta_remove=kept, delta_add=kept)


@dataclass(frozen=True, eq=False)
class _Losses:
    """A privacy-loss distribution from loss 0 on: the mass above each loss, and the logarithm of that mass discounted
    by e^-loss.
    """

    losses: FloatArray
    above: FloatArray
    log_discounted: FloatArray

    def delta(self, epsilons: FloatArray) -> FloatArray:
        at = np.searchsorted(self.losses, epsilons, side="right")
        return np.asarray(
            np.maximum(0.0, self.above[at] - np.exp(epsilons + self.log_discounted[at])), dtype=np.float64
        )

    def epsilon(self, delta: float) -> float:
        """Compute the smallest epsilon at ``delta``; it is at most the largest finite privacy loss."""
        within = np.flatnonzero(self.delta(self.losses) <= delta)
        if not within.size:
            raise ValueError(
                f"delta must be above {self.above[-1]:.3g}, the probability of a privacy failure at every epsilon, "
                f"got {delta}"
            )
        first = int(within[0])
        return max(0.0, math.log(max(self.above[first] - delta, 1e-300)) - float(self.log_discounted[first]))


@lru_cache(maxsize=32)
def _composed(profile: Profile, releases: int) -> _Losses:
    check_whole("releases", releases)
    interval, dots, masses, infinite = _dotted(profile, releases)
    lowest, composed = self_convolved(masses, releases, _CUT_OFF)
    # Mass that the convolution cut off counts as an infinite loss, so that it can only raise delta.
    infinite = _CUT_OFF - math.expm1(releases * math.log1p(-infinite))
    losses = interval * (lowest - dots * releases + np.arange(len(composed), dtype=np.float64))
    kept = losses >= 0
    losses, chances = losses[kept], composed[kept]
    above = np.append(np.cumsum(chances[::-1])[::-1], 0.0) + infinite
    with np.errstate(divide="ignore"):
        # In logarithms: e^-loss underflows long before the largest losses.
        each = np.append(np.log(np.maximum(chances, 0.0)) - losses, -np.inf)
    return _Losses(losses, above, np.logaddexp.accumulate(each[::-1])[::-1])


class _Dots(NamedTuple):
    """Masses of the losses ``interval * (-dots .. dots)`` and of an infinite one."""

    interval: float
    dots: int
    masses: FloatArray
    infinite: float


def _dotted(profile: Profile, releases: int) -> _Dots:
    """One release on a grid around its spread; losses beyond the last dot count as infinite."""
    # The total variation is about .4 standard deviations of the loss.
    spread = 2.5 * max(profile.delta(0.0), 1e-9)
    reach = spread
    while profile.delta(reach) > _CUT_OFF / releases and reach < _FARTHEST:
        reach *= 1.5
    dots = math.ceil(min(_MOST_DOTS, _DOTS_PER_SPREAD * reach / spread))
    interval = reach / dots
    ahead = np.minimum(1.0, [profile.delta(interval * dot) for dot in range(dots + 1)])
    # By symmetry of the two directions, H(-e) = 1 - exp(-e) (1 - H(e)).
    behind = 1 - np.exp(-interval * np.arange(dots, 0, -1)) * (1 - ahead[:0:-1])
    deltas = np.minimum.accumulate(np.concatenate([behind, ahead]))
    falls, grown = np.diff(deltas), math.expm1(interval)
    inner = (falls[1:] - math.exp(interval) * falls[:-1]) / grown
    masses = np.concatenate([[1 - deltas[0] + falls[0] / grown], inner, [falls[-1] / math.expm1(-interval)]])
    return _Dots(interval, dots, np.maximum(masses, 0.0), float(deltas[-1]))


_ORDERS = 20
"""Orders of the moments on each side of zero from which the window is bounded, in units of 1 / length."""


def self_convolved(masses: FloatArray, times: int, cut_off: float) -> tuple[int, FloatArray]:
    """Return the place of the first sum in a window of the grid, and the masses of the sums ``(k,)`` from there on.

    The window leaves out at most ``cut_off`` of the mass, which the transform adds to masses inside; rounding may make
    small masses negative, by about 1e-16.

    Args:
        masses: masses ``(n,)`` of the places 0 to n - 1.
        times: number of losses that are added up, at least 1.
        cut_off: mass, above 0, that the window may leave out.
    """
    first, last = _window(masses, times, cut_off)
    length = last - first + 1
    period = next_fast_len(max(length, len(masses)), real=True)
    sums = irfft(rfft(masses, period) ** times, period)
    return first, np.asarray(np.roll(sums, -first)[:length], dtype=np.float64)


def _window(masses: FloatArray, times: int, cut_off: float) -> tuple[int, int]:
    """The first and the last place of the sum outside of which there is at most ``cut_off``, by Chernoff's bound."""
    count = len(masses)
    first, last, beyond = 0, (count - 1) * times, math.log(2 / cut_off)
    up = np.exp(np.arange(count) / count)
    down = 1 / up
    rising, falling = masses.copy(), masses.copy()
    for order in range(1, _ORDERS + 1):
        rising *= up
        falling *= down
        high, low = float(rising.sum()), float(falling.sum())
        if high > 0:
            last = min(last, math.ceil((times * math.log(high) + beyond) * count / order))
        if low > 0:
            first = max(first, math.floor(-(times * math.log(low) + beyond) * count / order))
    return first, last
