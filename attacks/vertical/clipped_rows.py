"""Clips rows as a published law of a vertical federation does."""

import torch
from torch import Tensor

from ...fl.vertical.law import Noise, VerticalLaw


def clipped_rows(rows: Tensor, law: VerticalLaw) -> Tensor:
    """Return the rows shortened to the law's clip: in L1 norm for Laplace noise, in L2 norm for Gaussian noise."""
    if law.clip is None:
        return rows
    order = 1 if law.noise is Noise.LAPLACE else 2
    lengths: Tensor = torch.linalg.vector_norm(rows, ord=order, dim=-1, keepdim=True)
    return rows * (law.clip / lengths.clamp_min(1e-30)).clamp(max=1.0)
