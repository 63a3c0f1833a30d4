"""Clip-Laplace on rows: every coordinate of every report, each row at its own budget, in blocks; and its law.

The law of ``randomisers.ClippedLaplace`` with inputs and outputs in [-radius, radius], scale 2 radius / budget.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...audit.binomial import FloatArray
from ...fl.law import Mixing, clip_entries

_CHUNK = 1 << 18
_GRID = 2**22
_EDGE = 1 + 1e-6  # A report at the end may be a rounding beyond it in single precision.


def randomised_rows(values: Tensor, budgets: Tensor, radius: float, rng: np.random.Generator) -> Tensor:
    """``values (..., d)``, clipped here, and a budget for each row ``(...,)`` -> reports ``(..., d)``, same dtype.

    One uniform a number, in the order of the numbers, whatever the blocks. Drawn in double precision and rounded to a
    grid of 2^22 steps a radius: all values reach the same reports, so that no low bit tells a value.
    """
    dim = max(1, values.shape[-1])
    raw, reports = values.reshape(-1, dim), torch.empty_like(values)
    rows, scales = reports.view(-1, dim), 2 * radius / budgets.reshape(-1, 1).double().numpy()
    step = max(1, _CHUNK // dim)
    for start in range(0, len(raw), step):
        block = slice(start, start + step)
        centres = clip_entries(raw[block].double(), radius).numpy()
        drawn = draw(centres, scales[block], radius, rng)
        rows[block] = torch.from_numpy(drawn).to(values.dtype)
    return reports


def draw(centres: FloatArray, scales: FloatArray, radius: float, rng: np.random.Generator) -> FloatArray:
    """One report of each centre in [-radius, radius], by the inverse of its distribution function."""
    below, above = np.exp(-(radius + centres) / scales) / 2, np.exp(-(radius - centres) / scales) / 2
    share = below + rng.random(centres.shape) * (1 - above - below)
    tail = np.minimum(share, 1 - share)
    reports = centres - scales * np.log(2 * tail) * np.sign(share - 0.5)
    grid = _GRID / radius
    return np.asarray(np.clip(np.rint(reports * grid) / grid, -radius, radius), dtype=np.float64)


def log_clip_laplace(reports: Tensor, centres: Tensor, scale: float, radius: float) -> Tensor:
    """Log density of each number, -inf outside of [-radius, radius]; differentiable in the centres."""
    inside = 1 - math.exp(-radius / scale) * torch.cosh(centres / scale)
    found = -(reports - centres).abs() / scale - torch.log(2 * scale * inside)
    return found.masked_fill(reports.abs() > radius * _EDGE, -math.inf)


@dataclass(frozen=True, kw_only=True)
class ClipLaplaceLaw:
    """Every coordinate of a report by itself: clipped to ``radius``, then clip-Laplace at the coordinate's ``budget``.

    With ``rate`` below 1 a coordinate is reported with that chance only, else a report of 0 stands in its place.
    """

    radius: float
    budget: float
    mixing: Mixing
    rate: float = 1.0

    @property
    def scale(self) -> float:
        """Of the noise before it is conditioned on the range."""
        return 2 * self.radius / self.budget

    def contribution(self, rows: Tensor) -> Tensor:
        return clip_entries(rows, self.radius)

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        centres = contribution.double().numpy()
        if self.rate < 1:
            centres = np.where(rng.random(centres.shape) < self.rate, centres, 0.0)
        return torch.from_numpy(draw(centres, np.asarray(self.scale), self.radius, rng)).to(contribution.dtype)

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
    """Of a report at each centre in [-radius, radius] and budget (broadcast; Liu et al. 2023, equation 1)."""
    scale = 2 * radius / budgets
    above, below = np.exp(-(radius - centres) / scale) / 2, np.exp(-(radius + centres) / scale) / 2
    inside = 1 - above - below
    mean = (centres - (radius + scale) * (above - below)) / inside
    square = (centres**2 + 2 * scale**2 - (radius**2 + 2 * scale * radius + 2 * scale**2) * (above + below)) / inside
    return np.asarray(mean, dtype=np.float64), np.asarray(square - mean**2, dtype=np.float64)
