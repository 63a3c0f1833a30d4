"""Perturb coordinates by clip-Laplace or classic Laplace noise at the senders' budgets, and correct the bias of means.

Perturb coordinates by clip-Laplace (Laplace noise conditioned on a fixed range), each at its sender's budget.

The law of ``randomisers.ClippedLaplace`` with inputs and outputs in [-radius, radius], scale 2 radius / budget.

Correct, at the server, the bias of the mean of clip-Laplace reports (Liu et al. 2023, equation 1).

Draw classic Laplace noise for every coordinate at its sender's budget, and compute its privacy when shuffled.

The baselines of Liu et al. 2023 (APES) run it instead of clip-Laplace. The law of ``randomisers.Laplace``.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import FloatArray
from ...fl.laws import Mixing, clip_entries
from ...fl.message import Message

_CHUNK = 1 << 15
_GRID = 2**22
_EDGE = 1 + 1e-6  # In single precision a report at the end may be rounded to just beyond it.


def randomised_rows(values: Tensor, budgets: Tensor, radius: float, rng: np.random.Generator) -> Tensor:
    """Draw clip-Laplace reports of client vectors ``values``, shape ``(..., d)``, with one epsilon per vector
    (``budgets``, shape ``(...,)``); entries are first clipped to [-radius, radius], and reports have the dtype of
    ``values``.

    One uniform number per coordinate, in the order of the coordinates, whatever the blocks. Drawn in double precision
    and rounded to a grid of 2^22 steps per radius: all values reach the same reports, so that no low bit reveals a
    value.
    """

    def draw(centres: FloatArray, scales: FloatArray) -> FloatArray:
        return draw_clip_laplace(centres, scales, radius, rng)

    return noised_rows(values, budgets, radius, draw)


def noised_rows(
    values: Tensor, budgets: Tensor, radius: float, draw: Callable[[FloatArray, FloatArray], FloatArray]
) -> Tensor:
    """Return reports of client vectors ``values``, shape ``(..., d)``, with one epsilon per vector (``budgets``, shape
    ``(...,)``). ``draw`` gets a few clipped vectors at a time with their noise scales ``(..., 1)``: little memory is
    then in use at once, and small blocks stay in the cache.
    """
    reports, dim = torch.empty_like(values), max(1, values.shape[-1])
    raw, rows = values.reshape(-1, dim), reports.view(-1, dim)
    scales = (2 * radius / budgets.double().numpy()).reshape(-1, 1)
    step = max(1, _CHUNK // dim)
    for start in range(0, len(raw), step):
        block = slice(start, start + step)
        centres = clip_entries(raw[block].double(), radius).numpy()
        rows[block] = torch.from_numpy(draw(centres, scales[block]))
    return reports


def draw_clip_laplace(centres: FloatArray, scales: FloatArray, radius: float, rng: np.random.Generator) -> FloatArray:
    """Draw one clip-Laplace report of each number in ``centres``, all in [-radius, radius], by inverting the report's
    distribution function.
    """
    return clip_laplace_at(centres, scales, radius, rng.random(centres.shape))


def clip_laplace_at(centres: FloatArray, scales: FloatArray, radius: float, levels: FloatArray) -> FloatArray:
    """Return quantiles of the reports by which clip-Laplace replaces the true values ``centres``, one for each
    probability in ``levels``, which are in [0, 1); the arrays are broadcast.
    """
    lean, edge = np.exp(centres / scales), np.exp(-radius / scales) / 2
    below, above = edge / lean, edge * lean
    share = levels * (1 - above - below)
    share += below
    # In place from here on: these arrays are the largest of a round.
    tail = np.minimum(share, 1 - share)
    tail *= 2
    reports = np.log(tail, out=tail)
    # The logarithm is at most 0: it is subtracted above the middle and added below it.
    np.copysign(reports, np.subtract(share, 0.5, out=share), out=reports)
    reports *= scales
    reports += centres
    return np.clip(on_grid(reports, radius), -radius, radius, out=reports)


def on_grid(reports: FloatArray, radius: float) -> FloatArray:
    """Round reports to the nearest multiples of radius / 2^22, in place."""
    reports *= _GRID / radius
    np.rint(reports, out=reports)
    reports /= _GRID / radius
    return reports


def log_clip_laplace(reports: Tensor, centres: Tensor, scale: float, radius: float) -> Tensor:
    """Compute the log density of each clip-Laplace report given the true value in ``centres``, -inf for a report
    outside [-radius, radius]; the result is differentiable with respect to ``centres``.
    """
    # The mass within the range, which normalises the density.
    inside = 1 - math.exp(-radius / scale) * torch.cosh(centres / scale)
    found = -(reports - centres).abs() / scale - torch.log(2 * scale * inside)
    return found.masked_fill(reports.abs() > radius * _EDGE, -math.inf)


@dataclass(frozen=True, kw_only=True)
class BudgetLaw(ABC):
    """A base class of distributions of a report of numbers that are clipped to [-radius, radius] and then noised, with
    the epsilon ``budget`` per coordinate.
    """

    radius: float
    budget: float
    mixing: Mixing = Mixing.NONE

    @property
    def scale(self) -> float:
        """Return the scale of the Laplace noise, before the noise is conditioned on an output range (if it is)."""
        return 2 * self.radius / self.budget

    def contribution(self, rows: Tensor) -> Tensor:
        return clip_entries(rows, self.radius)

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        return self.log_densities(release, contribution).sum(-1)

    @abstractmethod
    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        """Return the log density of each number of a report; ValueError if the numbers are not independent."""

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        """Return two vectors, one with all entries at the lower and one with all at the upper end of the range."""
        ends = torch.full((dim,), self.radius)
        return -ends, ends


@dataclass(frozen=True, kw_only=True)
class ClipLaplaceLaw(BudgetLaw):
    """A distribution of a report with independent coordinates. Each coordinate is clipped to [-radius, radius] and then
    perturbed by Laplace noise conditioned on that range (clip-Laplace), with the epsilon ``budget`` per coordinate.

    With ``rate`` below 1 a coordinate is reported only with that probability, else a report of 0 takes its place.
    """

    rate: float = 1.0

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        centres = contribution.double().numpy()
        if self.rate < 1:
            # A dummy is a report of 0 by the same randomiser.
            centres = np.where(rng.random(centres.shape) < self.rate, centres, 0.0)
        return torch.from_numpy(draw_clip_laplace(centres, np.asarray(self.scale), self.radius, rng)).to(
            contribution.dtype
        )

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        seen, centres = release.double(), contribution.double()
        reported = log_clip_laplace(seen, centres, self.scale, self.radius)
        if self.rate == 1:
            return reported
        dummy = log_clip_laplace(seen, torch.zeros_like(centres), self.scale, self.radius)
        return torch.logaddexp(reported + math.log(self.rate), dummy + math.log1p(-self.rate))


def mean_and_variance(centres: FloatArray, budgets: FloatArray, radius: float) -> tuple[FloatArray, FloatArray]:
    """Compute mean and variance of a clip-Laplace report for each true value in ``centres``, all in [-radius, radius],
    and each epsilon in ``budgets``; the two arrays are broadcast (Liu et al. 2023, equation 1).
    """
    scale = 2 * radius / budgets
    above, below = np.exp(-(radius - centres) / scale) / 2, np.exp(-(radius + centres) / scale) / 2
    inside = 1 - above - below
    mean = (centres - (radius + scale) * (above - below)) / inside
    square = (centres**2 + 2 * scale**2 - (radius**2 + 2 * scale * radius + 2 * scale**2) * (above + below)) / inside
    return np.asarray(mean, dtype=np.float64), np.asarray(square - mean**2, dtype=np.float64)


_KNOTS = 257
_CHUNK_OF_MEANS = 1 << 18


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
    total, step = np.zeros(knots.size), max(1, _CHUNK_OF_MEANS // knots.size)
    for start in range(0, different.size, step):
        block = slice(start, start + step)
        total += counts[block] @ mean_and_variance(knots, different[block, np.newaxis], radius)[0]
    return np.asarray(total / budgets.size, dtype=np.float64)


# Half the distance of two uniform draws: a draw of 0 gives a report about 37 scales out and not an infinite one.
_LEAST = 2.0**-54


def laplace_rows(values: Tensor, budgets: Tensor, radius: float, rng: np.random.Generator) -> Tensor:
    """Draw Laplace reports of client vectors ``values``, shape ``(..., d)``, with one epsilon per vector (``budgets``,
    shape ``(...,)``); entries are first clipped to [-radius, radius], and reports have the dtype of ``values``.

    report = value + Lap(2 radius / budget), on the grid of ``clip_laplace.randomised_rows``.
    """

    def draw(centres: FloatArray, scales: FloatArray) -> FloatArray:
        return on_grid(centres + _noise(centres.shape, scales, rng), radius)

    return noised_rows(values, budgets, radius, draw)


def _noise(shape: tuple[int, ...], scales: FloatArray, rng: np.random.Generator) -> FloatArray:
    """One uniform number per coordinate, by the inverse of the distribution function."""
    # By inversion and not by the library's sampler: one uniform number per coordinate, as for clip-Laplace.
    level = rng.random(shape)
    far = np.log(2 * np.maximum(np.minimum(level, 1 - level), _LEAST))
    return np.asarray(np.copysign(far, level - 0.5) * scales, dtype=np.float64)


@dataclass(frozen=True)
class LaplacePair:
    """The privacy profile of one coordinate with Laplace noise at budget eps (``epsilon``) for an observer that knows
    its sender: delta(s) = 1 - e^((s - eps) / 2) at every epsilon s <= eps.

    The pair is the two ends of the range, because the likelihood ratio of two values is monotone in the report.
    """

    epsilon: float

    @property
    def pure_epsilon(self) -> float:
        """Return epsilon at delta 0, which is the coordinate's own budget."""
        return self.epsilon

    def delta(self, epsilon: float) -> float:
        return -math.expm1((min(epsilon, self.epsilon) - self.epsilon) / 2)


class LaplaceLaw(BudgetLaw):
    """A distribution of a report with independent coordinates. Each coordinate is clipped to [-radius, radius] and then
    perturbed by Laplace noise, with the epsilon ``budget`` per coordinate.
    """

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        centres = contribution.double().numpy()
        drawn = on_grid(centres + _noise(centres.shape, np.asarray(self.scale), rng), self.radius)
        return torch.from_numpy(drawn).to(contribution.dtype)

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        return -(release.double() - contribution.double()).abs() / self.scale - math.log(2 * self.scale)
