"""RDP filter: whether the next release still fits, asked before it is made (Feldman and Zrnic 2021)."""

import math
from dataclasses import dataclass
from functools import lru_cache

import dp_accounting
from dp_accounting.rdp import RdpAccountant

from .accounting.accountant import ACCOUNTANT
from .defense import check_budget

RDP_ACCOUNTANT = ACCOUNTANT.replace("PLD", "RDP")
_ORDERS = (*(1 + tenth / 10 for tenth in range(1, 100)), *range(11, 64), 128, 256, 512, 1024)


@dataclass(frozen=True, kw_only=True)
class RDPFilter:
    """A budget of Renyi divergence at one order: releases chosen adaptively keep (epsilon, delta) while their costs'
    sum stays within it.

    The order is fixed before anything is released: the theorem holds for each order, not for the best one afterwards.
    """

    order: float
    budget: float

    @classmethod
    def fitted(cls, *, epsilon: float, delta: float, sigma: float, rate: float) -> "RDPFilter":
        """At the order where most sampled Gaussian releases of noise ``sigma`` (over the sensitivity) fit."""
        check_budget(epsilon, delta)
        filters = [cls(order=order, budget=_budget(order, epsilon, delta)) for order in _ORDERS]
        return max(filters, key=lambda one: one.budget / max(one.cost(sigma, rate), 1e-300))

    def cost(self, sigma: float, rate: float) -> float:
        """Of one Gaussian release of noise ``sigma`` over the add/remove sensitivity, on a Poisson sample."""
        return _cost(self.order, sigma, rate)


@lru_cache(maxsize=4096)
def _cost(order: float, sigma: float, rate: float) -> float:
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    accountant = RdpAccountant(orders=[order])
    accountant.compose(event)
    # Read back through the public conversion, at a delta that loses no digits: the accountant publishes no Renyi cost.
    return float(accountant.get_epsilon(_PROBE)) - _conversion(order, _PROBE)


_PROBE = 1e-12


def _conversion(order: float, delta: float) -> float:
    """What converting from RDP adds to epsilon (Canonne, Kamath and Steinke 2020, Proposition 12)."""
    return math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


def _budget(order: float, epsilon: float, delta: float) -> float:
    return epsilon - _conversion(order, delta)
