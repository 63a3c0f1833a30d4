"""The distribution of a report that is clipped and noised layer by layer (FedRE, Xiao et al. 2025)."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..layout import Layout
from ..streams import normal
from .law import Mixing, clip
from .sparse import prune

# Worst-case rows are ten clip norms long, so that an implementation without clipping looks different.
_LONG = 10.0


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
    """Set a share of each layer's entries (``dropped``) to zero: those of smallest absolute value.

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
                present[start] = _LONG * norm
        return -present, present

    def stds(self, like: Tensor) -> Tensor:
        """Return the noise's standard deviation on each coordinate, shape ``(d,)`` for vectors ``like (..., d)``."""
        return spread_layers(torch.tensor(self.noise_stds, dtype=torch.float64).to(like), self.starts, like.shape[-1])
