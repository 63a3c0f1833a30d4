"""Law: the public description of a release, with which attacks score."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ..streams import normal


class Law(Protocol):
    """How a release is distributed, given the rows that went into it."""

    def contribution(self, rows: Tensor) -> Tensor:
        """What rows ``(..., d)`` add to the release without noise, row by row, ``(..., d)``."""
        ...

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        """A release around a total contribution ``(..., d)``."""
        ...

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        """Log density of ``release (..., d)`` around a total ``contribution``, ``(...,)``; differentiable."""
        ...


class Mixing(StrEnum):
    """What the channel does to the clients' reports: nothing, whole rows shuffled, or each coordinate by itself."""

    NONE = "none"
    ROWS = "rows"
    COORDINATES = "coordinates"


@runtime_checkable
class ReportLaw(Law, Protocol):
    """The law of one client's own report, as it leaves the client, where that is not a Gaussian around the row.

    ``log_density`` is with respect to any measure that does not depend on the row: ratios are what it is for.
    """

    @property
    def mixing(self) -> Mixing:
        """How the reports of all clients reach the observer."""
        ...

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        """The same by coordinate, ``(..., d)``, summing to ``log_density``; ValueError where coordinates of a report
        hang together, which no ``Mixing.COORDINATES`` may have.
        """
        ...

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        """Raw rows ``(d,)``, absent and present, whose reports differ most, as far as is known."""
        ...


def clip(rows: Tensor, norm: float | Tensor) -> Tensor:
    """Rows ``(..., d)`` shortened to an L2 norm of at most ``norm`` (Abadi et al. 2016, Algorithm 1).

    Whatever stands in a row, the result is finite and no longer: else one overflow in training would pass the noise
    unhidden. An entry that is no number counts as zero, an infinite one as the largest number that there is.

    Args:
        norm: one for all rows, or one a row, ``(..., 1)`` and above zero.

    Raises:
        ValueError: if ``norm`` is one for all and not a finite number above zero.
    """
    if not isinstance(norm, Tensor):
        _check_norm(norm)
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    factor: Tensor = norm / lengths.clamp_min(norm)
    # One number: a test of each would cost small lots half as much again. A tensor without numbers has none to test.
    if rows.is_meta or math.isfinite(lengths.sum().item()):
        return rows * factor
    return torch.where(lengths.isfinite(), rows * factor, _clip_any(rows, norm))


def lot_sum(rows: Tensor, present: Tensor) -> Tensor:
    """Sum ``(R, d)`` of a lot's rows ``(R, n, d)`` that are ``present (R, n)``; one that is not may hold anything."""
    if present.is_meta or present.all():
        return rows.sum(1)
    total = torch.bmm(present.to(rows.dtype).unsqueeze(1), rows).squeeze(1)
    # Five times faster than filling, but an undrawn sample whose gradient overflows turns this sum into NaN.
    if math.isfinite(total.sum().item()):
        return total
    return rows.masked_fill(~present.unsqueeze(-1), 0).sum(1)


def clipped_sum(rows: Tensor, present: Tensor, norm: float | Tensor) -> Tensor:
    """``lot_sum`` of what ``clip`` makes of rows ``(R, n, d)``: ``norm`` is a number or ``(R, 1, 1)``. Reads each row
    twice and writes none.
    """
    if not isinstance(norm, Tensor):
        _check_norm(norm)
    lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    if rows.is_meta or math.isfinite(lengths.sum().item()):
        weights = norm / lengths.clamp_min(norm) * present.unsqueeze(-1)
        return torch.bmm(weights.transpose(1, 2), rows).squeeze(1)
    return lot_sum(clip(rows, norm), present)


def clip_entries(rows: Tensor, radius: float) -> Tensor:
    """Rows ``(..., d)`` bounded entry by entry to [-radius, radius]; an entry that is no number counts as zero."""
    return torch.nan_to_num(rows, nan=0.0).clamp(-radius, radius)


@dataclass(frozen=True, kw_only=True)
class GaussianLaw:
    """release = scale * (sum of clipped rows) + N(0, noise_std^2 I), possibly a sum of several sampled steps.

    Args:
        clip_norm: L2 bound of a row before scaling.
        scale: factor between the clipped sum and the release.
        noise_std: standard deviation of one coordinate of the whole release (all its steps together).
        rate: chance that a given row stands in a given step's sum (1: always).
        steps: independent noisy steps in one release.
        grid: distance of neighbouring values that the release can take; 0 where they lie as close as floats.
        additive: whether equal draws are equal noise whatever the rows are; false where noise is drawn through them.
    """

    clip_norm: float
    scale: float
    noise_std: float
    rate: float = 1.0
    steps: int = 1
    grid: float = 0.0
    additive: bool = True

    def __post_init__(self) -> None:
        _check_norm(self.clip_norm)
        if not 0 <= self.grid < math.inf:
            raise ValueError(f"grid must be a number >= 0, got {self.grid}")
        if not 0 <= self.noise_std < math.inf:
            raise ValueError(f"noise_std must be a number >= 0, got {self.noise_std}")
        if not 0 <= self.rate <= 1 or self.steps < 1:
            raise ValueError(f"rate must be in [0, 1] and steps >= 1, got {self.rate} and {self.steps}")

    def contribution(self, rows: Tensor) -> Tensor:
        return self.scale * clip(rows, self.clip_norm)

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        return contribution + self.noise_std * normal(rng, tuple(contribution.shape)).to(contribution)

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        if self.noise_std == 0:
            raise ValueError("a release without noise has no density: noise_std is 0")
        distance = (release - contribution).square().sum(-1) / (2 * self.noise_std**2)
        return -distance - release.shape[-1] * math.log(self.noise_std * math.sqrt(2 * math.pi))


def _clip_any(rows: Tensor, norm: float | Tensor) -> Tensor:
    """The same for rows whose length, or its square, is no finite number."""
    known = torch.nan_to_num(rows, nan=0.0)
    largest = known.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    units = known / largest
    lengths = torch.linalg.vector_norm(units, dim=-1, keepdim=True).clamp_min(1)
    return units * torch.minimum(largest, norm / lengths)


def _check_norm(norm: float) -> None:
    if not 0 < norm < math.inf:
        raise ValueError(f"clip norm must be a number > 0, got {norm}")
