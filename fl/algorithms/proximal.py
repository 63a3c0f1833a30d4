"""Proximal algorithms: local SGD with a pull towards the received model, always (FedProx) or beyond a radius (BLUR)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..fields import check_positive
from .local_training import LocalState, LocalTraining, Numbers


@dataclass(frozen=True, kw_only=True)
class FedProx(LocalTraining):
    """FedProx is FedAvg whose local loss includes ``mu / 2 * |local - model|^2`` (Li et al. 2020, Algorithm 2).

    The paper allows clients to solve their problem inexactly; here a client takes ``local_steps`` steps of SGD.
    """

    mu: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("mu", self.mu)

    @property
    def linear_scale(self) -> float | None:
        """Return the factor between the direction of a client's only local step and its update; None for several local
        steps.

        In one step the proximal term vanishes; later steps shrink earlier directions.
        """
        return -self.learning_rate if self.local_steps == 1 else None

    def start(self, model: Tensor, shared: Numbers | None = None, kept: Numbers | None = None) -> LocalState:
        return {"anchor": model}

    def step(self, local: Tensor, direction: Tensor, state: LocalState) -> tuple[Tensor, LocalState]:
        return local - self.learning_rate * (direction + self.pull(local - state["anchor"])), state

    def pull(self, moved: Tensor) -> Tensor:
        """Return the gradient of the proximal term for local models that have moved by ``moved (R, d)`` from the
        received ones, one row per replica (independent run).
        """
        return self.mu * moved


@dataclass(frozen=True, kw_only=True)
class BoundedUpdate(FedProx):
    """A variant of FedProx whose pull towards the received model acts only beyond a distance of ``radius``.

    The local loss includes ``mu / 2 * max(0, |local - model| - radius)^2`` (after Cheng et al. 2022, Bounded Local
    Update Regularization).

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
