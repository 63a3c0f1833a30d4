"""Base class of algorithms in which clients take several local steps and send the difference of weights."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ..fields import check_count, check_positive

LocalState = dict[str, Tensor]
Numbers = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """Base class of algorithms whose clients send weight differences, which the server adds to its model.

    By default no state is shared or kept, and updates are not linear in the steps' directions.
    """

    learning_rate: float
    local_steps: int
    server_learning_rate: float = 1.0

    def __post_init__(self) -> None:
        check_positive("learning_rate", self.learning_rate)
        check_positive("server_learning_rate", self.server_learning_rate)
        check_count("local_steps", self.local_steps)

    @property
    def linear_scale(self) -> float | None:
        return None

    def share(self, model: Tensor) -> LocalState:
        return {}

    def update(self, model: Tensor, local: Tensor) -> Tensor:
        return local - model

    def keep(self, model: Tensor, local: Tensor, state: LocalState) -> LocalState:
        return {}

    def combine(self, model: Tensor, aggregate: Tensor) -> Tensor:
        return model + self.server_learning_rate * aggregate

    def advance(self, shared: Numbers, aggregate: Tensor, rate: float) -> LocalState:
        return {}

    def aggregate_between(self, before: Tensor, after: Tensor) -> Tensor:
        return (after - before) / self.server_learning_rate

    def gradient(self, update: Tensor) -> Tensor:
        """Return the mean gradient of the local steps, including any correction that the algorithm adds to them."""
        return -update / (self.learning_rate * self.local_steps)
