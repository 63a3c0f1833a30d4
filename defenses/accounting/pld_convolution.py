"""Compose up to half a million releases with equal privacy profiles by convolution of privacy-loss distributions.

Rounding each loss up would cost ``releases * interval``, which is too much for all coordinates of all rounds.
Connecting the dots of the profile (Doroshenko et al. 2022, Algorithm 1) is as sound and only widens each loss by a
fraction of its own spread.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.curve import ProfileCurve
from ...fl.fields import check_positive
from ..defense import check_delta, check_whole
from .self_convolution import self_convolved

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
