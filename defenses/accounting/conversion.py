"""Convert Renyi and zero-concentrated DP guarantees into (epsilon, delta) guarantees."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dp_accounting
import numpy as np
from scipy.optimize import minimize_scalar

from ..defense import check_budget, check_delta

ORDERS = (*range(2, 64), 80, 96, 128, 192, 256, 512, 1024)
"""Whole orders, because some theorems (Skellam) hold for these alone."""


def epsilon_from_rdp(rdp: Callable[[int], float], delta: float, orders: Sequence[int] = ORDERS) -> float:
    """Compute the smallest epsilon at ``delta`` in (0, 1) that Renyi divergences imply over the given ``orders``;
    ``rdp(order)`` returns the divergence at that order.

    By dp-accounting: ``rdp + ln(1 - 1/a) - (ln delta + ln a) / (a - 1)`` (Canonne, Kamath, Steinke 2020, Proposition
    12).
    """
    check_delta(delta)
    epsilon, _ = dp_accounting.rdp.compute_epsilon(orders, [rdp(order) for order in orders], delta)
    return float(epsilon)


def epsilon_at_best_order(rdp: Callable[[float], float], delta: float) -> float:
    """Compute the smallest epsilon at ``delta`` if the Renyi divergence ``rdp(order)`` is known at every order > 1.
    Golden-section search chooses the order; any order gives a valid epsilon.
    """
    check_delta(delta)

    def epsilon(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        return float(dp_accounting.rdp.compute_epsilon([order], [rdp(order)], delta)[0])

    # Below order 1.01 the library gives no bound.
    best = minimize_scalar(epsilon, bounds=(math.log(0.0101), 20.0), method="bounded", options={"xatol": 1e-10})
    # One step up: the search's value must not round below the true bound.
    return float(np.nextafter(best.fun, math.inf))


@dataclass(frozen=True, kw_only=True)
class RenyiBudget:
    """A bound ``rdp`` on the total Renyi divergence at ``order``; a mechanism that stays within this bound satisfies
    the intended (epsilon, delta).
    """

    order: float
    rdp: float


def renyi_budget(epsilon: float, delta: float) -> RenyiBudget:
    """Return the Renyi order >= 2 at which the budget (epsilon, delta) admits the most releases, and the largest total
    divergence that these releases may have; each release's divergence is assumed to be proportional to the order.

    The inverse of ``epsilon_from_rdp``. One order serves all rounds, so that costs which differ from round to round
    still add up.
    """
    check_budget(epsilon, delta)
    orders = np.geomspace(2, 1e7, 20_000)
    left = epsilon - np.log1p(-1 / orders) + (math.log(delta) + np.log(orders)) / (orders - 1)
    best = int(np.argmax(left / orders))
    # A hair less than computed, so that converting back never exceeds epsilon.
    return RenyiBudget(order=float(orders[best]), rdp=float(left[best]) * (1 - 1e-12))


def epsilon_from_zcdp(rho: float, delta: float, xi: float = 0.0) -> float:
    """Compute the smallest epsilon at ``delta`` in (0, 1) that (xi, rho)-zCDP implies; its Renyi divergence at every
    order a > 1 is at most xi + rho a.

    A mu-GDP mechanism is (0, mu^2 / 2)-zCDP; its exact epsilon lies below (``audit.curve.epsilon_from_mu``).

    Raises:
        ValueError: for rho or xi that is not finite and >= 0.
    """
    check_delta(delta)
    for name, value in (("rho", rho), ("xi", xi)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be >= 0 and finite, got {value!r}")
    if rho == xi == 0:
        return 0.0
    return epsilon_at_best_order(lambda order: xi + rho * order, delta)
