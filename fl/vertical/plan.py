"""The public facts of a vertical federation, known to all parties and to adversaries."""

import math
from dataclasses import dataclass

from ..fields import check_count
from .network import VerticalNetwork


@dataclass(frozen=True, kw_only=True)
class VerticalPlan:
    """The facts about a vertical federation that are public before the training starts.

    An epoch goes once over all people, in an order that all parties know: they align their rows by it.

    Args:
        people: number of people, whose rows the parties have aligned.
        network: the architecture of all parties' models.
        epochs: passes over all people.
        batch: people in one step.
        learning_rate: of plain gradient descent, of all models.
        frozen: whether the passive parties' bottom models keep their public initial parameters.

    Raises:
        ValueError: for counts below 1, a batch larger than the number of people, or a learning rate that is no number
            > 0.
    """

    people: int
    network: VerticalNetwork
    epochs: int
    batch: int
    learning_rate: float
    frozen: bool = False

    def __post_init__(self) -> None:
        for name in ("people", "epochs", "batch"):
            check_count(name, getattr(self, name))
        if self.batch > self.people:
            raise ValueError(f"batch must be at most people = {self.people}, got {self.batch}")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be a number > 0, got {self.learning_rate!r}")

    @property
    def steps_per_epoch(self) -> int:
        """The number of steps of one pass over all people; the last batch may be smaller."""
        return math.ceil(self.people / self.batch)

    @property
    def steps(self) -> int:
        """The number of steps of the whole training."""
        return self.epochs * self.steps_per_epoch
