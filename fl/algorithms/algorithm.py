"""A federated algorithm defines what a client computes in a round and how the server combines the clients' updates.

One convention holds throughout: an **update** is what the server adds. FedSGD uploads minus the gradient, FedAvg the
difference of weights. Code that needs the sign of a gradient must use ``gradient``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from ...audit.parts import Spec, build, check_members, name_and_options
from ..fields import check_positive
from .local_training import LocalState, LocalTraining, Numbers
from .proximal import BoundedUpdate, FedProx
from .scaffold import Scaffold


class Algorithm(Protocol):
    """The interface of a federated algorithm: the clients' local steps and the server's combination of updates.

    Replicas (independent runs trained together) are the first dimension of every tensor.

    Three states, each handed in and out: what the server **shares** with its model (public, made of aggregates alone),
    what a client **keeps** from one of its rounds to the next, and what it holds during one round.
    """

    @property
    def local_steps(self) -> int:
        """The number of local steps that a client takes in a round."""
        ...

    @property
    def linear_scale(self) -> float | None:
        """Return the factor ``s`` in update = s * (sum of the client's step directions); None if the update is not
        linear in the directions (Adam).
        """
        ...

    def share(self, model: Tensor) -> LocalState:
        """Return what the server broadcasts together with its first model, such as a control variate (SCAFFOLD)."""
        ...

    def start(self, model: Tensor, shared: Numbers | None = None, kept: Numbers | None = None) -> LocalState:
        """Return a client's state at the start of a round, such as the moments of its optimiser.

        ``kept`` is what the client stored after its last round; None, empty or zeros until it has taken part. Every
        tensor that is shared, kept or part of a state has a first dimension of replicas (independent runs).
        """
        ...

    def step(self, local: Tensor, direction: Tensor, state: LocalState) -> tuple[Tensor, LocalState]:
        """Take one local step along minus ``direction`` (a gradient), and return the new weights and state."""
        ...

    def update(self, model: Tensor, local: Tensor) -> Tensor:
        """Return the update that the client sends, computed from the received model and the locally trained model."""
        ...

    def keep(self, model: Tensor, local: Tensor, state: LocalState) -> LocalState:
        """Return what a client stores for its next round, such as a control variate; it is zero until the client has
        taken part.
        """
        ...

    def combine(self, model: Tensor, aggregate: Tensor) -> Tensor:
        """Return the server's next model, from its current model and the aggregate of the updates."""
        ...

    def advance(self, shared: Numbers, aggregate: Tensor, rate: float) -> LocalState:
        """Return what the server broadcasts together with its next model, such as a control variate (SCAFFOLD).

        ``rate``: the published share of clients in a round.
        """
        ...

    def aggregate_between(self, before: Tensor, after: Tensor) -> Tensor:
        """Return the aggregate of the clients' updates that turned the server's model ``before`` into ``after``.

        An observer of the global models can compute it.
        """
        ...

    def gradient(self, update: Tensor) -> Tensor:
        """Return the mean gradient of the local steps behind a client's update; for a non-linear optimiser such as
        Adam, its scale is unknown.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class FedSGD:
    """FedSGD: each client sends one gradient per round, and the server takes the step (McMahan et al. 2017).

    ``local`` is the step itself, not the weights after it: (w - g) - w would round g to the last digit of w.
    """

    learning_rate: float
    local_steps: int = 1

    def __post_init__(self) -> None:
        check_positive("learning_rate", self.learning_rate)
        # The field exists so that all algorithms have it; another value would be ignored silently.
        if self.local_steps != 1:
            raise ValueError(f"FedSGD takes one local step, so local_steps must be 1, got {self.local_steps}")

    @property
    def linear_scale(self) -> float | None:
        return -1.0

    def share(self, model: Tensor) -> LocalState:
        return {}

    def start(self, model: Tensor, shared: Numbers | None = None, kept: Numbers | None = None) -> LocalState:
        return {}

    def step(self, local: Tensor, direction: Tensor, state: LocalState) -> tuple[Tensor, LocalState]:
        return -direction, state

    def update(self, model: Tensor, local: Tensor) -> Tensor:
        return local

    def keep(self, model: Tensor, local: Tensor, state: LocalState) -> LocalState:
        return {}

    def combine(self, model: Tensor, aggregate: Tensor) -> Tensor:
        return model + self.learning_rate * aggregate

    def advance(self, shared: Numbers, aggregate: Tensor, rate: float) -> LocalState:
        return {}

    def aggregate_between(self, before: Tensor, after: Tensor) -> Tensor:
        return (after - before) / self.learning_rate

    def gradient(self, update: Tensor) -> Tensor:
        return -update


@dataclass(frozen=True, kw_only=True)
class FedAvg(LocalTraining):
    """FedAvg: clients take several local steps and send the difference of weights (McMahan et al. 2017, Algorithm 1).

    The local optimiser is SGD or Adam.

    Adam (Kingma and Ba 2015) starts anew in every round, unless ``keep_moments`` is set: then each client continues
    with its own moments, which never leave it. With one local step per round a new Adam moves every weight by the
    learning rate, whatever the gradient's size.
    """

    optimizer: Literal["sgd", "adam"] = "sgd"
    keep_moments: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer not in ("sgd", "adam"):
            raise ValueError(f'optimizer must be "sgd" or "adam", got {self.optimizer!r}')
        if not isinstance(self.keep_moments, bool):
            raise ValueError(f"keep_moments (of Adam, between rounds) must be true or false, got {self.keep_moments!r}")
        # Plain SGD has no moments; the option would be ignored silently.
        if self.keep_moments and self.optimizer != "adam":
            raise ValueError(f'keep_moments needs optimizer "adam", got {self.optimizer!r}')

    @property
    def linear_scale(self) -> float | None:
        return -self.learning_rate if self.optimizer == "sgd" else None

    def start(self, model: Tensor, shared: Numbers | None = None, kept: Numbers | None = None) -> LocalState:
        if self.optimizer == "sgd":
            return {}
        if kept:
            return dict(kept)
        # The count in double precision: 1 - 0.999**count loses four digits in single. By replica: they take part apart.
        count = model.new_zeros(len(model), 1, dtype=torch.float64)
        return {"mean": torch.zeros_like(model), "square": torch.zeros_like(model), "count": count}

    def step(self, local: Tensor, direction: Tensor, state: LocalState) -> tuple[Tensor, LocalState]:
        if self.optimizer == "sgd":
            return local - self.learning_rate * direction, state
        count = state["count"] + 1
        mean = 0.9 * state["mean"] + 0.1 * direction
        square = 0.999 * state["square"] + 0.001 * direction.square()
        whole, whole_square = (1 - 0.9**count).to(mean), (1 - 0.999**count).to(square)
        # 1e-8 as in PyTorch, so that both take the same steps.
        stride = (mean / whole) / ((square / whole_square).sqrt() + 1e-8)
        return local - self.learning_rate * stride, {"mean": mean, "square": square, "count": count}

    def keep(self, model: Tensor, local: Tensor, state: LocalState) -> LocalState:
        return state if self.keep_moments else {}


KNOWN_ALGORITHMS: Mapping[str, type[FedSGD] | type[FedAvg] | type[FedProx] | type[Scaffold]] = {
    "fedsgd": FedSGD,
    "fedavg": FedAvg,
    "fedprox": FedProx,
    "bounded_update": BoundedUpdate,
    "scaffold": Scaffold,
}


def algorithm_from(spec: Spec) -> Algorithm:
    """Build the federated algorithm that a suite file specifies.

    For example ``{ name = "fedavg", learning_rate = 0.1, local_steps = 5 }``, or one from outside,
    ``{ part = "package.module:Name", learning_rate = 0.1 }``: a class or function whose result has all members of
    ``Algorithm``.

    Raises:
        ValueError: unknown name, unknown or bad field, or a part without a member.
    """
    algorithm: Algorithm = build("algorithm", spec, KNOWN_ALGORITHMS)
    check_members(f"algorithm {name_and_options('algorithm', spec)[0]}", algorithm, Algorithm)
    return algorithm
