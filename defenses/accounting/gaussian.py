"""Compute the privacy of Gaussian noise, of one size or of one per layer, and the noise that a budget requires.

Compute epsilon, delta and the trade-off curve of Gaussian noise, and the noise that a privacy budget requires.

Compute the joint privacy of Gaussian releases in which each layer of a model has its own clip norm and noise.

FedRE (Xiao et al. 2025) sets its noise by equation 9, sigma = sqrt(2 T ln(1/delta)) / eps, which does not keep (eps,
delta) at every eps (at a layer's eps 10 it gives 10.5 where two inputs are C apart, and 25.8 where they are 2C apart),
but is more than enough at the paper's budgets if the noise is on a mean of ten or more samples' gradients.
Its corollary 1 adds the layers' epsilons, which is valid and loose; Gaussians compose by the root of the sum of
squares: ten layers at eps 1 and delta 1e-6 each are jointly 5.43 at delta 1e-5 by equation 9 (2C apart; 2.45 at C),
3.14 where each is calibrated.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import dp_accounting
import numpy as np
from scipy.optimize import brentq

from ...audit.claim import Adjacency
from ...audit.curve import GaussianCurve, ProfileCurve, delta_from_mu, epsilon_from_mu, mu_from_epsilon
from ...fl.fields import check_positive
from ..defense import check_budget, check_delta, check_whole
from .accountant import Method, compose, epsilon_of, gaussian_steps, sensitivity
from .pld import many_curve, many_epsilon

if TYPE_CHECKING:
    from ...fl.sampling import Sampling

_INTERVAL = 1e-3
_TOLERANCE = 1e-4
_ROUNDING = 1e-12  # FFT leaves errors of about 1e-14 in delta, and a stated curve must not promise more than holds.
LEAST_NOISE = 0.3
"""Noise over the sensitivity of one release below which no claim is stated."""


@dataclass(frozen=True, kw_only=True)
class SampledGaussian:
    """A mechanism of ``steps`` Gaussian releases, each computed on a Poisson sample drawn at ``rate``; neighbours
    differ by adding or removing one record, client or user. With ``fixed``, samples are uniform subsets of fixed size,
    and neighbours differ by replacing one record, client or user.

    Args:
        sigma: noise standard deviation over the **add/remove** sensitivity (the clip norm).
        parts: parts of equal sensitivity of which the record, client or user consists, each drawn independently at
            ``rate``, such as the samples of one user at several clients.
    """

    sigma: float
    rate: float
    steps: int
    parts: int = 1
    fixed: bool = False

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        if not 0 < self.rate <= 1 or self.steps < 1 or self.parts < 1:
            raise ValueError(
                f"the sampling rate must be in (0, 1] and the numbers of steps and parts >= 1, got rate {self.rate}, "
                f"{self.steps} steps and {self.parts} parts"
            )

    def epsilon(self, delta: float, method: Method = Method.PLD) -> float:
        """Compute epsilon at ``delta`` in (0, 1), by default with privacy-loss distributions; most papers publish the
        larger epsilon of Renyi accounting.
        """
        if self.fixed:
            return many_epsilon(self._subset, releases=self.steps, delta=delta)
        return _epsilon(self, delta, method)

    @property
    def _subset(self) -> "FixedSizeGaussian":
        # Replacing one moves a sum by two clip norms.
        return FixedSizeGaussian(self.sigma / 2, self.rate)

    @property
    def event(self) -> dp_accounting.DpEvent:
        """Return the mechanism as an event, the form in which the library dp-accounting composes mechanisms."""
        return gaussian_steps(sigma=self.sigma, rate=self.rate, steps=self.steps, parts=self.parts)

    def curve(self, reach: float) -> ProfileCurve:
        """Return delta as a function of epsilon (the privacy profile, equal for adding and removing) on a grid of
        epsilons from 0 to three times the epsilon ``reach``, which is itself a grid point.

        The accountant returns the larger delta of the two directions: sound for both, and exact for the larger one.
        """
        return many_curve(self._subset, releases=self.steps, reach=reach) if self.fixed else _profile(self, reach)


@lru_cache(maxsize=1024)
def _epsilon(mechanism: SampledGaussian, delta: float, method: Method) -> float:
    return epsilon_of(mechanism.event, delta=delta, adjacency=Adjacency.ADD_REMOVE, method=method, interval=_INTERVAL)


@lru_cache(maxsize=1024)
def _profile(mechanism: SampledGaussian, reach: float) -> ProfileCurve:
    return profile_of(mechanism.event, reach)


@dataclass(frozen=True)
class FixedSizeGaussian:
    """The privacy profile, under replace-one, of one Gaussian release on a uniform subset of fixed size: rate
    delta(ln(1 + (e^epsilon - 1) / rate)), where delta(epsilon) is the profile of the release without sampling. The
    profile is the same in both directions.

    Of the subsets without the record, each is a subset with it in which another record stands in its place, so that a
    release moves by the whole replace-one sensitivity (Zhu, Dong, Wang 2022, Theorem 11). One release of records whose
    others are all like the replacement has just this profile; for several releases it is an upper bound.

    Args:
        sigma: noise standard deviation over the **replace-one** sensitivity (two clip norms).
        rate: size of the subsets over the number of records.
    """

    sigma: float
    rate: float

    def __post_init__(self) -> None:
        check_positive("sigma", self.sigma)
        if not 0 < self.rate <= 1:
            raise ValueError(f"the sampling rate must be in (0, 1], got {self.rate}")

    @property
    def pure_epsilon(self) -> float:
        """Return infinity: Gaussian noise has no finite epsilon at delta 0."""
        return math.inf

    def delta(self, epsilon: float) -> float:
        return self.rate * delta_from_mu(1 / self.sigma, math.log1p(math.expm1(epsilon) / self.rate))


def profile_of(event: dp_accounting.DpEvent, reach: float) -> ProfileCurve:
    """Return the privacy profile (delta as a function of epsilon) of any mechanism that dp-accounting composes by
    privacy-loss distributions; grid and directions as for ``SampledGaussian.curve``.
    """
    # The claim's own epsilon must be a knot, or the curve between knots would promise less there.
    epsilons = np.union1d(np.linspace(0.0, 3.0 * max(reach, 1.0), 160), reach)
    accountant = compose(event, adjacency=Adjacency.ADD_REMOVE, interval=_INTERVAL)
    deltas = tuple(min(1.0, max(0.0, accountant.get_delta(float(e))) + _ROUNDING) for e in epsilons)
    return ProfileCurve(epsilons=tuple(epsilons.tolist()), delta_remove=deltas, delta_add=deltas)


@lru_cache(maxsize=1024)
def calibrate_sampled_gaussian(
    *, epsilon: float, delta: float, rate: float, steps: int, parts: int = 1, fixed: bool = False
) -> SampledGaussian:
    """Find the smallest noise multiplier (to 1e-4) at which all ``steps`` Poisson-subsampled Gaussian releases together
    satisfy (epsilon, delta); ``parts`` and ``fixed`` as in ``SampledGaussian``.

    Raises:
        ValueError: for an invalid budget, or one so large that it needs less noise than .3 clip norms.
    """
    check_budget(epsilon, delta)

    def of(noise: float) -> SampledGaussian:
        return SampledGaussian(sigma=noise, rate=rate, steps=steps, parts=parts, fixed=fixed)

    def excess(noise: float) -> float:
        return math.log(max(of(noise).epsilon(delta), 1e-9) / epsilon)

    # The central limit of many releases, mu = rate sqrt(steps (e^(1 / sigma^2) - 1)) (Dong, Roth, Su 2022, Corollary
    # 5.4), is close where there are many, and only there is each trial slow.
    guess = 1 / math.sqrt(math.log1p((mu_from_epsilon(epsilon, delta) / rate) ** 2 / steps))
    low = high = max(guess, LEAST_NOISE)
    while excess(high) > 0:
        high *= 1.25
    while excess(low) <= 0:
        if low == LEAST_NOISE:
            raise ValueError(
                f"epsilon is too large: noise must be at least {LEAST_NOISE} clip norms at rate {rate:g} over "
                f"{steps} steps, got epsilon {epsilon}"
            )
        high, low = low, max(0.8 * low, LEAST_NOISE)
    sigma = float(brentq(excess, low, high, xtol=_TOLERANCE / 4))
    while excess(sigma) > 0:
        sigma += _TOLERANCE / 4
    return of(sigma)


def gaussian_noise(*, epsilon: float, delta: float, releases: int) -> float:
    """Return the noise standard deviation, divided by the sensitivity, at which ``releases`` Gaussian releases together
    satisfy (epsilon, delta) (analytic Gaussian: Balle and Wang 2018, Theorem 8).

    Gaussian releases compose exactly: ``releases`` of them at sigma are one at sigma / sqrt(releases).

    Raises:
        ValueError: for an invalid budget, or one so large that it needs less noise than .3 sensitivities.
    """
    check_budget(epsilon, delta)
    # For very large budgets the library takes the logarithm of 0 and warns.
    with np.errstate(divide="ignore"):
        noise = float(dp_accounting.get_sigma_gaussian(epsilon, delta)) * math.sqrt(releases)
    check_least_noise(noise, epsilon=epsilon)
    return noise


def check_least_noise(noise: float, *, epsilon: float) -> None:
    """Raise ValueError if ``noise``, the noise that ``epsilon`` requires, is below 0.3 times the sensitivity; a privacy
    claim with so little noise means nothing.
    """
    if noise < LEAST_NOISE:
        raise ValueError(
            f"epsilon is too large: noise must be at least {LEAST_NOISE} sensitivities, got epsilon {epsilon}, "
            f"which needs only {noise:.3g} sensitivities"
        )


def gaussian_curve(*, noise: float, releases: int) -> GaussianCurve:
    """Return the exact trade-off curve of ``releases`` Gaussian releases; ``noise`` is the standard deviation divided
    by the sensitivity.
    """
    return GaussianCurve(mu=math.sqrt(releases) / noise)


def poisson_rate(what: str, rule: "Sampling") -> float:
    """Return the rate of the Poisson sampling that ``rule`` describes; return 1 if the rule draws all samples or
    clients.

    Raises:
        ValueError: for any other rule, whose accounting differs (fixed-size sampling is not Poisson sampling).
    """
    from ...fl.sampling import Full, Poisson  # Lazy: the accounting needs no torch.

    if isinstance(rule, Poisson):
        return rule.probability
    if isinstance(rule, Full):
        return 1.0
    raise ValueError(f"{what} must be Poisson or full sampling, because the accountant assumes it, got {rule}")


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer of a client update that is clipped to ``clip_norm`` and gets Gaussian noise of standard deviation
    ``noise_std``.
    """

    clip_norm: float
    noise_std: float

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("noise_std", self.noise_std)


@dataclass(frozen=True, kw_only=True)
class LayeredGaussian:
    """A mechanism that makes ``releases`` Gaussian releases of all ``layers`` of an update. The mechanism computes the
    exact mu (as in mu-GDP) of each layer alone and of all layers jointly.

    The noise must not depend on the data: no composition theorem covers a sigma that is set by a score of private data
    (FedRE, equation 6).
    """

    layers: tuple[Layer, ...]
    adjacency: Adjacency
    releases: int = 1

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("layers must hold the name of at least one layer of the model, got an empty list")
        check_whole("releases", self.releases)

    def layer_mu(self, index: int) -> float:
        """Return mu (as in mu-GDP) of one layer over all releases: sensitivity / noise, times the root of the number of
        releases.
        """
        layer = self.layers[index]
        return math.sqrt(self.releases) * sensitivity(layer.clip_norm, self.adjacency) / layer.noise_std

    @property
    def mu(self) -> float:
        """Return mu (as in mu-GDP) of all layers jointly: the root of the sum of squares (Dong, Roth, Su 2022,
        Corollary 3.3).
        """
        return math.hypot(*(self.layer_mu(index) for index in range(len(self.layers))))

    def epsilon(self, delta: float) -> float:
        """Compute epsilon at ``delta`` in (0, 1) against an observer that receives all layers of every release."""
        check_delta(delta)
        return epsilon_from_mu(self.mu, delta)

    def layer_epsilon(self, index: int, delta: float) -> float:
        """Compute the epsilon of one layer alone, which gives no guarantee against an observer that receives all
        layers.
        """
        check_delta(delta)
        return epsilon_from_mu(self.layer_mu(index), delta)

    def curve(self) -> GaussianCurve:
        """Return the exact trade-off curve against an observer that receives all layers."""
        return GaussianCurve(mu=self.mu)


def published_noise(*, epsilon: float, delta: float, rounds: int) -> float:
    """Compute the noise standard deviation, divided by the clip norm, by equation 9 of the FedRE paper as printed;
    noise of this size does not satisfy (epsilon, delta) at every epsilon (see this module's docstring).
    """
    check_budget(epsilon, delta)
    check_whole("rounds", rounds)
    return math.sqrt(2 * rounds * math.log(1 / delta)) / epsilon


def joint_noise(*multipliers: float) -> float:
    """Return the noise multiplier ``(sum z^-2)^(-1/2)`` of one Gaussian query that is as private as several queries on
    the same batch with the noise multipliers z (standard deviation / sensitivity).

    Poisson sampling therefore amplifies them together (Andrew et al. 2021, Theorem 1): two at sigma are one at sigma /
    sqrt 2.
    """
    for multiplier in multipliers:
        check_positive("multiplier", multiplier)
    return 1 / math.hypot(*(1 / multiplier for multiplier in multipliers))
