"""FilterCost: what releases cost that a filter let pass while it charged them less than they are worth."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray
from ..accounting.accountant import gaussian_steps, renyi_divergences
from ..accounting.filter import RenyiFilter, renyi_epsilon

_ORDERS = (*map(float, range(2, 17)), 20.0, 24.0, 32.0, 48.0, 64.0)
"""Renyi orders at which the cost is looked at; the filter's own is looked at too."""
_COARSE = 64


@dataclass(frozen=True, kw_only=True)
class FilterCost:
    """Rounds of sampled Gaussian steps whose noise only falls, level by level, as long as a filter lets them pass.

    Args:
        filter: what is asked before each round.
        charges: what a round is charged at each level that the filter lets anybody reach, at its own order.
        noise: of the same levels, what the noise of all that a step releases is worth.
        rate, steps: of a round.
        rounds: at most so many, and the first fall is before the fourth.
        everyone: whether all come to every round, and so have paid for each level before the next.
    """

    filter: RenyiFilter
    charges: Sequence[float]
    noise: Sequence[float]
    rate: float
    steps: int
    rounds: int
    everyone: bool

    def epsilon(self) -> float:
        """However the noise falls: at the order that is best for a few of the levels, which any order may be, for each
        bounds every way in which it may fall (Feldman and Zrnic 2021).
        """
        orders, levels = (*_ORDERS, self.filter.order), np.arange(len(self.charges))
        some = np.unique(np.append(levels[::_COARSE], levels[-1]))
        known = np.log(self._prices(orders, some.tolist()))
        drawn = np.stack([np.exp(np.interp(levels, some, column)) for column in known.T], axis=1)
        best = orders[int(np.argmin(self._bounds(orders, drawn)))]
        return float(self._bounds((best,), self._prices((best,), levels.tolist()))[0])

    def _prices(self, orders: Sequence[float], levels: Iterable[int]) -> FloatArray:
        """``(levels, orders)``: what a round is worth."""
        adjacency = self.filter.adjacency
        steps = [gaussian_steps(sigma=self.noise[level], rate=self.rate, steps=self.steps) for level in levels]
        return np.array([renyi_divergences(step, orders=orders, adjacency=adjacency) for step in steps])

    def _bounds(self, orders: Sequence[float], prices: FloatArray) -> list[float]:
        """At each order: at most what the fastest fall costs, and at most what the budget buys."""
        charges = np.asarray(self.charges)[:, np.newaxis]
        passed = 1.0 if self.everyone else 0.0
        spare = self.filter.budget - passed * (charges.cumsum(0) - charges)
        # All that is left of the budget at one level: for one of them this is the dearest way.
        most = (passed * (prices.cumsum(0) - prices) + spare * prices / charges).max(0)
        fastest = prices[np.clip(np.arange(self.rounds) - 2, 0, len(prices) - 1)].sum(0)
        return [
            renyi_epsilon(float(spent), delta=self.filter.delta, order=order)
            for spent, order in zip(np.minimum(most, fastest), orders, strict=True)
        ]
