"""Amplification: what one coordinate of one client's report tells among those of others.

Coordinates are noised and shuffled independently of each other, so that they compose as so many releases; each is
dominated by one pair.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

from ....fl.fields import check_positive
from ....fl.plan import Plan
from ...accounting.clones import ClonePair, shuffled
from ...accounting.counts import poisson_binomial
from ...accounting.gaussian import poisson_rate
from ...accounting.heterogeneous import client_bound
from ...accounting.pld_convolution import Profile
from ..mechanisms.budgeted import CoordinateNoise
from ..mechanisms.laplace import LaplacePair, laplace_clones
from .budgets import MOST_LOCAL

_FAILS = 1e-3
_LEAST_LOCAL = 1e-6


@dataclass(frozen=True)
class LocalPair:
    """One coordinate by clip-Laplace at ``epsilon``, seen with its sender: (1 - e^((s - eps)/2))^2 / (1 - e^-eps).

    The two ends of the range are the pair: the larger the value, the likelier is every upper set of reports, and those
    sets are the best tests of any two values (the likelihood ratio is monotone).
    """

    epsilon: float

    @property
    def pure_epsilon(self) -> float:
        """Its own budget."""
        return self.epsilon

    def delta(self, epsilon: float) -> float:
        short = math.expm1((min(epsilon, self.epsilon) - self.epsilon) / 2)
        return short**2 / -math.expm1(-self.epsilon)


def local_pair(noise: str, epsilon: float) -> Profile:
    """One coordinate at ``epsilon`` by this noise, seen with its sender."""
    return LaplacePair(epsilon) if noise == CoordinateNoise.LAPLACE else LocalPair(epsilon)


@dataclass(frozen=True)
class SampledRelease:
    """A release that holds the client's value with chance ``rate`` only, independently of all others (by the joint
    convexity of the hockey-stick divergence).
    """

    release: Profile
    rate: float

    @property
    def pure_epsilon(self) -> float:
        """That of the release: whether it holds the value may be seen."""
        return self.release.pure_epsilon

    def delta(self, epsilon: float) -> float:
        return self.rate * self.release.delta(epsilon)


@dataclass(frozen=True, kw_only=True)
class AssuredCohort:
    """How many others a client may count on in each of ``releases`` cohorts.

    Who is there is there with all coordinates: clones of different coordinates hang together through the number of
    those present. So only ``others`` are counted, and the chance that fewer come, in any round, is added to delta.

    Raises:
        ValueError: for fewer than two clients, or cohorts that are neither everybody nor Poisson samples.
    """

    others: int
    failure: float

    @classmethod
    def of(cls, plan: Plan, delta: float, *, rounds: int) -> Self:
        """Of the plan's cohorts, at the cost of a thousandth of ``delta`` at most; none where everybody comes."""
        check_clients(plan.clients)
        rate = poisson_rate("cohort", plan.cohort)
        if rate == 1:
            return cls(others=plan.clients - 1, failure=0.0)
        # Fewer than this quantile come with a smaller chance.
        sure = binom.ppf(_FAILS * delta / rounds, plan.clients - 1, rate)
        return cls(others=int(sure), failure=_FAILS * delta)


def among_equals(*, others: int, epsilon0: float) -> Profile:
    """One coordinate of a client among ``others``, all by clip-Laplace at ``epsilon0``, shuffled."""
    return tighter(LocalPair(epsilon0), shuffled(clients=others + 1, epsilon0=epsilon0))


def among_unequals(*, client: int, budgets: tuple[float, ...], others: int) -> Profile:
    """The same where clients run clip-Laplace at ``budgets`` of their own: only clones of ``client``'s own mechanism
    hide it (see ``accounting.heterogeneous``).

    Where not all come, those who come are taken to be the ones with the largest budgets, who are clones least often.
    """
    rest = np.sort(np.delete(np.asarray(budgets, dtype=np.float64), client))[len(budgets) - 1 - others :]
    return tighter(LocalPair(budgets[client]), client_bound(epsilon=budgets[client], others=rest))


def among_unequal_laplace(*, client: int, budgets: tuple[float, ...], others: int) -> Profile:
    """The same where clients run the classic Laplace mechanism: those with less noise than ``client`` hide nothing
    (see ``laplace.laplace_clones``).

    Where not all come, those who come are taken to be the ones who are clones least often.
    """
    own = budgets[client]
    chances = np.sort(laplace_clones(np.delete(np.asarray(budgets, dtype=np.float64), client), own))[:others]
    return tighter(LaplacePair(own), ClonePair(epsilon0=own, clones=poisson_binomial(chances)))


def tighter(one: Profile, other: Profile) -> Profile:
    """Either holds. Without clones the local pair is the smaller: it knows the randomiser."""
    return one if one.delta(0.0) <= other.delta(0.0) else other


def largest_scale(
    cost: Callable[[float], float], epsilon: float, *, largest: float = 1.0, else_too_large: str = ""
) -> float:
    """The largest factor of the local budgets whose ``cost`` is at most ``epsilon``, short of it by 1e-4 at most.

    Args:
        largest: local budget at factor 1.
        else_too_large: what else a refusal names where no budget costs epsilon.

    Raises:
        ValueError: where no local budget in [1e-6, 50] costs it.
    """
    check_positive("epsilon", epsilon)

    def excess(log_scale: float) -> float:
        return math.log(max(cost(math.exp(log_scale)), 1e-12) / epsilon)

    low = high = math.log(0.1 / largest)
    while excess(low) > 0:
        low -= 1.5
        if low < math.log(_LEAST_LOCAL / largest):
            raise ValueError(f"epsilon must be large enough for local budgets above {_LEAST_LOCAL:g}, got {epsilon}")
    while excess(high) < 0:
        high += 0.2
        if high > math.log(MOST_LOCAL / largest):
            raise ValueError(
                f"epsilon must be small enough for local budgets of at most {MOST_LOCAL:g}{else_too_large}, "
                f"got {epsilon}"
            )
    root = float(brentq(excess, low, high, xtol=1e-5)) if high > low else low
    while excess(root) > 0:
        root -= 2e-5
    return math.exp(root)


def check_clients(clients: int) -> None:
    """ValueError for fewer than two: nobody hides behind itself."""
    if clients < 2:
        raise ValueError(f"clients must be >= 2: a shuffler hides nobody who is alone, got {clients}")
