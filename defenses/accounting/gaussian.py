"""Compute epsilon, delta and the trade-off curve of Gaussian noise, and the noise that a privacy budget requires."""

import math
from dataclasses import dataclass
from functools import lru_cache

import dp_accounting
import numpy as np
from dp_accounting.mechanism_calibration import NoBracketIntervalFoundError

from ...audit.claim import Adjacency
from ...audit.curve import GaussianCurve, ProfileCurve
from ...fl.fields import check_positive
from ...fl.sampling import Full, Poisson, Sampling
from ..defense import check_budget
from .accountant import Method, compose, epsilon_of, gaussian_steps
from .pld import ArrayPLDAccountant

_INTERVAL = 1e-3  # Calibrates in .5 s with an error of 3e-4 in sigma, always on the pessimistic side.
_ROUGH = 2e-2
_ROUNDING = 1e-12  # FFT leaves errors of about 1e-14 in delta, and a stated curve must not promise more than holds.
LEAST_NOISE = 0.3
"""Noise over the sensitivity of one release below which no claim is stated."""

_LEAST_DELTA = 1e-14


@dataclass(frozen=True, kw_only=True)
class SampledGaussian:
    """A mechanism of ``steps`` Gaussian releases, each computed on a Poisson sample drawn at ``rate``; neighbours
    differ by adding or removing one record, client or user.

    Args:
        sigma: noise standard deviation over the **add/remove** sensitivity (the clip norm).
        parts: parts of equal sensitivity of which the record, client or user consists, each drawn independently at
            ``rate``, such as the samples of one user at several clients.
    """

    sigma: float
    rate: float
    steps: int
    parts: int = 1

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

        Raises:
            ValueError: by PLD for ``delta`` below 1e-14.
        """
        if method is Method.PLD:
            _check_tails(delta)
        return _epsilon(self, delta, method)

    @property
    def event(self) -> dp_accounting.DpEvent:
        """Return the mechanism as an event, the form in which the library dp-accounting composes mechanisms."""
        return gaussian_steps(sigma=self.sigma, rate=self.rate, steps=self.steps, parts=self.parts)

    def curve(self, reach: float) -> ProfileCurve:
        """Return delta as a function of epsilon (the privacy profile, equal for adding and removing) on a grid of
        epsilons from 0 to three times the epsilon ``reach``, which is itself a grid point.

        The accountant returns the larger delta of the two directions: sound for both, and exact for the larger one.
        """
        return _profile(self, reach)


@lru_cache(maxsize=1024)
def _epsilon(mechanism: SampledGaussian, delta: float, method: Method) -> float:
    return epsilon_of(mechanism.event, delta=delta, adjacency=Adjacency.ADD_REMOVE, method=method, interval=_INTERVAL)


@lru_cache(maxsize=1024)
def _profile(mechanism: SampledGaussian, reach: float) -> ProfileCurve:
    return profile_of(mechanism.event, reach)


def profile_of(event: dp_accounting.DpEvent, reach: float) -> ProfileCurve:
    """Return delta as a function of epsilon of any mechanism that dp-accounting composes by privacy-loss distributions;
    grid and directions as ``SampledGaussian.curve``.
    """
    # The claim's own epsilon must be a knot, or the curve between knots would promise less there.
    epsilons = np.union1d(np.linspace(0.0, 3.0 * max(reach, 1.0), 160), reach)
    accountant = compose(event, adjacency=Adjacency.ADD_REMOVE, interval=_INTERVAL)
    deltas = tuple(min(1.0, max(0.0, accountant.get_delta(float(e))) + _ROUNDING) for e in epsilons)
    return ProfileCurve(epsilons=tuple(epsilons.tolist()), delta_remove=deltas, delta_add=deltas)


@lru_cache(maxsize=1024)
def calibrate_sampled_gaussian(
    *, epsilon: float, delta: float, rate: float, steps: int, parts: int = 1
) -> SampledGaussian:
    """Find the smallest noise multiplier (to 1e-4) at which all ``steps`` Poisson-subsampled Gaussian releases together
    satisfy (epsilon, delta); ``parts`` as in ``SampledGaussian``.

    Raises:
        ValueError: for an invalid budget, one so large that it needs less noise than .3 clip norms, or a delta below
            1e-14.
    """
    check_budget(epsilon, delta)
    _check_tails(delta)

    def least(low: float, guess: float, interval: float) -> float:
        found = dp_accounting.calibrate_dp_mechanism(
            lambda: ArrayPLDAccountant(value_discretization_interval=interval),
            lambda noise: gaussian_steps(sigma=noise, rate=rate, steps=steps, parts=parts),
            epsilon,
            delta,
            bracket_interval=dp_accounting.LowerEndpointAndGuess(low, guess),
            tol=1e-4,
        )
        return float(found)

    low, guess = LEAST_NOISE, 1.5
    try:
        if parts > 1 and rate < 1:
            # A mixture with little noise takes seconds: the search starts close to the result.
            guess = least(low, guess, _ROUGH)
            low = max(low, 0.97 * guess)
        sigma = least(low, guess, _INTERVAL)
    except NoBracketIntervalFoundError:
        raise ValueError(
            f"epsilon is too large: its noise must be at least {LEAST_NOISE} clip norms at rate {rate:g} over "
            f"{steps} steps, "
            f"got epsilon {epsilon}"
        ) from None
    return SampledGaussian(sigma=sigma, rate=rate, steps=steps, parts=parts)


def _check_tails(delta: float) -> None:
    # At delta 1e-16 three unsampled steps at epsilon 4 would get 2436 norms of noise, where 3.515 are enough.
    if delta < _LEAST_DELTA:
        raise ValueError(
            f"delta must be >= {_LEAST_DELTA:g}: composition by privacy-loss distributions drops tails of about "
            f"that probability, got {delta}"
        )


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
            f"epsilon is too large: its noise must be at least {LEAST_NOISE} sensitivities, got epsilon {epsilon}, "
            f"which needs only {noise:.3g} sensitivities"
        )


def gaussian_curve(*, noise: float, releases: int) -> GaussianCurve:
    """Return the exact trade-off curve of ``releases`` Gaussian releases; ``noise`` is the standard deviation divided
    by the sensitivity.
    """
    return GaussianCurve(mu=math.sqrt(releases) / noise)


def poisson_rate(what: str, rule: Sampling) -> float:
    """Return the rate of the Poisson sampling that ``rule`` describes; return 1 if the rule draws all samples or
    clients.

    Raises:
        ValueError: for any other rule, whose accounting differs (fixed-size sampling is not Poisson sampling).
    """
    if isinstance(rule, Poisson):
        return rule.probability
    if isinstance(rule, Full):
        return 1.0
    raise ValueError(f"{what} must be Poisson or full sampling, because the accountant assumes it, got {rule}")
