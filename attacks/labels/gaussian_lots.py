"""Finds the most likely label counts of a release, modelled as its labels' mean contributions plus Gaussian noise.

It has two variances: the defense's published noise, and the scatter of samples about their class's mean, which public
data shows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import FloatArray, IntArray

Cost = Callable[[FloatArray], FloatArray]
"""Counts ``(..., classes)`` -> cost ``(...,)``; lower is more likely."""


@dataclass(frozen=True, kw_only=True)
class GaussianLots:
    """A model of a batch's release, in double precision: release = sum of the labels' mean contributions + Gaussian
    noise.

    Args:
        means: (classes, d), the mean contribution of one sample of each class.
        scatter: (n, d), public samples' contributions minus their class's mean.
        noise_std: of one coordinate of the release, >= 0.
        size: number of labels in the lot.
    """

    means: Tensor
    scatter: Tensor
    noise_std: float
    size: int

    def __post_init__(self) -> None:
        if self.least_variance <= 0:
            raise ValueError(
                "the release has no variance: the defense publishes no noise, and public samples do not vary "
                "within a class"
            )

    @cached_property
    def gram(self) -> Tensor:
        """Return the inner products of public samples' deviations from their class means (``scatter``), shape ``(n,
        n)``.
        """
        return self.scatter @ self.scatter.T

    @cached_property
    def shrinkage(self) -> float:
        """Return the shrinkage weight: the share of the samples' covariance that is spread evenly over all directions
        (Ledoit and Wolf 2004), because there are fewer samples than coordinates.
        """
        n, d = self.scatter.shape
        square = float(self.gram.square().sum()) / n**2
        lengths = self.gram.diagonal()
        spread = square - float(lengths.mean()) ** 2 / d
        error = (float(lengths.square().sum()) / n - square) / n
        return 1.0 if spread <= 0 else min(1.0, max(0.0, error / spread))

    @property
    def least_variance(self) -> float:
        """Return the variance of the release along a direction in which public samples do not vary."""
        even = float(self.gram.diagonal().mean()) / self.scatter.shape[1]
        return self.noise_std**2 + self.size * self.shrinkage * even

    def whiten(self, rows: Tensor) -> Tensor:
        """Multiply ``rows (m, d)`` by the inverse of the release's covariance, by Woodbury's identity."""
        weight = self.size * (1 - self.shrinkage) / len(self.scatter)
        if weight == 0:
            return rows / self.least_variance
        # A d x d matrix would not fit in memory: the inner one is n x n.
        inner = self.gram + self.least_variance / weight * torch.eye(len(self.scatter), dtype=rows.dtype)
        shared: Tensor = torch.linalg.solve(inner, self.scatter @ rows.T)
        return (rows - shared.T @ self.scatter) / self.least_variance

    @cached_property
    def _whitened(self) -> Tensor:
        return self.whiten(self.means)

    def cost(self, release: Tensor, *, scaled: bool = False) -> Cost:
        """Return the function that computes minus the log-likelihood of ``release (d,)`` for given label counts, up to
        a constant.

        The constant depends on neither counts nor ``scaled``.

        ``scaled``: the sum may be multiplied by any factor, as after clipping that is not published; the most likely
        factor is used.
        """
        quadratic = np.asarray((self._whitened @ self.means.T).numpy(), dtype=np.float64)
        linear = np.asarray((self._whitened @ release).numpy(), dtype=np.float64)

        def as_it_is(counts: FloatArray) -> FloatArray:
            square = np.einsum("...i,ij,...j->...", counts, quadratic, counts)
            return np.asarray(square / 2 - counts @ linear, dtype=np.float64)

        def at_best_factor(counts: FloatArray) -> FloatArray:
            # Where the best factor is negative, no factor fits: the cost only has to lead the search away from there.
            square, along = np.einsum("...i,ij,...j->...", counts, quadratic, counts), counts @ linear
            return np.asarray(-along * np.abs(along) / (2 * np.maximum(square, 1e-300)), dtype=np.float64)

        return at_best_factor if scaled else as_it_is


def likeliest_counts(cost: Cost, start: IntArray) -> IntArray:
    """Find label counts ``(classes,)`` whose likelihood cannot be raised by exchanging one label for another.

    Takes the best exchange each time, from ``start`` on.
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
        # By more than rounding: otherwise two equally likely sets of counts would alternate for ever.
        if not costs[lowest] < best - 1e-9 * (1 + abs(best)):
            return counts
        counts, best = others[lowest], float(costs[lowest])
