"""Compute the true epsilon of releases whose privacy cost a Renyi filter underestimated."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray
from ..accounting.accountant import gaussian_steps, renyi_divergences
from ..accounting.filter import RenyiFilter, renyi_epsilon

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
