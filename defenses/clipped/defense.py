"""Define the base class of defenses that have a budget (epsilon, delta) and an L2 clip norm."""

from abc import ABC
from dataclasses import dataclass

from ..defense import Defense, check_bound, check_budget


@dataclass(frozen=True, kw_only=True)
class ClippedDefense(Defense, ABC):
    """A base class of defenses that have a budget (epsilon, delta) and an L2 clip norm."""

    epsilon: float = 4.0
    delta: float = 1e-5
    clip_norm: float = 1.0

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        check_bound("clip_norm", self.clip_norm)
