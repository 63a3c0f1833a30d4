"""Sum integers modulo 2^bits: client vectors are encoded and masked, and the sums are decoded.

Encode client vectors as integers modulo 2^bits, and decode their sums (Kairouz et al. 2021, section 3).

Draw the masks of a secure sum: pairwise ones, which cancel, and each client's own (Bonawitz et al. 2017, sec. 4).

Each pair of invited clients agrees on a key, from which both draw one mask; the client that comes first in the cohort
adds it, the other subtracts it. Each client also adds a mask from a key of its own. Shares of every key are distributed
among the clients. The survivors reveal the shares of their own masks and those of their pair keys with clients that
dropped out, never both kinds of one client. Masks are drawn directly instead of from keys, and in large cohorts only
their sums, whose work is linear in the clients and not quadratic.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...fl.laws import clip
from ...fl.streams import uniform

LEAST_BITS, MOST_BITS = 8, 32
OVERFLOW_CHANCE = 1e-9
"""Bound on the probability that any number of any round wraps around when every client is as long as its clip
allows.
"""
_BETA = math.exp(-0.5)
_TRIES = 1000
_NUMBERS = 2**20


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A grid of multiples of ``step``, encoded as integers modulo 2^``bits``; the upper half of the integers stands for
    negative multiples.

    Args:
        step: distance of neighbouring points, in the unit of the rows.
        bits: length of a word, 8 to 32.
    """

    step: float
    bits: int

    def __post_init__(self) -> None:
        check_bits(self.bits)
        if not 0 < self.step < math.inf:
            raise ValueError(f"step, the distance of neighbouring grid points, must be a number > 0, got {self.step}")

    @property
    def modulus(self) -> int:
        """Return 2^bits, the number of different encoded values."""
        return 1 << self.bits

    def wrap(self, integers: Tensor) -> Tensor:
        """Reduce int64 integers to 0..modulus - 1, the form in which clients send them."""
        # A power of two: the bit mask is the exact remainder, also for negative integers.
        return integers & (self.modulus - 1)

    def centred(self, words: Tensor) -> Tensor:
        """Convert integers modulo 2^bits, or their sum, to signed integers in -modulus / 2..modulus / 2 - 1."""
        half = self.modulus // 2
        return ((words + half) & (self.modulus - 1)) - half

    def decode(self, words: Tensor) -> Tensor:
        """Convert integers modulo 2^bits, or a sum of them, to the real numbers that they encode (float64); the result
        is right only if nothing wrapped around.
        """
        return self.centred(words).double() * self.step


@dataclass(frozen=True, kw_only=True)
class SizedGrid:
    """A grid of numbers that was chosen for one federation, together with the sensitivity and the noise of the secure
    sum.

    Args:
        norm_bound: L2 norm, in steps, that no rounded row exceeds: the sensitivity to one client set to zero.
        sigma: standard deviation, in steps, of the noise on the sum.
    """

    grid: Grid
    norm_bound: float
    sigma: float


def check_bits(bits: int) -> None:
    """Raise ValueError unless ``bits``, the size of an encoded number, is a whole number in 8..32."""
    if isinstance(bits, bool) or not isinstance(bits, int) or not LEAST_BITS <= bits <= MOST_BITS:
        raise ValueError(f"bits must be a whole number in {LEAST_BITS}..{MOST_BITS}, got {bits!r}")


def rounded_norm_bound(norm: float, dim: int) -> float:
    """Return a bound, in grid steps, on the L2 norm that a vector of norm ``norm`` has after random rounding; the bound
    fails with probability at most exp(-1/2) (Kairouz et al. 2021, Theorem 1).
    """
    # The concentration bound of the paper; the other term of the minimum holds surely.
    spread = math.sqrt(2 * math.log(1 / _BETA)) * (norm + math.sqrt(dim) / 2)
    return min(norm + math.sqrt(dim), math.sqrt(norm**2 + dim / 4 + spread))


def round_rows(rows: Tensor, bound: float, rng: np.random.Generator) -> Tensor:
    """Round client vectors, float64 in grid steps, of shape ``(replicas, rows, d)`` for runs, clients and coordinates,
    to int64 without bias; redraw until each has an L2 norm of at most ``bound``.

    A row that is longer is rounded again. This condition moves a mean by at most beta / (1 - beta) of a root of d
    steps; a row that needs no second try has no bias. Every try draws for all rows, so that the tries of one row do not
    shift another row's draws.

    Raises:
        ValueError: if a row is not finite, or is too long in 1000 tries, which means that the bound is for another
            dimension.
    """
    if not bool(rows.isfinite().all()):
        raise ValueError("updates must be finite, because a secure sum cannot encode infinity or NaN")
    flat = rows.flatten(0, 1)
    rounded, waiting = torch.empty_like(flat, dtype=torch.int64), torch.ones(len(flat), dtype=torch.bool)
    for _ in range(_TRIES):
        for block in _blocks(flat):
            below = flat[block].floor()
            # The probability of rounding up is the fractional part, which makes rounding unbiased.
            up = uniform(rng, tuple(below.shape), dtype=torch.float64) < flat[block] - below
            found, here = below.long() + up, waiting[block]
            rounded[block][here] = found[here]
            here &= found.square().sum(-1) > bound**2
        if not bool(waiting.any()):
            return rounded.view(rows.shape)
    raise ValueError(
        f"no vector of {rows.shape[-1]} coordinates was rounded to a norm of at most {bound:g} grid steps in 1000 tries"
    )


def to_integers(updates: Tensor, clip_norm: float, sized: SizedGrid, rng: np.random.Generator) -> Tensor:
    """Clip updates, shape ``(replicas, rows, d)`` for runs, clients and coordinates, and round them to whole numbers
    (int64) of grid steps.
    """
    flat = updates.flatten(0, 1)
    steps = torch.empty_like(flat, dtype=torch.float64)
    for block in _blocks(flat):
        steps[block] = clip(flat[block].double(), clip_norm) / sized.grid.step
    return round_rows(steps.view(updates.shape), sized.norm_bound, rng)


def _blocks(rows: Tensor) -> Iterator[slice]:
    """Blocks of rows ``(n, d)``: together they draw what all rows drew at once, and need less memory."""
    size = max(1, _NUMBERS // max(1, rows.shape[1]))
    return (slice(start, start + size) for start in range(0, len(rows), size))


def size_grid(
    *,
    clip_norm: float,
    bits: int,
    dim: int,
    rows: int,
    survivors: int,
    rounds: int,
    sigma_of: Callable[[float], float],
    largest_sigma: float,
) -> SizedGrid:
    """Choose the finest grid on which the sum of ``rows`` clipped client vectors and their noise does not wrap around.

    The rows are taken in the worst case, all along one coordinate. The noise stays within its Bernstein bound except
    with probability 1e-9 in all rounds together. A coordinate beyond it is not lost but shifted by the modulus.

    Args:
        rows, survivors: the most and the fewest clients in a sum; each adds a share of noise that is sufficient for the
            fewest.
        sigma_of: norm bound in steps -> standard deviation of the noise in steps, increasing.
        largest_sigma: the largest standard deviation, in steps, that a sampler can draw: in a federation reduced to one
            client that client's share is all of the noise.

    Raises:
        ValueError: if not even a clip norm of one step fits, or if rounding more than doubles the clip norm.
    """

    def fits(norm: int) -> bool:
        bound = rounded_norm_bound(norm, dim)
        sigma = sigma_of(bound)
        reach = _reach(sigma * math.sqrt(rows / survivors), math.log(2 * dim * rounds / OVERFLOW_CHANCE))
        return rows * min(norm + 1, bound) + reach < 2 ** (bits - 1) and sigma <= largest_sigma

    norm = _largest(fits, 2**bits)
    if norm == 0:
        raise ValueError(
            f"bits must be large enough that the clip norm is at least one grid step: {_too_many(bits, rows)}"
        )
    bound = rounded_norm_bound(norm, dim)
    # Such a grid is so coarse that most of the noise would cover rounding.
    if bound > 2 * norm:
        raise ValueError(
            f"bits must be large enough that rounding does not double the clip norm of {norm} grid steps in {dim} "
            "coordinates: "
            f"{_too_many(bits, rows)}"
        )
    grid = Grid(step=clip_norm / norm, bits=bits)
    return SizedGrid(grid=grid, norm_bound=bound, sigma=sigma_of(bound))


def _too_many(bits: int, rows: int) -> str:
    return (
        f"the sum of {rows} clients with noise does not fit into {bits} bits; use more bits, fewer clients or a "
        "larger epsilon"
    )


def _reach(sigma: float, nats: float) -> float:
    """The size that noise exceeds with probability exp(-nats): Bernstein, for Gaussian, binomial and Skellam sums
    alike.
    """
    return nats / 3 + math.sqrt(nats**2 / 9 + 2 * nats * sigma**2)


def _largest(fits: Callable[[int], bool], limit: int) -> int:
    """The largest whole number up to ``limit`` that fits, or 0. Every number below one that fits must fit too."""
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


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
    """Draw masks for the clients ``invited``; the clients ``survived`` also sent their vectors. ``invited`` and
    ``survived`` are booleans of shape ``(replicas, rows)`` for runs and clients.

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
