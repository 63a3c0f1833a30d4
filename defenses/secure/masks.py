"""Draw the masks of a secure sum: pairwise ones, which cancel, and each client's own (Bonawitz et al. 2017, sec. 4).

Each pair of invited clients agrees on a key, from which both draw one mask; the client that comes first in the cohort
adds it, the other subtracts it. Each client also adds a mask from a key of its own. Shares of every key are distributed
among the clients. The survivors reveal the shares of their own masks and those of their pair keys with clients that
dropped out, never both kinds of one client. Masks are drawn directly instead of from keys. The work is quadratic in the
clients.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .modular_sum import Grid


@dataclass(frozen=True, kw_only=True)
class Masks:
    """The random masks that clients of one round add to their encoded vectors: arrays of shape ``(replicas, rows, d)``
    for runs, clients and coordinates.

    Args:
        words: the whole mask of each invited client.
        recovered: the part of a survivor's mask that the survivors' shares reveal to the server; the rest cancels in
            the survivors' sum.
    """

    words: Tensor
    recovered: Tensor


def draw_masks(invited: Tensor, survived: Tensor, dim: int, grid: Grid, rng: np.random.Generator) -> Masks:
    """Draw masks for the clients ``invited``; the clients ``survived`` also sent their vectors. Both are booleans of
    shape ``(replicas, rows)`` for runs and clients.

    Exact integers, drawn uniformly from the grid's words.
    """
    replicas, rows = invited.shape
    words = torch.zeros(replicas, rows, dim, dtype=torch.int64)
    recovered = torch.zeros_like(words)
    for row in range(rows):
        own = _uniform(rng, (replicas, dim), grid)
        words[:, row] += own
        recovered[:, row] += own
        # Each pair is visited once, from its first client.
        later = slice(row + 1, rows)
        # Clients that were not invited share no key with anyone.
        agreed = invited[:, row, None] & invited[:, later]
        shared = _uniform(rng, (replicas, rows - row - 1, dim), grid).masked_fill(~agreed.unsqueeze(-1), 0)
        # Opposite signs on both sides of a pair make the masks cancel in the sum.
        words[:, row] += shared.sum(1)
        words[:, later] -= shared
        # A pairwise mask cancels only between two survivors; with a client that dropped out the server must remove it.
        recovered[:, row] += shared.masked_fill(survived[:, later].unsqueeze(-1), 0).sum(1)
        recovered[:, later] -= shared.masked_fill(survived[:, row, None, None], 0)
    absent = ~survived.unsqueeze(-1)
    return Masks(
        words=grid.wrap(words).masked_fill(~invited.unsqueeze(-1), 0),
        recovered=grid.wrap(recovered).masked_fill(absent, 0),
    )


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], grid: Grid) -> Tensor:
    return torch.from_numpy(rng.integers(0, grid.modulus, shape))
