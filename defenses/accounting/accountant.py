"""Compute epsilon with Google's dp-accounting library, and convert Renyi and zero-concentrated guarantees into it.

Compute epsilon with Google's dp-accounting library, by privacy-loss distributions or by Renyi divergences.

The two accountants differ in the reference of the noise. Under replace-one the library's Renyi accountant reads noise
over the replace-one sensitivity, while its PLD accountant doubles the sensitivity itself, so that one event gives
epsilon 2.166 by one and 4.377 by the other. Here noise is always over the sensitivity of the **claimed** adjacency
(``sensitivity``).

Convert Renyi and zero-concentrated DP guarantees into (epsilon, delta) guarantees.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import version

import dp_accounting
import numpy as np
from dp_accounting.dp_event import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    MixtureOfGaussiansDpEvent,
    PoissonSampledDpEvent,
    RandomizedResponseDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation, PrivacyAccountant, UnsupportedEventError
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import minimize_scalar
from scipy.stats import binom

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency
from ...fl.fields import check_positive
from ..defense import check_budget, check_delta
from .pld import MixtureAccountant, gaussian_mixtures

RELATIONS = {
    Adjacency.ADD_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Adjacency.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
    Adjacency.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
}
_FINE = 1e-4


class Method(StrEnum):
    """A method by which the library dp-accounting composes privacy losses; a claim states the method that computed its
    epsilon.
    """

    PLD = "PLD"
    RDP = "RDP"

    @property
    def accountant(self) -> str:
        """Return the name of the accounting method as a claim states it, with the library's name and version."""
        return f"{_LIBRARY} {self.value}"


_LIBRARY = f"dp-accounting {version('dp-accounting')}"
ACCOUNTANT = Method.PLD.accountant
ANALYTIC_GAUSSIAN = f"{_LIBRARY} analytic Gaussian"
RENYI = f"{_LIBRARY} RDP to (epsilon, delta)"


def sensitivity(norm: float | None, adjacency: Adjacency) -> float:
    """Return the L2 sensitivity of a sum of clipped vectors: the clip norm, or twice the clip norm under replace-one.

    Raises:
        ValueError: where no clip norm is given or it is not above 0: noise without a sensitivity gives no epsilon.
    """
    if norm is None:
        raise ValueError(
            "the clip norm must be given, because without a finite sensitivity no noise gives a finite epsilon, "
            "got None"
        )
    check_positive("norm", norm)
    return 2.0 * norm if adjacency is Adjacency.REPLACE_ONE else norm


def epsilon_of(
    event: DpEvent, *, delta: float, adjacency: Adjacency, method: Method = Method.PLD, interval: float = _FINE
) -> float:
    """Compute epsilon at ``delta`` in (0, 1) for ``event``, a mechanism as described by the library dp-accounting.

    By PLD, Renyi divergences give epsilon where ``delta`` is too small for privacy-loss distributions, and for other
    mechanisms than Gaussian ones wherever they prove less.

    Args:
        event: an event of dp-accounting; noise over the sensitivity of ``adjacency``.
        interval: largest step of the discretised privacy losses (PLD only); the error is on the safe side.

    Raises:
        ValueError: for an event that the accountant does not support under this adjacency, such as fixed-size lots by
            PLD or Poisson lots under replace-one by RDP.
    """
    check_delta(delta)
    accountant = compose(event, adjacency=adjacency, method=method, interval=interval)
    found = float(accountant.get_epsilon(delta))
    if method is Method.RDP or (isinstance(accountant, MixtureAccountant) and math.isfinite(found)):
        return found
    with suppress(ValueError):
        found = min(found, float(compose(event, adjacency=adjacency, method=Method.RDP).get_epsilon(delta)))
    return found


def compose(
    event: DpEvent, *, adjacency: Adjacency, method: Method = Method.PLD, interval: float = _FINE
) -> PrivacyAccountant | MixtureAccountant:
    """Return an accountant that has composed the mechanism ``event``; arguments as for ``epsilon_of``."""
    relation = RELATIONS[adjacency]
    if method is Method.RDP:
        return _composed(RdpAccountant(None, relation), event, f"RDP under {adjacency.phrase}")
    replaced = adjacency is Adjacency.REPLACE_ONE
    # Under replace-one each of the two inputs moves a release by half of the distance between them.
    mixtures = gaussian_mixtures(_doubled(event) if replaced else event, replaced=replaced)
    if mixtures:
        return MixtureAccountant(mixtures, interval)
    # Cancels the doubling of the sensitivity inside the library's PLD accountant.
    doubled = _doubled(event) if adjacency is Adjacency.REPLACE_ONE else event
    return _composed(PLDAccountant(relation, interval), _unrolled(doubled), f"PLD under {adjacency.phrase}")


def renyi_divergence(event: DpEvent, *, order: float, adjacency: Adjacency) -> float:
    """Compute the Renyi divergence of the mechanism ``event`` at one ``order`` > 1; raise the same errors as
    ``epsilon_of``.
    """
    return float(renyi_divergences(event, orders=(order,), adjacency=adjacency)[0])


def renyi_divergences(event: DpEvent, *, orders: Sequence[float], adjacency: Adjacency) -> FloatArray:
    """Compute the Renyi divergences of the mechanism ``event``, one for each of ``orders``, in the given order."""
    for order in orders:
        if not 1 < order < math.inf:
            raise ValueError(f"the Renyi order must be > 1 and finite, got {order!r}")
    accountant = RdpAccountant(list(orders), RELATIONS[adjacency])
    return np.asarray(_composed(accountant, event, f"RDP under {adjacency.phrase}").rdp, dtype=np.float64)


def _composed(accountant: PrivacyAccountant, event: DpEvent, name: str) -> PrivacyAccountant:
    try:
        return accountant.compose(event)
    except UnsupportedEventError as error:
        raise ValueError(f"accounting by {name} does not support the mechanism {event}: {error}") from None


def gaussian_steps(*, sigma: float, rate: float, steps: int, parts: int = 1) -> DpEvent:
    """Return ``steps`` Gaussian releases, each on a Poisson sample drawn at ``rate``, as an event, which is
    dp-accounting's description of a mechanism; ``sigma`` is the noise's standard deviation divided by the sensitivity.

    Args:
        parts: the protected unit consists of so many parts of equal sensitivity, each drawn independently at ``rate``.
            A release then holds a binomial number of them, a mixture of Gaussians (Choquette-Choo et al. 2024,
            Corollary 4.7).
    """
    if parts == 1 or rate == 1:
        sampled = dp_accounting.PoissonSampledDpEvent(rate, GaussianDpEvent(sigma))
        return SelfComposedDpEvent(sampled, steps)
    drawn = np.arange(parts + 1)
    chances = binom.pmf(drawn, parts, rate)
    # The library refuses probabilities that are rounded to 0, below 1e-300.
    kept = chances > 0
    event = MixtureOfGaussiansDpEvent(sigma, tuple(drawn[kept] / parts), tuple(chances[kept]))
    return SelfComposedDpEvent(event, steps)


def _unrolled(event: DpEvent) -> DpEvent:
    """The event with each randomised response by itself, because dp-accounting 0.6 counts a repeated one once."""
    if isinstance(event, SelfComposedDpEvent) and RandomizedResponseDpEvent.__name__ in repr(event):
        return ComposedDpEvent([_unrolled(event.event)] * event.count)
    return ComposedDpEvent([*map(_unrolled, event.events)]) if isinstance(event, ComposedDpEvent) else event


def _doubled(event: DpEvent) -> DpEvent:
    """The event with the noise of every Gaussian doubled; ValueError for a kind of event that might contain one."""
    if isinstance(event, GaussianDpEvent):
        return GaussianDpEvent(2 * event.noise_multiplier)
    if isinstance(event, SelfComposedDpEvent):
        return SelfComposedDpEvent(_doubled(event.event), event.count)
    if isinstance(event, PoissonSampledDpEvent):
        return PoissonSampledDpEvent(event.sampling_probability, _doubled(event.event))
    if isinstance(event, ComposedDpEvent):
        return ComposedDpEvent([_doubled(part) for part in event.events])
    # These have no noise multiplier, so there is nothing to double.
    if isinstance(event, RandomizedResponseDpEvent | dp_accounting.NoOpDpEvent):
        return event
    raise ValueError(
        f"accounting by PLD under replace-one does not support mechanisms (events) of type {type(event).__name__}"
    )


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
    return float(np.nextafter(best.fun, math.inf)) if best.fun > 0 else 0.0


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


def epsilon_from_zcdp(rho: float, delta: float) -> float:
    """Compute the smallest epsilon at ``delta`` in (0, 1) that rho-zCDP implies; the Renyi divergence of a rho-zCDP
    mechanism at every order a > 1 is at most rho a.

    A mu-GDP mechanism is (mu^2 / 2)-zCDP; its exact epsilon lies below (``audit.curve.epsilon_from_mu``).

    Raises:
        ValueError: for rho that is not finite and >= 0.
    """
    check_delta(delta)
    if not 0 <= rho < math.inf:
        raise ValueError(f"rho must be >= 0 and finite, got {rho!r}")
    return epsilon_at_best_order(lambda order: rho * order, delta) if rho else 0.0
