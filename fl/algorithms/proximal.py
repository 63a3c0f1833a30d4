"""Proximal algorithms: local SGD with a pull towards the received model, always (FedProx) or beyond a radius (BLUR)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..fields import check_count, check_positive


@dataclass(frozen=True, kw_only=True)
class FedProx:
    """FedAvg whose local loss has the term ``mu / 2 * |local - model|^2`` (Li et al. 2020, Algorithm 2).

    The paper allows clients to solve their problem inexactly; here a client takes ``local_steps`` steps of SGD.
    """

    learning_rate: float
    local_steps: int
    mu: float
    server_learning_rate: float = 1.0

    def __post_init__(self) -> None:
        for name in ("learning_rate", "mu", "server_learning_rate"):
            check_positive(name, getattr(self, name))
        check_count("local_steps", self.local_steps)

    @property
    def linear_scale(self) -> float | None:
        """Defined for one step only, where the proximal term vanishes; later steps shrink earlier directions."""
        return -self.learning_rate if self.local_steps == 1 else None

    def share(self, model: Tensor) -> dict[str, Tensor]:
        return {}

    def start(
        self, model: Tensor, shared: Mapping[str, Tensor] | None = None, kept: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        return {"anchor": model}

    def step(self, local: Tensor, direction: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return local - self.learning_rate * (direction + self.pull(local - state["anchor"])), state

    def pull(self, moved: Tensor) -> Tensor:
        """Gradient ``(R, d)`` of the proximal term at ``local - model``."""
        return self.mu * moved

    def update(self, model: Tensor, local: Tensor) -> Tensor:
        return local - model

    def keep(self, model: Tensor, local: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return {}

    def combine(self, model: Tensor, aggregate: Tensor) -> Tensor:
        return model + self.server_learning_rate * aggregate

    def advance(self, shared: Mapping[str, Tensor], aggregate: Tensor, rate: float) -> dict[str, Tensor]:
        return {}

    def aggregate_between(self, before: Tensor, after: Tensor) -> Tensor:
        return (after - before) / self.server_learning_rate

    def gradient(self, update: Tensor) -> Tensor:
        """Without a correction for the proximal term."""
        return -update / (self.learning_rate * self.local_steps)


@dataclass(frozen=True, kw_only=True)
class BoundedUpdate(FedProx):
    """FedProx with a pull only beyond ``radius``: ``mu / 2 * max(0, |local - model| - radius)^2`` (after Cheng et al.
    2022, Bounded Local Update Regularization).

    ``radius``: the clip norm, so that clipping removes little.
    """

    radius: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("radius", self.radius)

    def pull(self, moved: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(moved, dim=-1, keepdim=True)
        # Below the radius numerator and denominator are equal, so the pull is exactly zero.
        beyond: Tensor = 1 - self.radius / length.clamp_min(self.radius)
        return self.mu * moved * beyond
