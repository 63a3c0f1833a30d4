"""Check by a Renyi filter, before each release, that the privacy budget suffices, and compute what releases truly cost.

Check with a Renyi filter, before each release, that the privacy budget suffices if noise adapts to earlier releases.

Renyi composition at one order holds even where the cost of a release depends on earlier outcomes, as long as the filter
is checked first (Feldman and Zrnic 2021; Lecuyer 2021). The order is fixed before the first release; no such theorem
covers the best of several orders chosen at the end.

Compute the true epsilon of releases whose privacy cost a Renyi filter underestimated.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from dp_accounting.dp_event import DpEvent

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency
from ...audit.wording import nearest
from ..defense import check_budget, check_delta
from .accountant import gaussian_steps, renyi_divergence, renyi_divergences

CONVERSIONS = ("canonne_2020", "mironov_2017")
"""How a Renyi divergence becomes an epsilon: Canonne, Kamath and Steinke 2020, Proposition 12, or the looser
``divergence + log(1 / delta) / (order - 1)`` of Mironov 2017, Proposition 3, which older papers use."""

# From 2 on: below, dp-accounting's series for sampled releases may not converge; only huge budgets need that.
_ORDERS = tuple(float(order) for order in np.unique(np.round(1 + np.logspace(0, 2.7, 120), 2)))


@dataclass(frozen=True, kw_only=True)
class RenyiFilter:
    """A privacy filter that enforces one (epsilon, delta) budget for all releases together; each release may depend on
    earlier ones.

    ``order`` > 1 is public and fixed beforehand; see ``planned_filter``. ``conversion``: one of ``CONVERSIONS``; both
    are valid, and the older one admits fewer releases.

    Raises:
        ValueError: for a budget that this order cannot express.
    """

    epsilon: float
    delta: float
    order: float
    adjacency: Adjacency
    conversion: str = CONVERSIONS[0]

    def __post_init__(self) -> None:
        check_conversion(self.conversion)
        check_budget(self.epsilon, self.delta)
        if not 1 < self.order < math.inf:
            raise ValueError(f"the Renyi order must be > 1 and finite, got {self.order!r}")
        if self.budget <= 0:
            raise ValueError(
                f"the Renyi order must allow a positive divergence within epsilon {self.epsilon}, delta "
                f"{self.delta}, got order {self.order}"
            )

    @property
    def budget(self) -> float:
        """Return the largest total Renyi divergence at ``order`` with which all releases together satisfy (epsilon,
        delta).
        """
        return _renyi_budget(self.epsilon, self.delta, self.order, self.conversion)

    def converted(self, divergence: float) -> float:
        """Return the epsilon at ``delta`` of releases whose total Renyi divergence at ``order`` is ``divergence``; if
        this is the whole ``budget``, the result is the filter's ``epsilon``.
        """
        return max(0.0, self.epsilon + divergence - self.budget)

    def cost(self, event: DpEvent) -> float:
        """Return one release's Renyi divergence at ``order``, which the filter charges to its budget."""
        return renyi_divergence(event, order=self.order, adjacency=self.adjacency)


@lru_cache(maxsize=64)
def planned_filter(
    *, epsilon: float, delta: float, release: DpEvent, adjacency: Adjacency, conversion: str = CONVERSIONS[0]
) -> RenyiFilter:
    """Return a privacy filter at the Renyi order that admits the most repetitions of ``release``, which is a public
    guess of the later releases. ``conversion``: one of ``CONVERSIONS``.

    Raises:
        ValueError: where not even one such release fits.
    """
    check_budget(epsilon, delta)

    def repeats(order: float) -> float:
        cost = renyi_divergence(release, order=order, adjacency=adjacency)
        return _renyi_budget(epsilon, delta, order, conversion) / cost if cost else math.inf

    # Chosen from the plan and not from the data, so it may be optimised freely.
    order = max(_ORDERS, key=repeats)
    if repeats(order) < 1:
        raise ValueError(
            f"epsilon must be large enough for one planned release, got {epsilon} at delta {delta} for {release}"
        )
    return RenyiFilter(epsilon=epsilon, delta=delta, order=order, adjacency=adjacency, conversion=conversion)


def check_conversion(conversion: str) -> None:
    """Raise ValueError unless ``conversion`` is one of ``CONVERSIONS``."""
    if conversion not in CONVERSIONS:
        raise ValueError(f"conversion must be one of {nearest(str(conversion), CONVERSIONS)}, got {conversion!r}")


def renyi_epsilon(divergence: float, *, delta: float, order: float) -> float:
    """Compute the epsilon at ``delta`` of adaptively chosen releases with a total Renyi divergence ``divergence`` at
    ``order``.
    """
    return max(0.0, divergence - _renyi_budget(0.0, delta, order))


def fixed_release_epsilon(release: DpEvent, *, delta: float, adjacency: Adjacency) -> float:
    """Compute the epsilon at ``delta`` of a release whose mechanism was fixed beforehand, at the Renyi order that gives
    the smallest epsilon.
    """
    check_delta(delta)
    costs = ((order, renyi_divergence(release, order=order, adjacency=adjacency)) for order in _ORDERS)
    return max(0.0, min(cost - _renyi_budget(0.0, delta, order) for order, cost in costs))


def _renyi_budget(epsilon: float, delta: float, order: float, conversion: str = CONVERSIONS[0]) -> float:
    """The divergence that converts to ``epsilon``, by the proposition of ``CONVERSIONS``, solved for it."""
    if conversion == "mironov_2017":
        return epsilon + math.log(delta) / (order - 1)
    return epsilon - math.log1p(-1 / order) + math.log(delta * order) / (order - 1)


RENYI_ORDERS = (*map(float, range(2, 17)), 20.0, 24.0, 32.0, 48.0, 64.0)
"""Renyi orders at which the cost is bounded, in addition to the filter's own order."""
_COARSE = 64


@dataclass(frozen=True, kw_only=True)
class FilterCost:
    """A bound on the true epsilon of all rounds of Poisson-sampled Gaussian steps that a privacy filter admits, if the
    noise never increases.

    Args:
        filter: checked before each round.
        charges: what the filter charges per round at each level that it lets any client reach, at its own order.
        noise: at the same levels, the joint noise multiplier of all that a step releases.
        rate, steps: of a round.
        rounds: the largest number of rounds; the noise first decreases before the fourth one at the earliest.
        everyone: whether all clients take part in every round and so have paid for each level before the next.
    """

    filter: RenyiFilter
    charges: Sequence[float]
    noise: Sequence[float]
    rate: float
    steps: int
    rounds: int
    everyone: bool

    def epsilon(self) -> float:
        """Compute the largest epsilon over all ways in which the noise may decrease from round to round.

        It is bounded at one order, chosen by a few of the levels. The choice may be arbitrary, because each order
        bounds every possible decrease (Feldman and Zrnic 2021).
        """
        orders, levels = (*RENYI_ORDERS, self.filter.order), np.arange(len(self.charges))
        # Accounting every level at every order is slow; the logarithm of the cost is smooth in the level.
        some = np.unique(np.append(levels[::_COARSE], levels[-1]))
        known = np.log(self._prices(orders, some.tolist()))
        drawn = np.stack([np.exp(np.interp(levels, some, column)) for column in known.T], axis=1)
        best = orders[int(np.argmin(self._bounds(orders, drawn)))]
        return float(self._bounds((best,), self._prices((best,), levels.tolist()))[0])

    def _prices(self, orders: Sequence[float], levels: Iterable[int]) -> FloatArray:
        """``(levels, orders)``: the Renyi divergence of one round."""
        adjacency = self.filter.adjacency
        steps = [gaussian_steps(sigma=self.noise[level], rate=self.rate, steps=self.steps) for level in levels]
        return np.array([renyi_divergences(step, orders=orders, adjacency=adjacency) for step in steps])

    def _bounds(self, orders: Sequence[float], prices: FloatArray) -> list[float]:
        """Per order, the smaller of two bounds: the cost of the fastest decrease, and the most that the budget
        admits.
        """
        charges = np.asarray(self.charges)[:, np.newaxis]
        passed = 1.0 if self.everyone else 0.0
        spare = self.filter.budget - passed * (charges.cumsum(0) - charges)
        # The worst case spends all that is left of the budget at a single level.
        most = (passed * (prices.cumsum(0) - prices) + spare * prices / charges).max(0)
        # The noise cannot decrease before the fourth round, so the first three are at level 0.
        fastest = prices[np.clip(np.arange(self.rounds) - 2, 0, len(prices) - 1)].sum(0)
        return [
            renyi_epsilon(float(spent), delta=self.filter.delta, order=order)
            for spent, order in zip(np.minimum(most, fastest), orders, strict=True)
        ]
