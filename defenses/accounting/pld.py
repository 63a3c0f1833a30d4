"""Accountant for privacy-loss distributions that computes those of sampled Gaussian noise in arrays.

It is the accountant of the library dp-accounting with equal numbers; the library inverts the privacy loss of one point
after the other, which takes most of its time.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from dp_accounting.dp_event import GaussianDpEvent, MixtureOfGaussiansDpEvent, PoissonSampledDpEvent
from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import (
    AdjacencyType,
    GaussianPrivacyLoss,
    MixtureGaussianPrivacyLoss,
)
from dp_accounting.privacy_accountant import NeighboringRelation

from ...audit.arrays import BoolArray, FloatArray

_HALVINGS = 40
"""Of the range of outputs, after which a cut-off is known to 1e-10 of it."""
_Inverse = Callable[[FloatArray], FloatArray]
"""Privacy losses -> the largest outputs whose privacy loss is at least as large."""


class ArrayPLDAccountant(PLDAccountant):  # type: ignore[misc]
    """An accountant like ``PLDAccountant`` that is several times faster for Poisson-subsampled Gaussian noise and for
    mixtures of Gaussians.
    """

    _pld: Any

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        if not do_compose or self.neighboring_relation is NeighboringRelation.REPLACE_ONE:
            return super()._maybe_compose(event, count, do_compose)
        one, interval = None, self._value_discretization_interval
        if _is_sampled(event):
            one = partial(_of_sampled, event.event.noise_multiplier, event.sampling_probability, interval)
        elif _is_mixture(event):
            one = partial(_of_mixture, event, interval)
        if one is None:
            return super()._maybe_compose(event, count, do_compose)
        both = PrivacyLossDistribution(one(AdjacencyType.REMOVE), one(AdjacencyType.ADD))
        self._pld = self._pld.compose(both.self_compose(count))
        return None


def _is_sampled(event: Any) -> bool:
    return (
        isinstance(event, PoissonSampledDpEvent)
        and isinstance(event.event, GaussianDpEvent)
        and 0 < event.sampling_probability < 1
        and event.event.noise_multiplier > 0
    )


def _is_mixture(event: Any) -> bool:
    """Whether an event is a mixture of Gaussians one of which is that of a release without the unit."""
    return (
        isinstance(event, MixtureOfGaussiansDpEvent)
        and event.standard_deviation > 0
        and min(event.sensitivities) == 0 < max(event.sensitivities)
        and min(event.sampling_probs) > 0
    )


def _of_sampled(sigma: float, rate: float, interval: float, kind: AdjacencyType) -> Any:
    """The discretised distribution of the privacy loss of one sampled release; ``interval``: step of the losses."""
    loss = GaussianPrivacyLoss(sigma, sensitivity=1, sampling_prob=rate, adjacency_type=kind)
    inverse = partial(_inverse, sigma=sigma, rate=rate, removing=kind is AdjacencyType.REMOVE)
    return _pmf(loss, inverse, rate, kind, interval)


def _of_mixture(event: Any, interval: float, kind: AdjacencyType) -> Any:
    """The same for one release whose sensitivity is random."""
    loss = MixtureGaussianPrivacyLoss(
        event.standard_deviation, event.sensitivities, event.sampling_probs, adjacency_type=kind
    )
    rate = sum(chance for chance, moved in zip(event.sampling_probs, event.sensitivities, strict=True) if moved)
    return _pmf(loss, partial(_searched, loss, event, kind), rate, kind, interval)


def _pmf(loss: Any, inverse: _Inverse, rate: float, kind: AdjacencyType, interval: float) -> Any:
    bounds = loss.connect_dots_bounds()
    low, high = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
    deltas = _deltas(loss, inverse, rate, kind, np.arange(low, high + 1) * interval)
    return create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)


def _searched(loss: Any, event: Any, kind: AdjacencyType, losses: FloatArray) -> FloatArray:
    """The inverse of a mixture's privacy loss by bisection of all ``losses`` at once."""
    moved, chances = (np.asarray(one, dtype=np.float64) for one in (event.sensitivities, event.sampling_probs))
    variance, sign = event.standard_deviation**2, 1.0 if kind is AdjacencyType.REMOVE else -1.0
    tails = loss.privacy_loss_tail()
    # Beyond the tails the loss changes by less than a step of the grid before no mass is left.
    low = np.full_like(losses, tails.lower_x_truncation - event.standard_deviation)
    high = np.full_like(losses, tails.upper_x_truncation + event.standard_deviation)
    logs = np.log(chances) - moved**2 / (2 * variance)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        terms = logs - sign * np.multiply.outer(middle, moved) / variance
        top = terms.max(axis=1)
        there = sign * (top + np.log(np.exp(terms - top[:, np.newaxis]).sum(axis=1)))
        enough = there >= losses
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    return low


def _deltas(loss: Any, inverse: _Inverse, rate: float, kind: AdjacencyType, epsilons: FloatArray) -> FloatArray:
    """Delta at each epsilon, as ``get_delta_for_epsilon`` of the privacy loss computes it."""
    removing = kind is AdjacencyType.REMOVE
    deltas = np.zeros_like(epsilons)
    if removing:
        inside: BoolArray = epsilons > math.log1p(-rate)
        deltas[~inside] = -np.expm1(epsilons[~inside])
    else:
        inside = epsilons < -math.log1p(-rate)
    cutoffs = inverse(epsilons[inside])
    deltas[inside] = loss.mu_upper_cdf(cutoffs) - np.exp(epsilons[inside] + loss.mu_lower_log_cdf(cutoffs))
    return np.asarray(np.clip(deltas, 0, 1))


def _inverse(losses: FloatArray, *, sigma: float, rate: float, removing: bool) -> FloatArray:
    """The largest outputs whose privacy loss under Poisson sampling is at least ``losses``."""
    sign = 1.0 if removing else -1.0
    # log(1 + (exp(loss) - 1) / rate): the loss of the same output without subsampling.
    d, c = sign * losses + np.log(1 / rate), np.log(1 / rate - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = sign * (d + np.log1p(-np.exp(c - d)))
    whole[losses == 0] = sign * np.log(1 / rate + (1 - 1 / rate))
    edge = math.log(1 - rate) * sign
    whole[np.abs(losses - edge) <= 1e-9 * np.maximum(np.abs(losses), abs(edge))] = -sign * math.inf
    outputs: FloatArray = -0.5 - whole * sigma**2
    return outputs if removing else np.asarray(1 + outputs)
