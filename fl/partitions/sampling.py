"""Rules that draw the clients that take part in a round (cohort) and the samples of a local step (lot)."""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ...audit.nearest import nearest
from ..streams import uniform


class Sampling(Protocol):
    """The interface of a public rule that draws a random subset of clients or samples."""

    def draw(self, rng: np.random.Generator, replicas: int, n: int) -> Tensor:
        """Draw a subset of n items in each replica (independent run), as a mask ``(replicas, n)`` that is true for
        drawn items.

        Every rule consumes the same uniform numbers.
        """
        ...

    def rate(self, n: int) -> float:
        """Return the expected share of ``n`` items that is drawn."""
        ...


@dataclass(frozen=True)
class Full:
    """A sampling rule that always draws every item."""

    def draw(self, rng: np.random.Generator, replicas: int, n: int) -> Tensor:
        # Drawn although not needed: a change of the rule must not shift the draws that follow.
        return uniform(rng, (replicas, n)) >= 0

    def rate(self, n: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Poisson:
    """A sampling rule that draws each item independently with the same probability (Poisson subsampling).

    Amplification theorems for DP-SGD assume it.
    """

    probability: float

    def __post_init__(self) -> None:
        if not (_is_number(self.probability, Real) and 0 < self.probability <= 1):
            raise ValueError(f"Poisson probability must be in (0, 1], got {self.probability!r}")

    def draw(self, rng: np.random.Generator, replicas: int, n: int) -> Tensor:
        return uniform(rng, (replicas, n)) < self.probability

    def rate(self, n: int) -> float:
        return self.probability


@dataclass(frozen=True)
class FixedSize:
    """A sampling rule that draws a uniform subset of fixed size (all items if there are fewer).

    Theorems for Poisson sampling do not apply.
    """

    size: int

    def __post_init__(self) -> None:
        if not _is_number(self.size, Integral) or self.size < 1:
            raise ValueError(f"FixedSize size must be a whole number >= 1, got {self.size!r}")

    def draw(self, rng: np.random.Generator, replicas: int, n: int) -> Tensor:
        # Stable: among 60,000 numbers of 24 bits about a hundred pairs are equal, and machines order ties differently.
        ranks = uniform(rng, (replicas, n)).argsort(dim=1, stable=True).argsort(dim=1)
        return ranks < self.size

    def rate(self, n: int) -> float:
        return min(1.0, self.size / n) if n else 1.0


def sampling_from(spec: str | dict[str, Any]) -> Sampling:
    """Build the sampling rule that a suite file specifies: ``"full"``, ``{poisson = 0.1}`` or ``{fixed_size = 32}``.

    Raises:
        ValueError: for any other spelling; the message names the nearest known one.
    """
    if spec == "full":
        return Full()
    kind, amount = next(iter(spec.items())) if isinstance(spec, dict) and len(spec) == 1 else (spec, None)
    if kind == "poisson" and amount is not None:
        return Poisson(amount)
    if kind == "fixed_size" and amount is not None:
        return FixedSize(amount)
    known = nearest(str(kind), ("full", "poisson", "fixed_size"))
    raise ValueError(
        f'sampling must be "full", {{ poisson = RATE }} or {{ fixed_size = N }}, got {spec!r} (known: {known})'
    )


def lot_indices(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices of the samples drawn in each replica (independent run), padded to equal length, and a mask
    that is false on the padding.

    A mask ``(replicas, n)`` gives indices ``(replicas, L)``, ascending.

    Replicas draw different numbers: shorter lots are padded to the longest with samples that were not drawn.
    """
    # At least one column, so that an empty lot still has a shape to compute with.
    size = max(1, int(mask.sum(dim=1).max())) if mask.shape[1] else 0
    order = torch.argsort(mask.to(torch.int8), dim=1, descending=True, stable=True)[:, :size]
    return order, torch.gather(mask, 1, order)


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)
