"""Composition: many rounds of one release through the privacy-loss distribution of one; and the textbook's formula."""

import math
from typing import Protocol

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from ...audit.curve import ProfileCurve
from ..defense import check_delta, check_positive

_INTERVAL = 1e-5
_LEAST_DELTA = 1e-12
_ROUNDING = 1e-13  # FFT leaves errors of about 1e-15 in delta.


class Release(Protocol):
    """One round: what its outcome tells of two neighbours."""

    def losses(self, interval: float) -> PrivacyLossDistribution: ...


def composed_epsilon(release: Release, *, rounds: int, delta: float, interval: float = _INTERVAL) -> float:
    """Epsilon at ``delta`` of ``rounds`` independent rounds, too large by ``rounds * interval`` at most.

    Raises:
        ValueError: for ``delta`` below 1e-12, which the transforms do not resolve.
    """
    check_delta(delta)
    if delta < _LEAST_DELTA:
        raise ValueError(f"delta must be >= {_LEAST_DELTA:g} to be composed over rounds, got {delta}")
    return float(_composed(release, rounds, interval).get_epsilon_for_delta(delta - _ROUNDING))


def composed_curve(release: Release, *, rounds: int, reach: float, interval: float = _INTERVAL) -> ProfileCurve:
    """The privacy profile of ``rounds`` up to three times ``reach`` (itself a knot), the same for both directions."""
    check_positive("reach", reach)
    epsilons = np.union1d(np.linspace(0.0, 3 * reach, 160), reach)
    deltas = np.minimum(
        1.0, np.asarray(_composed(release, rounds, interval).get_delta_for_epsilon(epsilons)) + _ROUNDING
    )
    profile = tuple(deltas.tolist())
    return ProfileCurve(epsilons=tuple(epsilons.tolist()), delta_remove=profile, delta_add=profile)


def _composed(release: Release, rounds: int, interval: float) -> PrivacyLossDistribution:
    if rounds < 1 or int(rounds) != rounds:
        raise ValueError(f"rounds must be a whole number >= 1, got {rounds!r}")
    check_positive("interval", interval)
    return release.losses(interval).self_compose(rounds)


def advanced_composition(*, epsilon: float, releases: int, slack: float) -> float:
    """``eps sqrt(2 m ln(1/d')) + m eps (e^eps - 1)`` (Dwork and Roth 2014, Theorem 3.20): what papers print.

    The total delta is ``releases * delta + slack``. Looser than ``composed_epsilon``.
    """
    check_positive("epsilon", epsilon)
    check_delta(slack)
    if releases < 1 or int(releases) != releases:
        raise ValueError(f"releases must be a whole number >= 1, got {releases!r}")
    drift = releases * epsilon * math.expm1(epsilon)
    return epsilon * math.sqrt(2 * releases * math.log(1 / slack)) + drift
