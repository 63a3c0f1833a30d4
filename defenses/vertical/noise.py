"""Clip vectors and draw additive noise, Gaussian in the L2 norm or Laplace in the L1 norm."""

import numpy as np
import torch
from torch import Tensor

from ...fl.laws import clip
from ...fl.streams import normal
from ...fl.vertical.protection import Noise


def check_noise(noise: str) -> None:
    """Raise ValueError unless ``noise`` is "gaussian" or "laplace"."""
    if noise not in tuple(Noise):
        raise ValueError(f'noise must be "gaussian" or "laplace", got {noise!r}')


def drawn(noise: Noise, scale: float, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    """Draw independent noise of a standard deviation (Gaussian) or a scale (Laplace)."""
    if noise is Noise.GAUSSIAN:
        return scale * normal(rng, shape)
    return torch.from_numpy(rng.laplace(scale=scale, size=shape)).to(torch.float32)


def clipped(values: Tensor, bound: float, noise: Noise) -> Tensor:
    """Scale each vector ``(..., d)`` to a norm of at most ``bound``: L2 for Gaussian noise, L1 for Laplace noise.

    The result is finite: a NaN entry counts as zero, an infinite entry as the largest finite number.
    """
    if noise is Noise.GAUSSIAN:
        return clip(values, bound)
    finite = torch.nan_to_num(values)
    # In double precision the sum of finite single-precision numbers cannot overflow.
    lengths = finite.double().abs().sum(-1, keepdim=True)
    return (finite * (bound / lengths.clamp_min(bound))).to(values.dtype)
