"""Compute the privacy of one coordinate of a client's report that is shuffled among other clients' reports.

Coordinates are noised and shuffled independently of each other, so they compose as that many releases; one pair
dominates each release.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, hypergeom

from ....audit.arrays import FloatArray
from ....fl.fields import check_positive
from ....fl.plan import Plan
from ....fl.sampling import Epoch
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
_STRATA = 50
"""Groups into which the other clients are sorted by how often they hide a report. More groups hardly help: at 10,000
clients in batches of 500, a hundred lower the epsilon of a client by .4 % at most.
"""


@dataclass(frozen=True)
class LocalPair:
    """The privacy profile of one clip-Laplace coordinate at budget eps (``epsilon``) for an observer that knows its
    sender: delta(s) = (1 - e^((s - eps)/2))^2 / (1 - e^-eps) at every epsilon s <= eps.

    The pair is the two ends of the range. The larger the value, the likelier is every upper set of reports, and those
    sets are the best tests of any two values (the likelihood ratio is monotone).
    """

    epsilon: float

    @property
    def pure_epsilon(self) -> float:
        """Return epsilon at delta 0, which is the coordinate's own budget."""
        return self.epsilon

    def delta(self, epsilon: float) -> float:
        # Beyond its own epsilon the profile is 0, which the minimum gives without a branch.
        short = math.expm1((min(epsilon, self.epsilon) - self.epsilon) / 2)
        return short**2 / -math.expm1(-self.epsilon)


@dataclass(frozen=True)
class LargestPair(LocalPair):
    """The privacy profile of one number of a report whose sender is known. Clip-Laplace perturbs the client's ``among``
    numbers; only the ``kept`` largest results are sent, and dummies replace the others.

    Above delta 0 it is that of a number that is sent, because what is sent is post-processing of all noisy numbers. At
    delta 0 all of them together spend less, ``kept`` epsilon + (``among`` - ``kept``) ln((e^(epsilon/2) + 1)/2):

    Given which numbers were kept, the density of a report is a product. A kept number contributes its own density, at
    most a ratio of e^epsilon. Any other number contributes the dummy's density, which does not depend on the value, and
    the probability that a noisy number was at most t, the smallest size that was kept. That probability falls with the
    distance of the value from 0 (the size has a monotone likelihood ratio in it), so its ratio is largest between 0 and
    an end of the range, where it is (e^(epsilon/2) + 1) / (e^(epsilon t / (2 radius)) + 1), and thus at t = 0. The
    density of a report is the sum of these products over all choices, and a ratio of sums is at most the largest ratio.

    The bound is less than one epsilon above the truth: where the kept numbers are at the end of the range except for
    one, and that one is small and all dummies are smaller still, the loss comes as near as desired to (``kept`` - 1)
    epsilon + (``among`` - ``kept`` + 1) ln((e^(epsilon/2) + 1)/2).
    """

    kept: int
    among: int

    @property
    def pure_epsilon(self) -> float:
        """Return the epsilon at delta 0 of a whole report, divided by the number ``among`` of perturbed numbers."""
        unsent = math.log1p(math.expm1(self.epsilon / 2) / 2)
        return (self.kept * self.epsilon + (self.among - self.kept) * unsent) / self.among


def local_pair(noise: str, epsilon: float) -> Profile:
    """Return delta as a function of epsilon (the privacy profile) of one coordinate with budget ``epsilon``, for an
    observer that knows its sender.
    """
    # Strings and not enum members arrive from suite files; a StrEnum equals both.
    return LaplacePair(epsilon) if noise == CoordinateNoise.LAPLACE else LocalPair(epsilon)


@dataclass(frozen=True)
class SampledRelease:
    """A release that contains the client's value only with probability ``rate``, independently of all other clients.

    By the joint convexity of the hockey-stick divergence.
    """

    release: Profile
    rate: float

    @property
    def pure_epsilon(self) -> float:
        """Return epsilon at delta 0; sampling does not reduce it, because the observer may learn whether the value is
        included.
        """
        return self.release.pure_epsilon

    def delta(self, epsilon: float) -> float:
        return self.rate * self.release.delta(epsilon)


@dataclass(frozen=True, kw_only=True)
class AssuredCohort:
    """What is assured about the other clients of each sampled cohort, except with probability ``failure``: at least
    ``others`` take part, and for each (k, q) of ``most_of`` at most q of the k that hide a report least.

    A client that takes part sends all coordinates, so the clones of different coordinates depend on each other through
    the clients present. Therefore the worst cohort is counted, and the probability ``failure`` that any round has a
    worse one is added to delta.

    Raises:
        ValueError: for fewer than two clients, or cohorts of another kind than all clients, Poisson samples and the
            batches of a pass.
    """

    others: int
    failure: float
    most_of: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, plan: Plan, delta: float, *, rounds: int, unequal: bool = False) -> Self:
        """Return what is assured in each of the plan's cohorts, if clients are ``unequal`` also about which ones take
        part. It fails with probability at most a thousandth of ``delta``, and never if all clients take part, or equal
        ones in batches of known size.
        """
        check_clients(plan.clients)
        if isinstance(plan.cohort, Epoch):
            check_clients(fewest := plan.cohort.fewest(plan.clients))
            equal = cls(others=fewest - 1, failure=0.0)
            return equal._of_a_pass(plan, _FAILS * delta, rounds=rounds) if unequal else equal
        rate = poisson_rate("cohort", plan.cohort)
        if rate == 1:
            return cls(others=plan.clients - 1, failure=0.0)
        # Fewer clients than this quantile take part with a smaller probability.
        sure = binom.ppf(_FAILS * delta / rounds, plan.clients - 1, rate)
        return cls(others=int(sure), failure=_FAILS * delta)

    def _of_a_pass(self, plan: Plan, failure: float, *, rounds: int) -> Self:
        """The same number of others, drawn without replacement; a quantile of their number in each group."""
        pool = plan.clients - 1
        cuts = [pool * number // _STRATA for number in range(1, _STRATA)]
        each = failure / (plan.cohort.participations(rounds) * len(cuts))
        # The largest counts that are exceeded with a smaller probability than `each`.
        counts = hypergeom.isf(each, pool, cuts, self.others).astype(int).tolist()
        return replace(self, failure=failure, most_of=tuple(zip(cuts, counts, strict=True)))

    def worst(self, ranked: FloatArray) -> FloatArray:
        """Return the numbers of the worst assured cohort, one for each of the ``others``.

        ``ranked``: one number for each other client of the federation, of the one that hides a report least first.
        """
        places = np.arange(self.others)
        for group, count in self.most_of:
            # At most `count` are of this group: those that follow rank behind it.
            places[count:] = np.maximum(places[count:], group)
        return ranked[places]


def among_equals(*, others: int, epsilon0: float) -> Profile:
    """Return the privacy profile (delta as a function of epsilon) of one coordinate that is shuffled among those of
    ``others`` other clients; all clients use clip-Laplace at ``epsilon0``.
    """
    return tighter(LocalPair(epsilon0), shuffled(clients=others + 1, epsilon0=epsilon0))


def among_unequals(*, client: int, budgets: tuple[float, ...], cohort: AssuredCohort) -> Profile:
    """Return the privacy profile of one shuffled coordinate if clients use clip-Laplace at their own ``budgets``. Only
    clones hide the report of ``client``: reports that can be treated as drawn by the client's own mechanism (see
    ``accounting.heterogeneous``).

    Where not all take part, the worst assured ``cohort`` is counted: larger budgets are clones less often.
    """
    rest = cohort.worst(np.sort(np.delete(np.asarray(budgets, dtype=np.float64), client))[::-1])[::-1]
    return tighter(LocalPair(budgets[client]), client_bound(epsilon=budgets[client], others=rest))


def among_unequal_laplace(*, client: int, budgets: tuple[float, ...], cohort: AssuredCohort) -> Profile:
    """Return the privacy profile of one shuffled coordinate if clients use the classic Laplace mechanism at their own
    budgets; clients with less noise than ``client`` do not hide its report (see ``laplace.laplace_clones``).

    Where not all take part, the worst assured ``cohort`` is counted.
    """
    own = budgets[client]
    # Sorted by probability, which is not monotone in the budget.
    chances = cohort.worst(np.sort(laplace_clones(np.delete(np.asarray(budgets, dtype=np.float64), client), own)))
    return tighter(LaplacePair(own), ClonePair(epsilon0=own, clones=poisson_binomial(chances)))


def tighter(one: Profile, other: Profile) -> Profile:
    """Return the one of two valid privacy profiles that has the smaller delta at epsilon 0. One profile is for the
    shuffled report; the other assumes that the sender is known, and is exact if no other client hides the report.
    """
    return one if one.delta(0.0) <= other.delta(0.0) else other


def largest_scale(
    cost: Callable[[float], float], epsilon: float, *, largest: float = 1.0, else_too_large: str = ""
) -> float:
    """Find the largest factor by which all local budgets can be multiplied so that ``cost``, the total epsilon as a
    function of the factor, is at most ``epsilon``; the result is too small by a relative error of at most 1e-4.

    Args:
        largest: local budget at factor 1.
        else_too_large: appended to the error where no budget costs epsilon.

    Raises:
        ValueError: where no local budget in [1e-6, 50] costs it.
    """
    check_positive("epsilon", epsilon)

    def excess(log_scale: float) -> float:
        # In logarithms, where the cost is nearly linear, the root search needs few evaluations.
        return math.log(max(cost(math.exp(log_scale)), 1e-12) / epsilon)

    # A start that is small for most federations; both directions are searched from it.
    low = high = math.log(0.1 / largest)
    while excess(low) > 0:
        low -= 1.5
        if low < math.log(_LEAST_LOCAL / largest):
            raise ValueError(
                f"epsilon must be large enough to allow local budgets above {_LEAST_LOCAL:g}, got {epsilon}"
            )
    while excess(high) < 0:
        high += 0.2
        if high > math.log(MOST_LOCAL / largest):
            raise ValueError(
                f"epsilon must be small enough to need local budgets of at most {MOST_LOCAL:g}{else_too_large}, "
                f"got {epsilon}"
            )
    root = float(brentq(excess, low, high, xtol=1e-5)) if high > low else low
    # The search ends on either side of the root; the budget must not be exceeded.
    while excess(root) > 0:
        root -= 2e-5
    return math.exp(root)


def check_clients(clients: int) -> None:
    """Raise ValueError for fewer than two clients, because a shuffler cannot hide the report of a single client."""
    if clients < 2:
        raise ValueError(
            f"clients must be >= 2, because a shuffler cannot hide the sender of a single report, got {clients}"
        )
