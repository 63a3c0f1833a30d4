"""A law is the public probability distribution of a defense's release, which attacks use as a likelihood.

A layered law is that of a report which is clipped and noised layer by layer (FedRE, Xiao et al. 2025).
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from .fields import check_positive, check_weight
from .layout import Layout
from .streams import normal


class Law(Protocol):
    """The interface of a law, the probability distribution of a defense's release given the vectors that went
    into it.
    """

    def contribution(self, rows: Tensor) -> Tensor:
        """Return the noiseless contribution of each vector to the release.

        ``rows`` and the result have shape ``(..., d)``.
        """
        ...

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        """Draw a release whose noiseless value is ``contribution``, an array of shape ``(..., d)``."""
        ...

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        """Return the log density of each release, given its noiseless value ``contribution``; differentiable.

        ``release``: ``(..., d)``; the result has shape ``(...,)``.
        """
        ...


_LONG, _PART = 2**20, 2**16
"""Vectors of more entries than the first number are measured in parts of the second."""


class Mixing(StrEnum):
    """How a shuffler mixes the clients' reports: not at all, by shuffling whole reports, or by shuffling each
    coordinate.
    """

    NONE = "none"
    ROWS = "rows"
    COORDINATES = "coordinates"


@runtime_checkable
class ReportLaw(Law, Protocol):
    """The interface of the distribution of one client's report, for reports that are not Gaussian around the client's
    vector.

    ``log_density`` may be relative to any measure that does not depend on the row: only ratios are used.
    """

    @property
    def mixing(self) -> Mixing:
        """Return how a shuffler mixes the reports of all clients before the observer receives them."""
        ...

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        """Return the log density of each coordinate of a report; their sum over the coordinates is ``log_density``.

        The result has shape ``(..., d)``.

        Raises ValueError where the coordinates of a report are dependent, which ``Mixing.COORDINATES`` rules out.
        """
        ...

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        """Return the two client vectors whose reports are, as far as is known, the easiest to distinguish.

        They are ``(d,)`` vectors before clipping, without and with the canary.
        """
        ...


def clip(rows: Tensor, norm: float | Tensor) -> Tensor:
    """Scale each vector to an L2 norm of at most ``norm`` (Abadi et al. 2016, Algorithm 1).

    ``rows``: vectors ``(..., d)``; the result has the same shape.

    The result is finite and within the norm for any input, up to the rounding of its precision (1e-7 of the norm in
    single precision, half a per cent in bfloat16). A NaN entry counts as zero, an infinite entry as the largest finite
    number.

    Args:
        norm: one for all rows, or one per row, ``(..., 1)`` and > 0.

    Raises:
        ValueError: if ``norm`` is one number and not finite and > 0.
    """
    if not isinstance(norm, Tensor):
        check_positive("clip norm", norm)
    lengths = row_norms(rows)
    factor: Tensor = norm / lengths.clamp_min(norm)
    # A row that overflowed in training must not pass unclipped. One test of the sum: testing each entry would make
    # small lots half as slow again. A meta tensor has no numbers to test.
    if rows.is_meta or math.isfinite(lengths.sum().item()):
        return rows * factor
    return torch.where(lengths.isfinite(), rows * factor, _clip_any(rows, norm))


def row_norms(rows: Tensor) -> Tensor:
    """Return the L2 norm of each vector: ``rows (..., d)`` give ``(..., 1)``, in the precision of ``rows``.

    The norm of a long vector is that of the norms of its parts. PyTorch adds all squares in single precision on a CPU,
    which makes the norm of eleven million random numbers .04 % too small, and a clipped vector as much too long.
    """
    lengths: Tensor
    if rows.shape[-1] <= _LONG:
        lengths = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        return lengths
    parts = torch.stack([torch.linalg.vector_norm(part, dim=-1) for part in torch.split(rows, _PART, dim=-1)], dim=-1)
    lengths = torch.linalg.vector_norm(parts.double(), dim=-1, keepdim=True).to(rows.dtype)
    return lengths


def lot_sum(rows: Tensor, present: Tensor) -> Tensor:
    """Return the sum of per-sample vectors over a lot (sampled batch of training samples), for each replica
    (independent run).

    ``rows (R, n, d)`` of which those in ``present (R, n)`` count give ``(R, d)``; the others may hold anything.
    """
    if present.is_meta or present.all():
        return rows.sum(1)
    total = torch.bmm(present.to(rows.dtype).unsqueeze(1), rows).squeeze(1)
    # Five times faster than filling with zeros, but an undrawn sample whose gradient overflows makes this sum NaN.
    if math.isfinite(total.sum().item()):
        return total
    return rows.masked_fill(~present.unsqueeze(-1), 0).sum(1)


def clipped_sum(rows: Tensor, present: Tensor, norm: float | Tensor) -> Tensor:
    """Clip the per-sample vectors of a lot (sampled batch of training samples); return their sum per independent run.

    ``rows``: ``(R, n, d)``; ``norm`` is a number or ``(R, 1, 1)``.
    """
    # The weights enter one matrix product: each row is read twice, and no clipped copy is written.
    if not isinstance(norm, Tensor):
        check_positive("clip norm", norm)
    lengths = row_norms(rows)
    if rows.is_meta or math.isfinite(lengths.sum().item()):
        weights = norm / lengths.clamp_min(norm) * present.unsqueeze(-1)
        return torch.bmm(weights.transpose(1, 2), rows).squeeze(1)
    return lot_sum(clip(rows, norm), present)


def clip_entries(rows: Tensor, radius: float) -> Tensor:
    """Clamp each entry of the vectors to [-radius, radius]; a NaN entry becomes zero.

    ``rows``: vectors ``(..., d)``; the result has the same shape.
    """
    return torch.nan_to_num(rows, nan=0.0).clamp(-radius, radius)


@dataclass(frozen=True, kw_only=True)
class GaussianLaw:
    """The distribution of a release that is a scaled sum of clipped vectors plus Gaussian noise.

    release = scale * (sum of clipped rows) + N(0, noise_std^2 I). The release may be a sum of several steps, into each
    of which a vector is sampled.

    Args:
        clip_norm: L2 bound of a row before scaling.
        scale: factor between the clipped sum and the release, not 0.
        noise_std: standard deviation of one coordinate of the whole release (all its steps together).
        rate: probability that a given row is in a given step's sum (1: always).
        steps: independent noisy steps in one release.
        additive: whether equal draws give equal noise for any rows; false where the noise depends on the rows' values.
        then: what is done with the noised release before it is sent, in words, such as "clipped to [-1, 1]". The law
            is that of the release before it. Post-processing costs no privacy, but the noise and the sensitivity of
            what is sent cannot be compared with the law.

    Raises:
        ValueError: for a field that is no number, or out of range.
    """

    clip_norm: float
    scale: float
    noise_std: float
    rate: float = 1.0
    steps: int = 1
    additive: bool = True
    then: str = ""

    def __post_init__(self) -> None:
        for name in ("clip_norm", "scale", "noise_std", "rate", "steps"):
            # Tensors of one number would end far from here.
            if not isinstance(getattr(self, name), Real):
                raise ValueError(f"{name} of a law must be a number, got {getattr(self, name)!r}")
        check_positive("clip norm", self.clip_norm)
        if not (math.isfinite(self.scale) and self.scale != 0):
            raise ValueError(f"scale (of the clipped sum) must be a finite number other than 0, got {self.scale}")
        check_weight("noise_std", self.noise_std)
        if not 0 <= self.rate <= 1 or self.steps < 1 or self.steps != int(self.steps):
            raise ValueError(
                f"rate (of sampling) must be in [0, 1] and steps (noisy steps in one release) a whole number >= 1, "
                f"got {self.rate} and {self.steps}"
            )

    def contribution(self, rows: Tensor) -> Tensor:
        return self.scale * clip(rows, self.clip_norm)

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        return contribution + self.noise_std * normal(rng, tuple(contribution.shape)).to(contribution)

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        if self.noise_std == 0:
            raise ValueError(
                "noise_std must be > 0 for a log density, because a release without noise has no density, got 0"
            )
        distance = (release - contribution).square().sum(-1) / (2 * self.noise_std**2)
        return -distance - release.shape[-1] * math.log(self.noise_std * math.sqrt(2 * math.pi))


def describes_release(law: Law | None) -> bool:
    """Return whether a law describes the release itself, and not only a value that is post-processed before the
    release.
    """
    return law is not None and not (isinstance(law, GaussianLaw) and law.then)


def _clip_any(rows: Tensor, norm: float | Tensor) -> Tensor:
    """``clip`` for rows whose length, or its square, is not a finite number."""
    # Scaled by the largest entry first, so that the squares cannot overflow.
    known = torch.nan_to_num(rows, nan=0.0)
    largest = known.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    units = known / largest
    lengths = torch.linalg.vector_norm(units, dim=-1, keepdim=True).clamp_min(1)
    return units * torch.minimum(largest, norm / lengths)


def prune(rows: Tensor, share: float) -> Tensor:
    """Set a share of each vector's entries (``share``, in [0, 1]) to zero, starting with the entries of smallest
    absolute value.

    In ``rows (..., d)`` these are ``floor(share * d)`` entries; of ties the first become zero.
    """
    # A decimal share times d may fall just below the intended integer.
    dropped = math.floor(share * rows.shape[-1] + 1e-9)
    smallest = rows.abs().argsort(dim=-1, stable=True)[..., :dropped]
    return rows.scatter(-1, smallest, torch.zeros_like(rows))


# Worst-case rows are ten clip norms long, so that an implementation without clipping looks different.
_LARGE = 10.0


def layer_starts(layout: Layout) -> tuple[int, ...]:
    """Return the index of the first coordinate of each named layer in the flat parameter vector.

    Inert weights belong to the last layer: they are clipped and noised too.
    """
    return tuple(layout.slices[name].start for name in layout.names)


def layer_slices(starts: tuple[int, ...]) -> list[slice]:
    """Return the slice of each layer in the flat parameter vector."""
    return [slice(low, high) for low, high in zip(starts, [*starts[1:], None], strict=True)]


def clip_layers(rows: Tensor, starts: tuple[int, ...], norms: tuple[float, ...]) -> Tensor:
    """Clip each layer of the vectors to its own L2 norm (Xiao et al. 2025, equation 7).

    ``rows``: vectors ``(..., d)``.
    """
    layers = zip(layer_slices(starts), norms, strict=True)
    return torch.cat([clip(rows[..., layer], norm) for layer, norm in layers], dim=-1)


def spread_layers(values: Tensor, starts: tuple[int, ...], dim: int) -> Tensor:
    """Expand an array of one number per layer to one number per coordinate.

    ``(..., layers)`` becomes ``(..., dim)``; ``dim`` may end in any layer.
    """
    sizes = torch.tensor([len(range(dim)[layer]) for layer in layer_slices(starts)], device=values.device)
    return values.repeat_interleave(sizes, dim=-1, output_size=dim)


def sparsify_layers(rows: Tensor, starts: tuple[int, ...], dropped: float) -> Tensor:
    """Set a share of each layer's entries (``dropped``) to zero, starting with the entries of smallest absolute value.

    ``rows``: vectors ``(..., d)``.
    """
    if not dropped:
        return rows
    return torch.cat([prune(rows[..., part], dropped) for part in layer_slices(starts)], dim=-1)


@dataclass(frozen=True, kw_only=True)
class LayeredGaussianLaw:
    """The distribution of a client's report that is sparsified and clipped layer by layer, with Gaussian noise per
    layer.

    Layer l gets noise N(0, noise_std_l^2 I).

    Args:
        starts: first coordinate of each layer, ascending from 0; the last layer reaches to the row's end.
        clip_norms, noise_stds: one per layer.
        dropped: share of each layer's entries, those of smallest size, set to zero before clipping.
    """

    starts: tuple[int, ...]
    clip_norms: tuple[float, ...]
    noise_stds: tuple[float, ...]
    dropped: float = 0.0

    def __post_init__(self) -> None:
        if not len(self.starts) == len(self.clip_norms) == len(self.noise_stds) > 0:
            raise ValueError(
                "every layer must have a clip norm and a noise standard deviation, "
                f"got {len(self.starts)} layers, {len(self.clip_norms)} norms and {len(self.noise_stds)} noises"
            )
        # Coordinates before the first layer would have neither clip nor noise.
        if self.starts[0] != 0 or list(self.starts) != sorted(set(self.starts)):
            raise ValueError(f"starts (first coordinate of each layer) must ascend from 0, got {self.starts}")
        for std in self.noise_stds:
            if not 0 < std < math.inf:
                raise ValueError(f"noise_stds must be numbers > 0, got {std}")
        if not 0 <= self.dropped < 1:
            raise ValueError(f"dropped (share of entries set to zero) must be in [0, 1), got {self.dropped}")

    @property
    def mixing(self) -> Mixing:
        """Return ``NONE``, because no shuffler mixes the reports: each one reaches the server together with
        its sender.
        """
        return Mixing.NONE

    def contribution(self, rows: Tensor) -> Tensor:
        return clip_layers(sparsify_layers(rows, self.starts, self.dropped), self.starts, self.clip_norms)

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        noise = normal(rng, tuple(contribution.shape)).to(contribution)
        return contribution + self.stds(contribution) * noise

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        stds = self.stds(release)
        return -0.5 * ((release - contribution) / stds).square() - stds.log() - 0.5 * math.log(2 * math.pi)

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        return self.log_densities(release, contribution).sum(-1)

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        """Return a vector far beyond every layer's clip norm, and its opposite: the two inputs easiest to distinguish.

        The vector is non-zero on one coordinate of each layer.

        After clipping they are twice the clip norm apart in every layer.
        """
        present = torch.zeros(dim)
        for start, norm in zip(self.starts, self.clip_norms, strict=True):
            # ``dim`` may be smaller than the layout where an audit uses a smaller model.
            if start < dim:
                present[start] = _LARGE * norm
        return -present, present

    def stds(self, like: Tensor) -> Tensor:
        """Return the noise's standard deviation on each coordinate, shape ``(d,)`` for vectors ``like (..., d)``."""
        return spread_layers(torch.tensor(self.noise_stds, dtype=torch.float64).to(like), self.starts, like.shape[-1])
