"""Correct, at the server, the bias of the mean of clip-Laplace reports (Liu et al. 2023, equation 1)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....audit.arrays import FloatArray
from ....fl.message import Message
from .clip_laplace import mean_and_variance

_KNOTS = 257
_CHUNK = 1 << 18


class Quality(NamedTuple):
    """The bias and the standard deviation of the bias-corrected mean of one coordinate."""

    bias: float
    spread: float


def calibrated_mean(received: Message, radius: float, *, rate: float = 1.0) -> Tensor:
    """Return the server's bias-corrected estimate of clients' mean vector, shape ``(R, d)`` in [-radius, radius]; 0 if
    no client took part.

    The server does not know which budget a report has, but which budgets there are (the side ``budget``). It looks for
    the one value which, if all clients held it, has the observed mean, and stays within the range where one exists.

    Args:
        rate: share of the reports that are of the value; the others are of 0.
    """
    counts = received.present.sum(1).clamp_min(1)
    # In double, because inverting a flat curve amplifies rounding errors.
    means = (received.values.sum(1) / counts.unsqueeze(1)).double().numpy()
    estimates, known = np.zeros_like(means), (np.empty(0), np.empty(0))
    for replica, there in enumerate(received.present):
        if not bool(there.any()):
            continue
        budgets = np.sort(received.side["budget"][replica, there].double().numpy())
        # Replicas of a full cohort share their budgets, and the curve is the slow part.
        if not np.array_equal(budgets, known[0]):
            known = budgets, _expected(_knots(radius), budgets, radius)
        # interp clamps at the ends, so an impossible mean gives the nearest possible value.
        estimates[replica] = np.interp(means[replica] / rate, known[1], _knots(radius))
    return torch.from_numpy(estimates).to(received.values.dtype)


def calibration_quality(values: Sequence[float] | FloatArray, budgets: Sequence[float], radius: float) -> Quality:
    """Compute bias and standard deviation of the bias-corrected mean of ``values``, one per client, to first order in
    the noise.

    It ignores the cut at the ends of the range.
    """
    centres, each = np.asarray(values, dtype=np.float64), np.asarray(budgets, dtype=np.float64)
    means, variances = mean_and_variance(centres, each, radius)
    knots = _knots(radius)
    curve = _expected(knots, np.sort(each), radius)
    found = float(np.interp(means.mean(), curve, knots))
    slope = float(np.interp(found, knots, np.gradient(curve, knots)))
    return Quality(
        bias=found - float(centres.mean()), spread=float(np.sqrt(variances.sum())) / centres.size / abs(slope)
    )


def _knots(radius: float) -> FloatArray:
    return np.linspace(-radius, radius, _KNOTS)


def _expected(knots: FloatArray, budgets: FloatArray, radius: float) -> FloatArray:
    """Mean report where all clients hold the same value, for each of the ``knots``."""
    # Equal budgets share a curve; usually there are far fewer budgets than clients.
    different, counts = np.unique(budgets, return_counts=True)
    total, step = np.zeros(knots.size), max(1, _CHUNK // knots.size)
    for start in range(0, different.size, step):
        block = slice(start, start + step)
        total += counts[block] @ mean_and_variance(knots, different[block, np.newaxis], radius)[0]
    return np.asarray(total / budgets.size, dtype=np.float64)
