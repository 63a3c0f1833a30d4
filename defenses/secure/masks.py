"""Draw the masks of a secure sum: pairwise ones, which cancel, and each client's own (Bonawitz et al. 2017, sec. 4).

Each pair of invited clients agrees on a key, from which both draw one mask; the client that comes first in the cohort
adds it, the other subtracts it. Each client also adds a mask from a key of its own. Shares of every key are distributed
among the clients. The survivors reveal the shares of their own masks and those of their pair keys with clients that
dropped out, never both kinds of one client. Masks are drawn directly instead of from keys, and in large cohorts only
their sums, whose work is linear in the clients and not quadratic.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .modular_sum import Grid

_PAIRS = 128
"""The most clients whose pairs are drawn one by one; the pairs of a thousand clients would take minutes."""


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

    Exact integers, drawn uniformly from the grid's words. The law is the same for any number of clients.
    """
    draw = _by_pairs if invited.shape[1] <= _PAIRS else _by_sums
    words, recovered = draw(invited, survived, dim, grid, rng)
    return Masks(
        words=grid.wrap(words).masked_fill_(~invited.unsqueeze(-1), 0),
        recovered=grid.wrap(recovered).masked_fill_(~survived.unsqueeze(-1), 0),
    )


def _by_pairs(
    invited: Tensor, survived: Tensor, dim: int, grid: Grid, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Both sums of ``Masks``, before they are wrapped, from the mask of every pair."""
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
    return words, recovered


def _by_sums(
    invited: Tensor, survived: Tensor, dim: int, grid: Grid, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Both sums of ``Masks``, drawn from their joint law.

    A client's own mask enters no other sum, so what is recovered is uniform and independent of all the rest, and so is
    the word of a client that dropped out. The masks between survivors add up to zero and are uniform otherwise, because
    every two survivors share one: those of all survivors but one are independent.
    """
    recovered = _uniform(rng, (*invited.shape, dim), grid)
    words = recovered.clone()
    for replica, there in enumerate(survived):
        survivors = there.nonzero().flatten().tolist()
        rest = torch.zeros(dim, dtype=torch.int64)
        for row in survivors[:-1]:
            between = _uniform(rng, (dim,), grid)
            words[replica, row] += between
            rest -= between
        if survivors:
            words[replica, survivors[-1]] += rest
    return words, recovered


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], grid: Grid) -> Tensor:
    return torch.from_numpy(rng.integers(0, grid.modulus, shape))
