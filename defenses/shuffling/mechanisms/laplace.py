"""Draw classic Laplace noise for every coordinate at its sender's budget, and compute its privacy when shuffled.

The baselines of Liu et al. 2023 (APES) run it instead of clip-Laplace. The law of ``randomisers.Laplace``.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ....audit.arrays import FloatArray
from ....fl.laws import Mixing, clip_entries
from .clip_laplace import on_grid, row_blocks

# Half the distance of two uniform draws: a draw of 0 gives a report about 37 scales out and not an infinite one.
_LEAST = 2.0**-54


def laplace_rows(values: Tensor, budgets: Tensor, radius: float, rng: np.random.Generator) -> Tensor:
    """Draw Laplace reports of client vectors ``values``, shape ``(..., d)``, with one epsilon per vector (``budgets``,
    shape ``(...,)``); entries are first clipped to [-radius, radius], and reports have the dtype of ``values``.

    report = value + Lap(2 radius / budget), on the grid of ``clip_laplace.randomised_rows``.
    """
    reports = torch.empty_like(values)
    for raw, rows, scales in row_blocks(values, reports, 2 * radius / budgets.double().numpy()):
        centres = clip_entries(raw.double(), radius).numpy()
        rows.copy_(torch.from_numpy(on_grid(centres + _noise(centres.shape, scales, rng), radius)))
    return reports


def _noise(shape: tuple[int, ...], scales: FloatArray, rng: np.random.Generator) -> FloatArray:
    """One uniform number per coordinate, by the inverse of the distribution function."""
    # By inversion and not by the library's sampler: one uniform number per coordinate, as for clip-Laplace.
    level = rng.random(shape)
    far = np.log(2 * np.maximum(np.minimum(level, 1 - level), _LEAST))
    return np.asarray(np.copysign(far, level - 0.5) * scales, dtype=np.float64)


@dataclass(frozen=True)
class LaplacePair:
    """The privacy profile of one coordinate with Laplace noise at budget eps (``epsilon``) for an observer that knows
    its sender: delta(s) = 1 - e^((s - eps) / 2) at every epsilon s <= eps.

    The pair is the two ends of the range, because the likelihood ratio of two values is monotone in the report.
    """

    epsilon: float

    @property
    def pure_epsilon(self) -> float:
        """Return epsilon at delta 0, which is the coordinate's own budget."""
        return self.epsilon

    def delta(self, epsilon: float) -> float:
        return -math.expm1((min(epsilon, self.epsilon) - self.epsilon) / 2)


def laplace_clones(neighbour: FloatArray, epsilon: float) -> FloatArray:
    """Compute the probability with which a Laplace report at budget ``neighbour`` can be treated as drawn at budget
    ``epsilon``, for any values of the two clients.

    It is the smallest ratio of the two densities, ``(e_n / e) exp(-e_n)`` where ``e_n <= e``, else 0. Narrower noise
    than one's own has thinner tails and hides nothing there. A client with the median budget is therefore hidden by the
    smaller half only, and the one with the smallest budget by no client; the paper (footnote 1) counts all.
    """
    chances = neighbour / epsilon * np.exp(-neighbour)
    return np.asarray(np.where(neighbour <= epsilon, chances, 0.0), dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class LaplaceLaw:
    """A distribution of a report with independent coordinates. Each is clipped to [-radius, radius] and then perturbed
    by Laplace noise, with the epsilon ``budget`` per coordinate.
    """

    radius: float
    budget: float
    mixing: Mixing

    @property
    def scale(self) -> float:
        """Return the scale of the noise, in units of the value."""
        return 2 * self.radius / self.budget

    def contribution(self, rows: Tensor) -> Tensor:
        return clip_entries(rows, self.radius)

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        centres = contribution.double().numpy()
        drawn = on_grid(centres + _noise(centres.shape, np.asarray(self.scale), rng), self.radius)
        return torch.from_numpy(drawn).to(contribution.dtype)

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        return self.log_densities(release, contribution).sum(-1)

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        return -(release.double() - contribution.double()).abs() / self.scale - math.log(2 * self.scale)

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        ends = torch.full((dim,), self.radius)
        return -ends, ends
