"""Check with a Renyi filter, before each release, that the privacy budget suffices if noise adapts to earlier releases.

Renyi composition at one order holds even where the cost of a release depends on earlier outcomes, as long as the filter
is checked first (Feldman and Zrnic 2021; Lecuyer 2021). The order is fixed before the first release; no such theorem
covers the best of several orders chosen at the end.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from dp_accounting.dp_event import DpEvent

from ...audit.claim import Adjacency
from ...audit.wording import nearest
from ..defense import check_budget, check_delta
from .accountant import renyi_divergence

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
