"""Sparse rows: the smallest numbers of a row set to zero."""

import math

import torch
from torch import Tensor


def prune(rows: Tensor, share: float) -> Tensor:
    """Rows ``(..., d)`` whose ``floor(share * d)`` numbers of least size are zero; of equals the first go first."""
    # A share of decimals may fall a hair short of the number that it means.
    dropped = math.floor(share * rows.shape[-1] + 1e-9)
    smallest = rows.abs().argsort(dim=-1, stable=True)[..., :dropped]
    return rows.scatter(-1, smallest, torch.zeros_like(rows))
