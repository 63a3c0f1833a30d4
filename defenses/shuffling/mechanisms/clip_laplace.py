"""Perturb coordinates by clip-Laplace (Laplace noise conditioned on a fixed range), each at its sender's budget.

The law of ``randomisers.ClippedLaplace`` with inputs and outputs in [-radius, radius], scale 2 radius / budget.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ....audit.arrays import FloatArray
from ....fl.laws import Mixing, clip_entries

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
    reports = torch.empty_like(values)
    for raw, rows, scales in row_blocks(values, reports, 2 * radius / budgets.double().numpy()):
        centres = clip_entries(raw.double(), radius).numpy()
        rows.copy_(torch.from_numpy(draw_clip_laplace(centres, scales, radius, rng)))
    return reports


def row_blocks(values: Tensor, reports: Tensor, scales: FloatArray) -> Iterator[tuple[Tensor, Tensor, FloatArray]]:
    """Yield a few client vectors of ``values``, shape ``(..., d)``, at a time, with the rows of ``reports`` into which
    the caller writes their reports, and with their noise scales; little memory is then in use at once.

    Small blocks stay in the cache.
    """
    dim = max(1, values.shape[-1])
    raw, rows, each = values.reshape(-1, dim), reports.view(-1, dim), scales.reshape(-1, 1)
    step = max(1, _CHUNK // dim)
    for start in range(0, len(raw), step):
        block = slice(start, start + step)
        yield raw[block], rows[block], each[block]


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
class ClipLaplaceLaw:
    """A distribution of a report with independent coordinates. Each is clipped to [-radius, radius] and then perturbed
    by Laplace noise conditioned on that range (clip-Laplace), with the epsilon ``budget`` per coordinate.

    With ``rate`` below 1 a coordinate is reported only with that probability, else a report of 0 takes its place.
    """

    radius: float
    budget: float
    mixing: Mixing
    rate: float = 1.0

    @property
    def scale(self) -> float:
        """Return the scale of the Laplace noise before it is conditioned on the output range."""
        return 2 * self.radius / self.budget

    def contribution(self, rows: Tensor) -> Tensor:
        return clip_entries(rows, self.radius)

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        centres = contribution.double().numpy()
        if self.rate < 1:
            # A dummy is a report of 0 by the same randomiser.
            centres = np.where(rng.random(centres.shape) < self.rate, centres, 0.0)
        return torch.from_numpy(draw_clip_laplace(centres, np.asarray(self.scale), self.radius, rng)).to(
            contribution.dtype
        )

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        return self.log_densities(release, contribution).sum(-1)

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        seen, centres = release.double(), contribution.double()
        reported = log_clip_laplace(seen, centres, self.scale, self.radius)
        if self.rate == 1:
            return reported
        dummy = log_clip_laplace(seen, torch.zeros_like(centres), self.scale, self.radius)
        return torch.logaddexp(reported + math.log(self.rate), dummy + math.log1p(-self.rate))

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        ends = torch.full((dim,), self.radius)
        return -ends, ends


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
