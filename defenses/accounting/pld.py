"""Accountant for privacy-loss distributions that computes those of Poisson-subsampled Gaussian noise in arrays.

It is the accountant of the library dp-accounting with equal numbers; the library inverts the privacy loss of one point
after the other, which takes most of its time.
"""

import math
from typing import Any

import numpy as np
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from dp_accounting.privacy_accountant import NeighboringRelation

from ...audit.arrays import BoolArray, FloatArray


class ArrayPLDAccountant(PLDAccountant):  # type: ignore[misc]
    """An accountant like ``PLDAccountant`` that is several times faster for Poisson-subsampled Gaussian noise."""

    _pld: Any

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        sampled = isinstance(event, PoissonSampledDpEvent) and isinstance(event.event, GaussianDpEvent)
        if not (
            sampled
            and do_compose
            and self.neighboring_relation is not NeighboringRelation.REPLACE_ONE
            and 0 < event.sampling_probability < 1
            and event.event.noise_multiplier > 0
        ):
            return super()._maybe_compose(event, count, do_compose)
        pmfs = [
            _pmf(event.event.noise_multiplier, event.sampling_probability, kind, self._value_discretization_interval)
            for kind in (AdjacencyType.REMOVE, AdjacencyType.ADD)
        ]
        self._pld = self._pld.compose(PrivacyLossDistribution(*pmfs).self_compose(count))
        return None


def _pmf(sigma: float, rate: float, kind: AdjacencyType, interval: float) -> Any:
    """The discretised distribution of the privacy loss of one release; ``interval``: step of the losses."""
    loss = GaussianPrivacyLoss(sigma, sensitivity=1, sampling_prob=rate, adjacency_type=kind)
    bounds = loss.connect_dots_bounds()
    low, high = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
    deltas = _deltas(loss, sigma, rate, kind, np.arange(low, high + 1) * interval)
    return create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)


def _deltas(loss: Any, sigma: float, rate: float, kind: AdjacencyType, epsilons: FloatArray) -> FloatArray:
    """Delta at each epsilon, as ``GaussianPrivacyLoss.get_delta_for_epsilon`` computes it."""
    removing = kind is AdjacencyType.REMOVE
    deltas = np.zeros_like(epsilons)
    if removing:
        inside: BoolArray = epsilons > math.log1p(-rate)
        deltas[~inside] = -np.expm1(epsilons[~inside])
    else:
        inside = epsilons < -math.log1p(-rate)
    cutoffs = _inverse(epsilons[inside], sigma, rate, removing=removing)
    deltas[inside] = loss.mu_upper_cdf(cutoffs) - np.exp(epsilons[inside] + loss.mu_lower_log_cdf(cutoffs))
    return np.asarray(np.clip(deltas, 0, 1))


def _inverse(losses: FloatArray, sigma: float, rate: float, *, removing: bool) -> FloatArray:
    """The largest outputs whose privacy loss is at least ``losses``."""
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
