"""Accountant: declarative events to dp-accounting (Google), by privacy-loss distributions or by Renyi divergence.

The two differ in what noise is relative to: under replace-one the library's Renyi accountant takes noise over the
replace-one sensitivity, its PLD accountant doubles the sensitivity by itself, so that one event gives epsilon 2.166 by
one and 4.377 by the other. Here noise is always over the sensitivity of the **claimed** adjacency (``sensitivity``).
"""

from collections.abc import Callable
from enum import StrEnum
from importlib.metadata import version

import dp_accounting
from dp_accounting.dp_event import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation, PrivacyAccountant, UnsupportedEventError
from dp_accounting.rdp import RdpAccountant

from ...audit.claim import Adjacency
from ..defense import check_delta, check_positive

RELATIONS = {
    Adjacency.ADD_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Adjacency.REPLACE_ONE: NeighboringRelation.REPLACE_ONE,
    Adjacency.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
}
_FINE = 1e-4


class Method(StrEnum):
    """How dp-accounting composes: the claim names the one that signed."""

    PLD = "PLD"
    RDP = "RDP"

    @property
    def accountant(self) -> str:
        """Name and version, as a claim prints it."""
        return f"{_LIBRARY} {self.value}"


_LIBRARY = f"dp-accounting {version('dp-accounting')}"
ACCOUNTANT = Method.PLD.accountant
ANALYTIC_GAUSSIAN = f"{_LIBRARY} analytic Gaussian"


def sensitivity(norm: float | None, adjacency: Adjacency) -> float:
    """How far the clipped sums of two neighbours lie apart at most: the clip norm, twice that under replace-one.

    Raises:
        ValueError: where no clip norm is given or it is not above 0: noise without a sensitivity keeps nothing.
    """
    if norm is None:
        raise ValueError("the sensitivity must be given: without a clip norm no noise keeps any epsilon, got None")
    check_positive("norm", norm)
    return 2.0 * norm if adjacency is Adjacency.REPLACE_ONE else norm


def epsilon_of(
    event: DpEvent, *, delta: float, adjacency: Adjacency, method: Method = Method.PLD, interval: float = _FINE
) -> float:
    """Epsilon at ``delta`` in (0, 1) of a (composed, sampled) event.

    Args:
        event: an event of dp-accounting; noise over the sensitivity of ``adjacency``.
        interval: how fine privacy losses are discretised (PLD only); the error is on the safe side.

    Raises:
        ValueError: for an event that the accountant does not support under this adjacency, such as fixed-size lots by
            PLD or Poisson lots under replace-one by RDP.
    """
    check_delta(delta)
    return float(compose(event, adjacency=adjacency, method=method, interval=interval).get_epsilon(delta))


def compose(
    event: DpEvent, *, adjacency: Adjacency, method: Method = Method.PLD, interval: float = _FINE
) -> PrivacyAccountant:
    """The library's accountant after ``event``: see ``epsilon_of``."""
    relation = RELATIONS[adjacency]
    doubles = method is Method.PLD and adjacency is Adjacency.REPLACE_ONE
    accountant = PLDAccountant(relation, interval) if method is Method.PLD else RdpAccountant(None, relation)
    try:
        return accountant.compose(_with_noise(event, lambda noise: 2 * noise) if doubles else event)
    except UnsupportedEventError as error:
        raise ValueError(f"{method.value} cannot account for {event} under {adjacency.phrase}: {error}") from None


def gaussian_steps(*, sigma: float, rate: float, steps: int) -> DpEvent:
    """``steps`` releases with noise std ``sigma`` over the sensitivity, each on a Poisson sample of rate ``rate``."""
    sampled = dp_accounting.PoissonSampledDpEvent(rate, GaussianDpEvent(sigma))
    return SelfComposedDpEvent(sampled, steps)


def _with_noise(event: DpEvent, change: Callable[[float], float]) -> DpEvent:
    """The event with every Gaussian's noise changed; ValueError for a kind that might hide one."""
    if isinstance(event, GaussianDpEvent):
        return GaussianDpEvent(change(event.noise_multiplier))
    if isinstance(event, SelfComposedDpEvent):
        return SelfComposedDpEvent(_with_noise(event.event, change), event.count)
    if isinstance(event, PoissonSampledDpEvent):
        return PoissonSampledDpEvent(event.sampling_probability, _with_noise(event.event, change))
    if isinstance(event, ComposedDpEvent):
        return ComposedDpEvent([_with_noise(part, change) for part in event.events])
    if isinstance(event, dp_accounting.RandomizedResponseDpEvent | dp_accounting.NoOpDpEvent):
        return event
    raise ValueError(f"PLD cannot account for {type(event).__name__} under replace-one")
