"""Account by privacy-loss distributions: of sampled Gaussian noise in arrays, and of half a million equal releases.

Losses of sampled Gaussian noise lie on a grid that follows the spread of one release's loss. Dots that are h apart add
up to h^2 / 4 to the variance of every release, which over ten million releases with losses of 1e-4 must not be seen.
Before the losses are added up they are weighted by e^(order * loss), so that the errors of the Fourier transform are
small against the tail that is asked for and not against 1 (Wilson and Keich 2016, "Accurate pairwise convolutions",
section 2).

Compose up to half a million releases with equal privacy profiles by convolution of privacy-loss distributions.

Rounding each loss up would cost ``releases * interval``, which is too much for all coordinates of all rounds.
Connecting the dots of the profile (Doroshenko et al. 2022, Algorithm 1) is as sound and only widens each loss by a
fraction of its own spread.

The distribution of the sum of many independent losses that follow the same distribution on a grid.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from dp_accounting.dp_event import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    MixtureOfGaussiansDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import log_ndtr, ndtri

from ...audit.arrays import FloatArray
from ...audit.curve import ProfileCurve, delta_from_mu, epsilon_from_mu
from ...fl.fields import check_positive
from ..defense import check_delta, check_whole

_HALVINGS = 60
_DOTS_APART = 0.1
"""Distance of the dots over the spread of one release's loss: it adds at most .25 % to the variance."""
_LONGEST = 2.0**-17
"""Distance of the dots over the spread of all losses together, below which the arrays are too long."""
_TAIL = 1e-6
"""Share of delta that the tails of all releases together may hold."""
_LEAST_TAIL = 1e-110
_TRANSFORM = 1e-15
"""Relative error of the transform of one release."""
_STANDARD = np.polynomial.hermite_e.hermegauss(60)


class GaussianMixture(NamedTuple):
    """A mechanism of ``releases`` releases with Gaussian noise ``sigma``. The unit moves each release by one of the
    distances ``moved``, drawn with the probabilities ``chances``; under replace-one, the unit's replacement moves the
    release as far in the other direction.
    """

    sigma: float
    moved: tuple[float, ...]
    chances: tuple[float, ...]
    releases: int
    replaced: bool = False

    def loss(self, outputs: FloatArray) -> FloatArray:
        """Return the privacy loss, with the unit over without it, of each of ``outputs`` in units of sigma."""
        ahead = self._log_ratio(outputs)
        return ahead - self._log_ratio(-outputs) if self.replaced else ahead

    def _log_ratio(self, outputs: FloatArray) -> FloatArray:
        total = np.full(np.shape(outputs), -np.inf)
        for moved, chance in zip(self.moved, self.chances, strict=True):
            centre = moved / self.sigma
            total = np.logaddexp(total, math.log(chance) + centre * (outputs - centre / 2))
        return total

    @property
    def square(self) -> float:
        """Return the mean square of one release's privacy loss, by Gauss-Hermite quadrature."""
        nodes, weights = _STANDARD
        each = (self.loss(nodes + moved / self.sigma) ** 2 @ weights for moved in self.moved)
        return float(sum(c * one for c, one in zip(self.chances, each, strict=True)) / weights.sum())

    def dots(self, interval: float, tail: float) -> tuple["_Dots", "_Dots"]:
        """Discretise the privacy loss of one release by connecting the dots: masses that keep, between neighbouring
        dots, the probabilities with and without the unit. The first result is for the loss with the unit over without
        it, the second for the opposite loss.

        Outputs beyond the quantiles ``tail`` have the loss of the last dot or an infinite one.
        """
        reach, farthest = -float(ndtri(tail)), self.moved[-1] / self.sigma
        ends = np.array([-reach - (farthest if self.replaced else 0.0), farthest + reach])
        low, high = self.loss(ends) / interval
        first, last = math.floor(low), math.ceil(high)
        losses = interval * np.arange(first, last + 1)
        edges = np.concatenate([[-np.inf], self._outputs(losses, *ends), [np.inf]])
        logs = np.log(self.chances)
        centres = np.asarray(self.moved) / self.sigma
        one = gaussian_masses(edges, centres, logs)
        other = gaussian_masses(edges, -centres, logs) if self.replaced else np.exp(gaussian_cells(edges))
        return _connected(first, interval, one, other), _connected(-last, interval, other[::-1], one[::-1])

    def _outputs(self, losses: FloatArray, lowest: float, highest: float) -> FloatArray:
        """The outputs that have these losses, in units of sigma."""
        if self.moved[:-1] in ((), (0.0,)) and not self.replaced:
            centre, chance = self.moved[-1] / self.sigma, self.chances[-1]
            with np.errstate(divide="ignore"):
                ratio = np.log1p(np.maximum(np.expm1(np.minimum(losses, 500.0)) / chance, -1.0))
            # Far out 1 is nothing against e^loss, which overflows.
            return np.where(losses < 500.0, ratio, losses - math.log(chance)) / centre + centre / 2
        low, high = np.full_like(losses, lowest - 1.0), np.full_like(losses, highest + 1.0)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            enough = self.loss(middle) >= losses
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high


class _Dots(NamedTuple):
    """Masses of the losses from ``first`` steps of the grid on, and of an infinite one."""

    first: int
    masses: FloatArray
    infinite: float


def _connected(first: int, interval: float, one: FloatArray, other: FloatArray) -> _Dots:
    """Connect dots from ``first`` on: masses that keep both probabilities of the outputs between two neighbours."""
    between = one[1:-1]
    # A factor that overflows may be any smaller one, which moves more mass up.
    lower = np.exp(np.minimum(interval * (first + np.arange(len(between))), 700.0)) * other[1:-1]
    upper = np.clip((between - lower) / -math.expm1(-interval), 0.0, between)
    return _Dots(first, np.append(between - upper, 0.0) + np.append(one[0], upper), float(one[-1]))


def gaussian_mixtures(event: DpEvent, releases: int = 1, *, replaced: bool = False) -> list[GaussianMixture] | None:
    """Return the parts of a mechanism that consists only of Gaussian releases, Poisson-sampled or not; None for any
    other mechanism.
    """
    if isinstance(event, SelfComposedDpEvent):
        return gaussian_mixtures(event.event, releases * event.count, replaced=replaced)
    if isinstance(event, ComposedDpEvent):
        found = [gaussian_mixtures(part, releases, replaced=replaced) for part in event.events]
        return None if None in found else [one for part in found for one in part or ()]
    rate = 1.0
    if isinstance(event, PoissonSampledDpEvent):
        rate, event = event.sampling_probability, event.event
    if isinstance(event, GaussianDpEvent) and event.noise_multiplier > 0 and rate > 0:
        part = GaussianMixture(event.noise_multiplier, (0.0, 1.0), (1 - rate, rate), releases, replaced)
        return [part if rate < 1 else part._replace(moved=(1.0,), chances=(1.0,))]
    if isinstance(event, MixtureOfGaussiansDpEvent) and rate == 1 and event.standard_deviation > 0 and not replaced:
        drawn = sorted(zip(event.sensitivities, event.sampling_probs, strict=True))
        if drawn[0][0] >= 0 and drawn[-1][0] > 0 and min(event.sampling_probs) > 0:
            moved, chances = zip(*drawn, strict=True)
            return [GaussianMixture(event.standard_deviation, moved, chances, releases)]
    return None


@dataclass(frozen=True, eq=False)
class MixtureAccountant:
    """An accountant of Gaussian mixtures. The accountant's epsilon and delta hold for both directions of adjacency, and
    their numerical error is on the safe side.

    ``interval``: largest distance of the dots on which losses lie; they are closer where one release loses little.
    """

    mixtures: Sequence[GaussianMixture]
    interval: float

    @property
    def _step(self) -> float:
        releases = sum(one.releases for one in self.mixtures)
        spread = math.sqrt(sum(one.releases * one.square for one in self.mixtures))
        return spread * max(_LONGEST, min(self.interval / spread, _DOTS_APART / math.sqrt(releases)))

    @property
    def _mu(self) -> float | None:
        if any(one.chances != (1.0,) for one in self.mixtures):
            return None
        apart = ((2 if one.replaced else 1) * one.moved[0] / one.sigma for one in self.mixtures)
        return math.hypot(*(math.sqrt(one.releases) * far for one, far in zip(self.mixtures, apart, strict=True)))

    def get_epsilon(self, delta: float) -> float:
        """Return epsilon at ``delta`` in (0, 1); infinity if ``delta`` is too small. The result is a closed form if
        nothing is sampled (Dong, Roth, Su 2022, Corollary 3.3).
        """
        if self._mu is not None:
            return epsilon_from_mu(self._mu, delta)
        weighted = self._losses(delta, tilted=True)
        found = max(_known_epsilon(losses, delta) for losses in weighted)
        if max(float(losses.losses[0]) for losses in weighted) < found < math.inf:
            return found
        # Where one release in many loses much, the weights may lie beyond the quantile, and both are upper bounds.
        return min(found, max(_known_epsilon(losses, delta) for losses in self._losses(delta, tilted=False)))

    def get_delta(self, epsilon: float) -> float:
        """Return delta at ``epsilon`` >= 0."""
        if self._mu is not None:
            return delta_from_mu(self._mu, epsilon)
        at = np.array([epsilon])
        return max(float(losses.delta(at)[0]) for losses in self._untilted)

    @cached_property
    def _untilted(self) -> "list[_Losses]":
        return self._losses(_CUT_OFF, tilted=False)

    def _losses(self, delta: float, *, tilted: bool) -> "list[_Losses]":
        """The losses of all releases, with the unit against without and reversed."""
        step, releases = self._step, [one.releases for one in self.mixtures]
        dots = [one.dots(step, max(_LEAST_TAIL, _TAIL * delta / sum(releases))) for one in self.mixtures]
        cut_off = _CUT_OFF if tilted else max(_CUT_OFF, _TAIL * delta)
        target = delta if tilted else None
        return [_added(step, parts, releases, target, cut_off) for parts in zip(*dots, strict=True)]


def _known_epsilon(losses: "_Losses", delta: float) -> float:
    try:
        return losses.epsilon(delta)
    except ValueError:
        return math.inf


def _added(
    step: float, dots: Sequence[_Dots], releases: Sequence[int], delta: float | None, cut_off: float
) -> "_Losses":
    """The sum of all losses, accurate around its quantile ``delta``; None: to the same absolute error everywhere."""
    order, powers = 0.0, [(one.masses, times) for one, times in zip(dots, releases, strict=True)]
    if delta is not None:
        orders = _orders(powers)
        order = float(orders[np.argmin((_log_moments(powers, orders) - math.log(delta)) / orders)])
    scales = [float(_log_moments([(one.masses, 1)], np.array([order]))[0]) for one in dots]
    with np.errstate(divide="ignore"):
        weighted = [
            (np.exp(np.log(masses) + order * np.arange(len(masses)) - scale), times)
            for (masses, times), scale in zip(powers, scales, strict=True)
        ]
    begun, sums = convolved(weighted, cut_off)
    places = begun + np.arange(len(sums))
    back, error = np.dot(scales, releases) - order * places, sum(releases) * _TRANSFORM
    chances = np.maximum(sums, 0.0) * np.exp(np.minimum(back, 700.0)) * (1 + error)
    # Mass that the convolution cut off counts as an infinite loss, so that it can only raise delta.
    infinite = (cut_off + (0.0 if order else error)) * math.exp(min(700.0, back[-1]))
    infinite -= math.expm1(sum(times * math.log1p(-one.infinite) for one, times in zip(dots, releases, strict=True)))
    losses = step * (np.dot([one.first for one in dots], releases) + places)
    kept = losses >= 0
    kept[-1] = True
    losses, chances = losses[kept], chances[kept]
    above = np.append(np.cumsum(chances[::-1])[::-1], 0.0) + infinite
    with np.errstate(divide="ignore"):
        # In logarithms: e^-loss underflows long before the largest losses.
        each = np.append(np.log(chances) - losses, -np.inf)
    return _Losses(losses, above, np.logaddexp.accumulate(each[::-1])[::-1])


def gaussian_masses(edges: FloatArray, centres: FloatArray, logs: FloatArray) -> FloatArray:
    """Return the probability masses of a mixture of standard Gaussians between neighbouring ``edges``; ``logs``: the
    logarithms of the probabilities of its ``centres``.
    """
    total = np.full(len(edges) - 1, -np.inf)
    for centre, log in zip(centres, logs, strict=True):
        total = np.logaddexp(total, log + gaussian_cells(edges - centre))
    return np.asarray(np.exp(total), dtype=np.float64)


def gaussian_cells(edges: FloatArray) -> FloatArray:
    """Return the logarithm of the standard Gaussian's mass between neighbouring ``edges``, from the nearer tail."""
    low, high = edges[:-1], edges[1:]
    with np.errstate(invalid="ignore", divide="ignore"):
        mirrored = low + high > 0
        near = log_ndtr(np.where(mirrored, -low, high))
        far = log_ndtr(np.where(mirrored, -high, low))
        found = near + np.log1p(-np.exp(np.minimum(far - near, 0.0)))
    return np.where(high > low, found, -np.inf)


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
                f"delta must be above {self.above[-1]:.3g}, the probability that privacy fails at any epsilon, "
                f"got {delta}"
            )
        first = int(within[0])
        # Below the first loss nothing is known.
        least = max(0.0, float(self.losses[0]))
        return max(least, math.log(max(self.above[first] - delta, 1e-300)) - float(self.log_discounted[first]))


@lru_cache(maxsize=32)
def _composed(profile: Profile, releases: int) -> _Losses:
    check_whole("releases", releases)
    step, dots = _dotted(profile, releases)
    return _added(step, [dots], [releases], None, _CUT_OFF)


def _dotted(profile: Profile, releases: int) -> tuple[float, _Dots]:
    """The step of a grid around the spread of one release, and its dots; losses beyond the last count as infinite."""
    # The total variation is about .4 standard deviations of the loss.
    spread = 2.5 * max(profile.delta(0.0), 1e-9)
    reach = spread
    while profile.delta(reach) > _CUT_OFF / releases and reach < _FARTHEST:
        reach *= 1.5
    dots = math.ceil(min(_MOST_DOTS, _DOTS_PER_SPREAD * reach / spread))
    interval = reach / dots
    ahead = _convex(
        np.expm1(interval * np.arange(dots + 1)),
        np.minimum(1.0, [profile.delta(interval * dot) for dot in range(dots + 1)]),
    )
    # By symmetry of the two directions, H(-e) = 1 - exp(-e) (1 - H(e)).
    behind = 1 - np.exp(-interval * np.arange(dots, 0, -1)) * (1 - ahead[:0:-1])
    deltas = np.minimum.accumulate(np.concatenate([behind, ahead]))
    falls, grown = np.diff(deltas), math.expm1(interval)
    inner = (falls[1:] - math.exp(interval) * falls[:-1]) / grown
    masses = np.concatenate([[1 - deltas[0] + falls[0] / grown], inner, [falls[-1] / math.expm1(-interval)]])
    return interval, _Dots(-dots, np.maximum(masses, 0.0), float(deltas[-1]))


def _convex(ratios: FloatArray, deltas: FloatArray) -> FloatArray:
    """The largest convex function of e^epsilon that is nowhere above ``deltas``: a divergence is convex, and so below
    it where the deltas are upper bounds with errors of their own.
    """
    kept = [0]
    for dot in range(1, len(deltas)):
        while len(kept) > 1:
            first, last = kept[-2:]
            fallen = (deltas[last] - deltas[first]) * (ratios[dot] - ratios[last])
            if fallen < (deltas[dot] - deltas[last]) * (ratios[last] - ratios[first]):
                break
            kept.pop()
        kept.append(dot)
    return np.interp(ratios, ratios[kept], deltas[kept])


_TOGETHER = 2**16

_Power = tuple[FloatArray, int]
"""Masses ``(n,)`` of the places 0 to n - 1 of a grid, and the number of losses with them, at least 1."""


def convolved(powers: Sequence[_Power], cut_off: float) -> tuple[int, FloatArray]:
    """Convolve privacy losses on a grid: return the grid index of the first sum of all losses in a window, and the
    masses of the sums ``(k,)`` from there on.

    The window leaves out at most ``cut_off`` > 0 of the mass, which the transform adds to masses inside; rounding may
    make small masses negative, by about 1e-16.
    """
    first, last = _window(powers, cut_off)
    length = last - first + 1
    period = next_fast_len(max(length, *(len(masses) for masses, _ in powers)), real=True)
    transform: FloatArray = np.ones(period // 2 + 1)
    for masses, times in powers:
        transform = transform * _power(rfft(masses, period), times)
    sums = irfft(transform, period)
    return first, np.asarray(np.roll(sums, -first)[:length], dtype=np.float64)


def _power(numbers: FloatArray, times: int) -> FloatArray:
    """The numbers to the power ``times`` >= 1, by squaring: numpy's power of complex numbers takes 20 times as long."""
    if times == 1:
        return numbers
    squared = _power(numbers * numbers, times // 2)
    return squared * numbers if times % 2 else squared


def _window(powers: Sequence[_Power], cut_off: float) -> tuple[int, int]:
    """The first and the last place of the sum outside of which there is at most ``cut_off``, by Chernoff's bound."""
    orders, beyond = _orders(powers), math.log(2 / cut_off)
    last, first = ((_log_moments(powers, sign * orders) + beyond) / (sign * orders) for sign in (1, -1))
    longest = sum((len(masses) - 1) * times for masses, times in powers)
    ends = (np.ceil(last[np.isfinite(last)]), np.floor(first[np.isfinite(first)]))
    return max(0, int(ends[1].max(initial=0))), min(longest, int(ends[0].min(initial=longest)))


def _orders(powers: Sequence[_Power]) -> FloatArray:
    """Orders of moments that reach from the middle of the sum into its far tails."""
    variance, longest = 1e-6, max(len(masses) for masses, _ in powers)
    for masses, times in powers:
        places = np.arange(len(masses))
        mean = masses @ places / max(masses.sum(), 1e-300)
        variance += times * float(masses @ (places - mean) ** 2)
    return np.geomspace(min(0.1 / math.sqrt(variance), 5 / longest), max(60 / math.sqrt(variance), 3000 / longest), 40)


def _log_moments(powers: Sequence[_Power], orders: FloatArray) -> FloatArray:
    """The logarithm of the mean of e^(order * sum), one for each of ``orders``."""
    total = np.zeros(len(orders))
    with np.errstate(divide="ignore"):
        for masses, times in powers:
            places = np.flatnonzero(masses)
            logs = np.log(masses[places])
            # Orders of short arrays together, of long ones by themselves, which takes less memory.
            width = max(1, _TOGETHER // (1 + len(places)))
            for start in range(0, len(orders), width):
                terms = logs + orders[start : start + width, np.newaxis] * places
                tops = terms.max(axis=1, initial=-1e300)
                sums = np.exp(terms - tops[:, np.newaxis]).sum(axis=1)
                total[start : start + width] += times * (np.log(sums) + tops)
    return total
