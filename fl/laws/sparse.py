"""Makes vectors sparse: sets their entries of smallest absolute value to zero."""

import math

import torch
from torch import Tensor


def prune(rows: Tensor, share: float) -> Tensor:
    """Set a share of each vector's entries (``share``, in [0, 1]) to zero: those of smallest absolute value.

    In ``rows (..., d)`` these are ``floor(share * d)`` entries; of ties the first become zero.
    """
    # A decimal share times d may fall just below the intended integer.
    dropped = math.floor(share * rows.shape[-1] + 1e-9)
    smallest = rows.abs().argsort(dim=-1, stable=True)[..., :dropped]
    return rows.scatter(-1, smallest, torch.zeros_like(rows))
