"""Dots: a privacy profile as a privacy-loss distribution, and half a million releases of it composed.

Rounding each loss up costs ``releases * interval``: hopeless for all coordinates of all rounds. Connecting the dots of
the profile instead (Doroshenko et al. 2022, Algorithm 1) is as sound and only widens each loss by a fraction of its own
spread.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from dp_accounting.pld import common

from ...audit.arrays import FloatArray
from ...audit.curve import ProfileCurve
from ...fl.fields import check_positive
from ..defense import check_delta, check_whole

_DOTS_A_SPREAD = 16
_MOST_DOTS = 8000
_FARTHEST = 100.0
_CUT_OFF = 1e-15
_LEAST_DELTA = 1e-9
_ROUNDING = 1e-11  # What the transforms leave.
_EACH = 2e-15  # What one profile value may be wrong by.


class Profile(Protocol):
    """A release whose two directions leak the same; hashable by what it is or by identity."""

    @property
    def pure_epsilon(self) -> float:
        """What it keeps at delta 0; infinite where nothing is known."""
        ...

    def delta(self, epsilon: float) -> float:
        """Hockey-stick divergence of neighbours at ``epsilon`` >= 0."""
        ...

    def __hash__(self) -> int: ...


def many_epsilon(profile: Profile, *, releases: int, delta: float) -> float:
    """Epsilon at ``delta`` of ``releases`` independent releases, of which each may be chosen after those before; never
    above the sum of their pure epsilons, which the dots of a few releases would exceed.

    ``profile`` must be that of one pair that dominates every release (Zhu, Dong, Wang 2022).

    Raises:
        ValueError: for ``delta`` outside [1e-9, 1), or one that the releases' rounding alone exceeds.
    """
    check_delta(delta)
    slack = _ROUNDING + releases * _EACH
    if delta < max(_LEAST_DELTA, 2 * slack):
        raise ValueError(f"delta must be >= {max(_LEAST_DELTA, 2 * slack):g} for {releases} releases, got {delta}")
    return min(_composed(profile, releases).epsilon(delta - slack), releases * profile.pure_epsilon)


def many_curve(profile: Profile, *, releases: int, reach: float, failure: float = 0.0) -> ProfileCurve:
    """The profile of all ``releases`` up to three times ``reach`` (itself a knot), the same for both directions;
    ``failure`` is added to every delta.
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
    """A privacy-loss distribution from loss 0 on: what is above each loss, as it is and, in logarithm, discounted by
    e^-loss."""

    losses: FloatArray
    above: FloatArray
    log_discounted: FloatArray

    def delta(self, epsilons: FloatArray) -> FloatArray:
        at = np.searchsorted(self.losses, epsilons, side="right")
        return np.asarray(
            np.maximum(0.0, self.above[at] - np.exp(epsilons + self.log_discounted[at])), dtype=np.float64
        )

    def epsilon(self, delta: float) -> float:
        """The least epsilon; the last loss where only what counts as infinite is left."""
        within = np.flatnonzero(self.delta(self.losses) <= delta)
        if not within.size:
            raise ValueError(f"delta must be above {self.above[-1]:.3g}, which leaks at every epsilon, got {delta}")
        first = int(within[0])
        return max(0.0, math.log(max(self.above[first] - delta, 1e-300)) - float(self.log_discounted[first]))


@lru_cache(maxsize=32)
def _composed(profile: Profile, releases: int) -> _Losses:
    check_whole("releases", releases)
    interval, dots, masses, infinite = _dotted(profile, releases)
    lowest, composed = common.self_convolve(masses.tolist(), releases, _CUT_OFF)
    infinite = _CUT_OFF - math.expm1(releases * math.log1p(-infinite))
    losses = interval * (lowest - dots * releases + np.arange(len(composed)))
    kept = losses >= 0
    losses, chances = losses[kept], np.asarray(composed, dtype=np.float64)[kept]
    above = np.append(np.cumsum(chances[::-1])[::-1], 0.0) + infinite
    with np.errstate(divide="ignore"):
        each = np.append(np.log(np.maximum(chances, 0.0)) - losses, -np.inf)
    return _Losses(losses, above, np.logaddexp.accumulate(each[::-1])[::-1])


class _Dots(NamedTuple):
    """Masses of the losses ``interval * (-dots .. dots)`` and of an infinite one."""

    interval: float
    dots: int
    masses: FloatArray
    infinite: float


def _dotted(profile: Profile, releases: int) -> _Dots:
    """One release on a grid about its spread; the loss beyond the last dot counts as infinite."""
    # Total variation is some .4 standard deviations of the loss.
    spread = 2.5 * max(profile.delta(0.0), 1e-9)
    reach = spread
    while profile.delta(reach) > _CUT_OFF / releases and reach < _FARTHEST:
        reach *= 1.5
    dots = math.ceil(min(_MOST_DOTS, _DOTS_A_SPREAD * reach / spread))
    interval = reach / dots
    ahead = np.minimum(1.0, [profile.delta(interval * dot) for dot in range(dots + 1)])
    # H(-e) = 1 - exp(-e) (1 - H(e)) where both directions are alike.
    behind = 1 - np.exp(-interval * np.arange(dots, 0, -1)) * (1 - ahead[:0:-1])
    deltas = np.minimum.accumulate(np.concatenate([behind, ahead]))
    falls, grown = np.diff(deltas), math.expm1(interval)
    inner = (falls[1:] - math.exp(interval) * falls[:-1]) / grown
    masses = np.concatenate([[1 - deltas[0] + falls[0] / grown], inner, [falls[-1] / math.expm1(-interval)]])
    return _Dots(interval, dots, np.maximum(masses, 0.0), float(deltas[-1]))
