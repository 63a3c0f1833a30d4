"""Standing: where a federation stands between two rounds. Every draw is addressed by its round, so that this is all
that the next rounds need.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from .protection import State


@dataclass(frozen=True, kw_only=True)
class ResumeState:
    """After ``round`` rounds.

    Args:
        model: the server's, ``(R, d)``.
        state: the protection's, public.
        shared: the algorithm's, broadcast with the model.
        kept: what each client keeps for its next round.
    """

    round: int
    model: Tensor
    state: State
    shared: Mapping[str, Tensor]
    kept: Mapping[int, Mapping[str, Tensor]]

    def check(self, rounds: int, like: Tensor) -> None:
        """Raise ValueError unless it is of a federation of ``rounds`` rounds and models ``like`` these."""
        if not 0 <= self.round <= rounds:
            raise ValueError(f"standing must be after 0..{rounds} rounds, got {self.round}")
        if self.model.shape != like.shape or self.model.dtype != like.dtype:
            raise ValueError(
                f"standing's model must be {tuple(like.shape)} of {like.dtype}, "
                f"got {tuple(self.model.shape)} of {self.model.dtype}"
            )
