"""Send only some numbers of a noisy report, the largest or random ones, and replace the others by zeros with noise.

Send only the largest noisy numbers of a report, and replace the others by zeros with noise (S-APES: Liu et al.
2023).

The largest are sent, so the numbers of one report are not independent (Liu et al. 2023, Algorithm 2, with the noise
around the value: the centre is not legible in the copy read); or random ones, as Figure 3(b) compares, whose choice
reveals nothing.

Send a random subset of a report's numbers; this is the baseline for S-APES's own selection (Liu et al. 2023, Figure
3b).
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...audit.arrays import BoolArray, FloatArray
from .clip_laplace import BudgetLaw, clip_laplace_at, log_clip_laplace, noised_rows


class Selection(StrEnum):
    """A rule that selects which of its noisy numbers a client sends."""

    LARGEST = "largest"
    RANDOM = "random"


def sparse_rows(
    values: Tensor, budgets: Tensor, radius: float, kept: int, rng: np.random.Generator, *, selection: str
) -> Tensor:
    """Draw S-APES reports of client vectors ``values``, shape ``(..., d)``, with one epsilon per vector (``budgets``,
    shape ``(...,)``): noise is added to all values, but a client sends only ``kept`` of them; zeros with fresh noise
    replace the others.
    """

    def draw(centres: FloatArray, scales: FloatArray) -> FloatArray:
        return _padded(centres, scales, radius, kept, rng, selection)

    return noised_rows(values, budgets, radius, draw)


def _padded(
    centres: FloatArray, scales: FloatArray, radius: float, kept: int, rng: np.random.Generator, selection: str
) -> FloatArray:
    """``(..., d)``: ``kept`` numbers of each noised row, dummies elsewhere.

    Two uniform numbers per coordinate, row by row, and a third where the selection is random.
    """
    by_chance = selection == Selection.RANDOM
    levels = rng.random((*centres.shape[:-1], 3 if by_chance else 2, centres.shape[-1]))
    noised = clip_laplace_at(centres, scales, radius, levels[..., 0, :])
    dummies = clip_laplace_at(np.zeros_like(scales), scales, radius, levels[..., 1, :])
    # Single precision distinguishes all points of the grid and is partitioned in half the time.
    sizes = levels[..., 2, :] if by_chance else np.abs(noised)
    return np.where(_largest(sizes.astype(np.float32), kept), noised, dummies)


def _largest(sizes: NDArray[np.float32], kept: int) -> BoolArray:
    """Which ``kept`` numbers of each row are the largest; of equal ones the first."""
    dim = sizes.shape[-1]
    least = np.partition(sizes, dim - kept, axis=-1)[..., dim - kept, np.newaxis]
    chosen = sizes >= least
    if int(chosen.sum()) > kept * (chosen.size // dim):  # Reports lie on a grid, so ties are possible.
        surplus = chosen.sum(-1, keepdims=True) - kept
        equal = sizes == least
        last = np.cumsum(equal[..., ::-1], axis=-1)[..., ::-1] <= surplus
        chosen &= ~(equal & last)
    return chosen


@dataclass(frozen=True, kw_only=True)
class TopReportsLaw(BudgetLaw):
    """A distribution of a report of d numbers: noise is added to all d values, the ``kept`` largest are sent, and zeros
    with fresh noise replace the others.

    The report does not show which. The density is exact: summed over which number is the smallest that was kept, at
    size t, and over which of the larger ones were kept with it (an elementary symmetric polynomial); every other noisy
    number was at most t.
    """

    selection: ClassVar[Selection] = Selection.LARGEST

    kept: int

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        centres, scale = contribution.double().numpy(), np.asarray(self.scale)
        drawn = _padded(centres, scale, self.radius, self._kept(contribution.shape[-1]), rng, self.selection)
        return torch.from_numpy(drawn).to(contribution.dtype)

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        raise ValueError(
            "the coordinates of a report are not independent: all noisy numbers of the report decide which are sent, "
            "so the log density of a report is not a sum over coordinates; call log_density for the whole report"
        )

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        """Compute the log density of a report of d numbers, in time proportional to d if all values of a vector are
        equally far from 0, otherwise to d^2.
        """
        seen = release.double() + torch.zeros_like(contribution.double())
        centres = contribution.double() + torch.zeros_like(seen)
        # Sorted by size: given the smallest kept number, only larger ones may be kept too.
        order = seen.abs().argsort(-1, descending=True)
        seen, centres = seen.gather(-1, order), centres.gather(-1, order)
        dummies, gains = self._gains(seen, centres)
        equal = bool((centres.abs() == centres[..., :1].abs()).all())
        ways = self._ways_alike(seen, centres, gains) if equal else self._ways(seen, centres, gains)
        return dummies.sum(-1) + ways

    def _gains(self, seen: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
        """Log density of each number as a dummy, and its log-likelihood ratio as a kept number; impossible rows stay
        impossible.
        """
        dummies = log_clip_laplace(seen, torch.zeros_like(seen), self.scale, self.radius)
        gains = log_clip_laplace(seen, centres, self.scale, self.radius) - dummies
        return dummies, gains.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)

    def _ways(self, seen: Tensor, centres: Tensor, gains: Tensor) -> Tensor:
        """Log of the sum over the smallest kept number, the place-th largest of all."""
        dim, terms = seen.shape[-1], list[Tensor]()
        for place in range(self._kept(dim) - 1, dim):
            smaller = self._log_within(centres, seen[..., place : place + 1].abs())
            # Every number that was not kept was at most as large as the smallest kept one.
            others = smaller.sum(-1) - smaller[..., place]
            polynomial = no_choice(seen, self._kept(dim))
            for one in range(place):
                polynomial = choose(polynomial, gains[..., one] - smaller[..., one])
            terms.append(gains[..., place] + others + polynomial[..., -1])
        return torch.stack(terms, dim=-1).logsumexp(-1)

    def _ways_alike(self, seen: Tensor, centres: Tensor, gains: Tensor) -> Tensor:
        """The same where all coordinates have the same probability of a small number: one polynomial grows with the
        place.
        """
        dim, kept, terms = seen.shape[-1], self._kept(seen.shape[-1]), list[Tensor]()
        within = self._log_within(centres, seen.abs())
        polynomial = no_choice(seen, kept)
        for place in range(dim):
            if place >= kept - 1:
                terms.append(gains[..., place] + (dim - kept) * within[..., place] + polynomial[..., -1])
            polynomial = choose(polynomial, gains[..., place])
        return torch.stack(terms, dim=-1).logsumexp(-1)

    def _kept(self, dim: int) -> int:
        return min(self.kept, dim)

    def _log_within(self, centres: Tensor, size: Tensor) -> Tensor:
        """Log of the probability that a noisy number is at most ``size`` from 0."""
        far, scale = centres.abs(), self.scale
        mass = 1 - math.exp(-self.radius / scale) * torch.cosh(far / scale)
        outside = torch.exp(-(far + size) / scale)
        inner = torch.exp(-(far - size).clamp_min(0) / scale) - outside
        beyond = 2 - torch.exp(-(size - far).clamp_min(0) / scale) - outside
        chance = torch.where(size < far, inner, beyond) / (2 * mass)
        # A report may be rounded to just beyond the end.
        return chance.clamp(1e-300, 1.0).log()

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        """Return two vectors, one with all entries at the upper end of the range and one with all entries zero.

        Where all sent numbers are small, every coordinate is evidence for 0, although only ``kept`` of them were sent.
        """
        return torch.full((dim,), self.radius), torch.zeros(dim)


def no_choice(seen: Tensor, kept: int) -> Tensor:
    """Return the logs of the elementary symmetric polynomials of degrees 0 to ``kept`` - 1 in no variables, array of
    shape ``(..., kept)``, with which a recursion over variables starts.
    """
    polynomial = seen.new_full((*seen.shape[:-1], kept), -math.inf)
    polynomial[..., 0] = 0.0
    return polynomial


def choose(polynomial: Tensor, gain: Tensor) -> Tensor:
    """Add one variable, whose logarithm is ``gain``, to elementary symmetric polynomials and return their logs; there
    is one variable for each number that a client may send.
    """
    raised = torch.cat([torch.full_like(polynomial[..., :1], -math.inf), polynomial[..., :-1]], dim=-1)
    return torch.logaddexp(polynomial, raised + gain.unsqueeze(-1))


class RandomReportsLaw(TopReportsLaw):
    """A distribution of a report of d numbers: noise is added to ``kept`` randomly drawn values, and to zeros in place
    of all others.

    The report does not show which. The density is the mean over all choices (an elementary symmetric polynomial). Given
    the choice it is ``kept`` releases, so two values differ by at most as much as these.
    """

    selection = Selection.RANDOM

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        """Compute the log density of a report of d numbers, in time proportional to d."""
        seen = release.double() + torch.zeros_like(contribution.double())
        dummies, gains = self._gains(seen, contribution.double() + torch.zeros_like(seen))
        dim = seen.shape[-1]
        kept = self._kept(dim)
        polynomial = no_choice(seen, kept + 1)
        # The sum over all choices would have binomially many terms; the recursion needs d steps.
        for one in range(dim):
            polynomial = choose(polynomial, gains[..., one])
        return dummies.sum(-1) + polynomial[..., -1] - math.log(math.comb(dim, kept))

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        return BudgetLaw.worst_pair(self, dim)
