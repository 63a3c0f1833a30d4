"""Holds everything that a federation needs in order to continue after an interrupted run.

Every random draw is addressed by its round, so no generator state has to be stored.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from .protection import State


@dataclass(frozen=True, kw_only=True)
class ResumeState:
    """The state of a federation after ``round`` rounds, from which a run can be resumed.

    Args:
        model: the server's model, ``(R, d)``.
        state: the protection's public state.
        shared: the algorithm's state that is broadcast with the model.
        kept: what each client keeps for its next round.
    """

    round: int
    model: Tensor
    state: State
    shared: Mapping[str, Tensor]
    kept: Mapping[int, Mapping[str, Tensor]]

    def check(self, rounds: int, like: Tensor) -> None:
        """Raise ValueError unless the saved state fits a federation of ``rounds`` rounds, with models of the shape of
        ``like``.
        """
        if not 0 <= self.round <= rounds:
            raise ValueError(f"resume_from must be a state after 0..{rounds} rounds, got {self.round}")
        # A state of another precision would resume and then give slightly other numbers.
        if self.model.shape != like.shape or self.model.dtype != like.dtype:
            raise ValueError(
                f"resume_from must hold a model of shape {tuple(like.shape)} and type {like.dtype}, "
                f"got {tuple(self.model.shape)} of {self.model.dtype}"
            )
