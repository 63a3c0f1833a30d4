"""Release the label whose noised vote count is largest, and compute the exact probability of each label."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, logsumexp
from torch import Tensor

from ...audit.arrays import FloatArray

_POINTS = 4001
_REACH = 12.0
_AT_ONCE = 20
"""Grid of a quadrature: number of points, and deviations (or scales) beyond the smallest and the largest count;
counts per pass."""


@dataclass(frozen=True)
class NoisyMax(ABC):
    """The label with the largest count after independent noise of one law, of the given ``scale``, on each count."""

    scale: float

    @abstractmethod
    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        """Draw noise of scale 1."""

    @abstractmethod
    def log_density(self, noise: FloatArray) -> FloatArray:
        """Return the log density of noise of scale 1."""

    @abstractmethod
    def log_below(self, noise: FloatArray) -> FloatArray:
        """Return the log probability that noise of scale 1 is below a number."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        """Return the counts with noise, in double precision: in single precision a count of 1000 keeps four digits."""
        return counts.double() + self.scale * torch.from_numpy(self.draw(tuple(counts.shape), rng))

    def log_probabilities(self, counts: ArrayLike) -> FloatArray:
        """Return the log probability of each label: ``counts (..., classes)`` give ``(..., classes)``.

        Label y wins if its noised count is x and all others are below: the integral over x, by the trapezoidal rule.
        """
        votes = np.asarray(counts, dtype=np.float64)
        # Queries often have equal counts, and the grids of all at once would need gigabytes.
        kinds, which = np.unique(votes.reshape(-1, votes.shape[-1]), axis=0, return_inverse=True)
        parts = np.array_split(kinds, math.ceil(len(kinds) / _AT_ONCE))
        found = np.concatenate([self._integrated(part / self.scale) for part in parts])
        return np.asarray(found[which].reshape(votes.shape))

    def _integrated(self, votes: FloatArray) -> FloatArray:
        """Log probabilities for counts in units of the scale, ``(n, classes)``."""
        low, high = votes.min(-1, keepdims=True) - _REACH, votes.max(-1, keepdims=True) + _REACH
        grid = (low + (high - low) * np.linspace(0, 1, _POINTS))[:, np.newaxis, :]
        noise = grid - votes[..., np.newaxis]
        below = self.log_below(noise)
        # All others below x: the product over all labels without the label's own factor.
        inside = self.log_density(noise) + below.sum(-2, keepdims=True) - below
        found = logsumexp(inside, axis=-1)
        # The spacing of the grid and the rule's error are alike for all labels, whose probabilities sum to 1.
        return np.asarray(found - logsumexp(found, axis=-1, keepdims=True))


@dataclass(frozen=True)
class GaussianMax(NoisyMax):
    """Gaussian noise; ``scale`` is its standard deviation (GNMax: Papernot et al. 2018)."""

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        return rng.standard_normal(shape)

    def log_density(self, noise: FloatArray) -> FloatArray:
        return np.asarray(-(noise**2) / 2 - math.log(2 * math.pi) / 2)

    def log_below(self, noise: FloatArray) -> FloatArray:
        return np.asarray(log_ndtr(noise))


@dataclass(frozen=True)
class LaplaceMax(NoisyMax):
    """Laplace noise; ``scale`` is its b (LNMax: Papernot et al. 2017)."""

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> FloatArray:
        return rng.laplace(size=shape)

    def log_density(self, noise: FloatArray) -> FloatArray:
        return np.asarray(-np.abs(noise) - math.log(2))

    def log_below(self, noise: FloatArray) -> FloatArray:
        # Above 0 it is log(1 - exp(-x) / 2), below 0 log(exp(x) / 2).
        return np.asarray(np.where(noise < 0, noise - math.log(2), np.log1p(-np.exp(-np.abs(noise)) / 2)))
