"""Gaussian lots: a lot's release as a Gaussian around the sum of its labels' mean contributions, and the likeliest
counts.

Two variances: the defense's noise, which is published, and the scatter of samples about their class's mean, which
public data shows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from .lots import FloatArray, IntArray

Cost = Callable[[FloatArray], FloatArray]
"""Counts ``(..., classes)`` -> cost ``(...,)``; lower is likelier."""


@dataclass(frozen=True, kw_only=True)
class GaussianLots:
    """release = factor * sum over labels + noise, in double precision.

    Args:
        means: (classes, d), what one sample of each class adds on average.
        scatter: (n, d), public samples' contributions minus their class's mean.
        noise_std: of one coordinate of the release, >= 0.
        size: labels in the lot.
        length: of a typical release without factor, where ``factor`` may be any positive number (a transformation that
            nobody published); None where it is 1.
    """

    means: Tensor
    scatter: Tensor
    noise_std: float
    size: int
    length: float | None = None

    def __post_init__(self) -> None:
        if self.floor <= 0:
            raise ValueError("the release has no variance: no noise is published and public samples do not scatter")

    @cached_property
    def gram(self) -> Tensor:
        """Inner products of the scatter, ``(n, n)``."""
        return self.scatter @ self.scatter.T

    @cached_property
    def shrinkage(self) -> float:
        """Share of the scatter's covariance that is spread evenly (Ledoit and Wolf 2004), for n is less than d."""
        n, d = self.scatter.shape
        square = float(self.gram.square().sum()) / n**2
        lengths = self.gram.diagonal()
        spread = square - float(lengths.mean()) ** 2 / d
        error = (float(lengths.square().sum()) / n - square) / n
        return 1.0 if spread <= 0 else min(1.0, max(0.0, error / spread))

    @property
    def floor(self) -> float:
        """Variance along a direction in which no public sample scatters."""
        even = float(self.gram.diagonal().mean()) / self.scatter.shape[1]
        return self.noise_std**2 + self.size * self.shrinkage * even

    def whiten(self, rows: Tensor) -> Tensor:
        """``rows (m, d)`` times the inverse of the release's covariance, by Woodbury's identity."""
        weight = self.size * (1 - self.shrinkage) / len(self.scatter)
        if weight == 0:
            return rows / self.floor
        inner = self.gram + self.floor / weight * torch.eye(len(self.scatter), dtype=rows.dtype)
        shared: Tensor = torch.linalg.solve(inner, self.scatter @ rows.T)
        return (rows - shared.T @ self.scatter) / self.floor

    @cached_property
    def _whitened(self) -> Tensor:
        return self.whiten(self.means)

    def cost(self, release: Tensor) -> Cost:
        """Minus the log-likelihood of ``release (d,)``, up to what does not depend on the counts."""
        quadratic = np.asarray((self._whitened @ self.means.T).numpy(), dtype=np.float64)
        scale = 1.0 if self.length is None else self.length / max(float(torch.linalg.vector_norm(release)), 1e-300)
        linear = scale * np.asarray((self._whitened @ release).numpy(), dtype=np.float64)

        def known(counts: FloatArray) -> FloatArray:
            square = np.einsum("...i,ij,...j->...", counts, quadratic, counts)
            return np.asarray(square / 2 - counts @ linear, dtype=np.float64)

        def unknown(counts: FloatArray) -> FloatArray:
            # The best positive factor; where it would be negative, none at all.
            square = np.einsum("...i,ij,...j->...", counts, quadratic, counts)
            return np.asarray(
                -(np.maximum(counts @ linear, 0) ** 2) / (2 * np.maximum(square, 1e-300)), dtype=np.float64
            )

        return known if self.length is None else unknown


def likeliest_counts(cost: Cost, start: IntArray) -> IntArray:
    """Counts ``(classes,)`` that no swap of one label for another makes likelier: the best swap each time, from
    ``start`` on.
    """
    classes = len(start)
    swaps = np.array(
        [[(k == to) - (k == of) for k in range(classes)] for of in range(classes) for to in range(classes)]
    )
    counts, best = start.copy(), float(cost(start.astype(np.float64)))
    while True:
        others = counts + swaps
        costs = np.where((others >= 0).all(1), cost(others.clip(0).astype(np.float64)), np.inf)
        lowest = int(costs.argmin())
        # Beyond rounding: or two equal sets of counts would be swapped for ever.
        if not costs[lowest] < best - 1e-9 * (1 + abs(best)):
            return counts
        counts, best = others[lowest], float(costs[lowest])
