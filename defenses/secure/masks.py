"""Masks of a secure sum: pairwise ones that cancel and one's own (Bonawitz et al. 2017, section 4).

Each pair of invited clients agrees on a key, from which both draw one mask; the client that comes first adds it, the
other subtracts it. Each client adds a mask of its own key as well. Of every key shares are handed out: the survivors
reveal those of their own masks and those of their pair keys with clients that dropped out, never both of one client.
Keys are stood for by the masks drawn from them; the work is quadratic in the clients.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .modular_sum import Grid


@dataclass(frozen=True, kw_only=True)
class Masks:
    """What one round's clients add to their words, ``(replicas, rows, d)`` each, words of the grid.

    ``words``: the whole mask of each invited client. ``recovered``: the part of a survivor's mask that the survivors'
    shares give to the server; what is left of it cancels in the survivors' sum.
    """

    words: Tensor
    recovered: Tensor


def draw_masks(invited: Tensor, survived: Tensor, dim: int, grid: Grid, rng: np.random.Generator) -> Masks:
    """Masks for clients ``invited (replicas, rows)``, of whom those in ``survived (replicas, rows)`` sent their word.

    Exact integers, drawn uniformly from the grid's words.
    """
    replicas, rows = invited.shape
    words = torch.zeros(replicas, rows, dim, dtype=torch.int64)
    recovered = torch.zeros_like(words)
    for row in range(rows):
        own = _uniform(rng, (replicas, dim), grid)
        words[:, row] += own
        recovered[:, row] += own
        later = slice(row + 1, rows)
        agreed = invited[:, row, None] & invited[:, later]
        shared = _uniform(rng, (replicas, rows - row - 1, dim), grid).masked_fill(~agreed.unsqueeze(-1), 0)
        words[:, row] += shared.sum(1)
        words[:, later] -= shared
        recovered[:, row] += shared.masked_fill(survived[:, later].unsqueeze(-1), 0).sum(1)
        recovered[:, later] -= shared.masked_fill(survived[:, row, None, None], 0)
    absent = ~survived.unsqueeze(-1)
    return Masks(
        words=grid.wrap(words).masked_fill(~invited.unsqueeze(-1), 0),
        recovered=grid.wrap(recovered).masked_fill(absent, 0),
    )


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], grid: Grid) -> Tensor:
    return torch.from_numpy(rng.integers(0, grid.modulus, shape))
