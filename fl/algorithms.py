"""Federated algorithms: what a client computes in a round, and how the server combines the clients' updates.

FedSGD and FedAvg, proximal algorithms (FedProx, BLUR) and SCAFFOLD, which corrects the clients' drift by control
variates of clients and server (Karimireddy et al. 2020).

One convention holds throughout: an **update** is what the server adds. FedSGD uploads minus the gradient, FedAvg the
difference of weights. Code that needs the sign of a gradient must use ``gradient``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..audit.parts import Spec, build, check_members, name_and_options
from .fields import check_count, check_positive

LocalState = dict[str, Tensor]
Numbers = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """The interface of a federated algorithm: the clients' local steps and the server's combination of updates.

    By default no state is shared or kept, and updates are not linear in the steps' directions. An algorithm of one's
    own need not derive from this class, but must have all of its members.

    Replicas (independent runs trained together) are the first dimension of every tensor.

    Three states, each handed in and out: what the server **shares** with its model (public, made of aggregates alone),
    what a client **keeps** from one of its rounds to the next, and what it holds during one round.

    ``local_steps``: the number of local steps that a client takes in a round.
    """

    local_steps: int

    @property
    def linear_scale(self) -> float | None:
        """Return the factor ``s`` in update = s * (sum of the client's step directions); None if the update is not
        linear in the directions (Adam).
        """
        return None

    def share(self, model: Tensor) -> LocalState:
        """Return what the server broadcasts together with its first model, such as a control variate (SCAFFOLD)."""
        return {}

    def start(self, model: Tensor, shared: Numbers | None = None, kept: Numbers | None = None) -> LocalState:
        """Return a client's state at the start of a round, such as the moments of its optimiser.

        ``kept`` is what the client stored after its last round; None, empty or zeros until it has taken part. Every
        tensor that is shared, kept or part of a state has a first dimension of replicas (independent runs).
        """
        return {}

    @abstractmethod
    def step(self, local: Tensor, direction: Tensor, state: LocalState) -> tuple[Tensor, LocalState]:
        """Take one local step along minus ``direction`` (a gradient), and return the new weights and state."""

    @abstractmethod
    def update(self, model: Tensor, local: Tensor) -> Tensor:
        """Return the update that the client sends, computed from the received model and the locally trained model."""

    def keep(self, model: Tensor, local: Tensor, state: LocalState) -> LocalState:
        """Return what a client stores for its next round, such as a control variate; the stored values are zero until
        the client has taken part.
        """
        return {}

    @abstractmethod
    def combine(self, model: Tensor, aggregate: Tensor) -> Tensor:
        """Return the server's next model, from its current model and the aggregate of the updates."""

    def advance(self, shared: Numbers, aggregate: Tensor, rate: float) -> LocalState:
        """Return what the server broadcasts together with its next model, such as a control variate (SCAFFOLD).

        ``rate``: the published share of clients in a round.
        """
        return {}

    @abstractmethod
    def aggregate_between(self, before: Tensor, after: Tensor) -> Tensor:
        """Return the aggregate of the clients' updates that turned the server's model ``before`` into ``after``.

        An observer of the global models can compute it.
        """

    @abstractmethod
    def gradient(self, update: Tensor) -> Tensor:
        """Return the mean gradient of the local steps behind a client's update. For a non-linear optimiser such as
        Adam, the scale of this mean is unknown.
        """


@dataclass(frozen=True, kw_only=True)
class LocalTraining(Algorithm):
    """Base class of algorithms whose clients send weight differences, which the server adds to its model."""

    learning_rate: float
    server_learning_rate: float = 1.0

    def __post_init__(self) -> None:
        check_positive("learning_rate", self.learning_rate)
        check_positive("server_learning_rate", self.server_learning_rate)
        check_count("local_steps", self.local_steps)

    def update(self, model: Tensor, local: Tensor) -> Tensor:
        return local - model

    def combine(self, model: Tensor, aggregate: Tensor) -> Tensor:
        return model + self.server_learning_rate * aggregate

    def aggregate_between(self, before: Tensor, after: Tensor) -> Tensor:
        return (after - before) / self.server_learning_rate

    def gradient(self, update: Tensor) -> Tensor:
        """Return the mean gradient of the local steps, including any correction that the algorithm adds to them."""
        return -update / (self.learning_rate * self.local_steps)


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
        """Return the factor between the direction of a client's single local step and the client's update; None if
        clients take several local steps.

        In one step the proximal term vanishes; later steps shrink earlier directions.
        """
        return -self.learning_rate if self.local_steps == 1 else None

    def start(self, model: Tensor, shared: Numbers | None = None, kept: Numbers | None = None) -> LocalState:
        return {"anchor": model}

    def step(self, local: Tensor, direction: Tensor, state: LocalState) -> tuple[Tensor, LocalState]:
        return local - self.learning_rate * (direction + self.pull(local - state["anchor"])), state

    def pull(self, moved: Tensor) -> Tensor:
        """Return the gradient of the proximal term for local models that have moved by ``moved (R, d)`` from the
        received models, with one row per replica (independent run).
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


@dataclass(frozen=True, kw_only=True)
class Scaffold(LocalTraining):
    """A federated algorithm whose local steps are corrected by control variates of the client and the server
    (SCAFFOLD).

    The steps follow ``gradient - own control + server's control`` (Algorithm 1, option II for the own control).

    Of the paper's two uploads only the update is sent. The change of the client's control is
    ``-(server's control) - update / (local_steps * learning_rate)``, so the update determines both, and the server
    advances its control from the aggregate alone. Whatever protects the update therefore protects the control, and the
    server's control, which is broadcast, depends only on what was released. Clients have the aggregate's weights; the
    share of clients in a round is the published rate, not the number that took part. Updates are linear in the steps'
    directions only for fixed controls, which change in every round.
    """

    def share(self, model: Tensor) -> LocalState:
        return {"control": torch.zeros_like(model)}

    def start(self, model: Tensor, shared: Numbers | None = None, kept: Numbers | None = None) -> LocalState:
        zero = torch.zeros_like(model)
        # A client that has not taken part yet has a control of zero.
        server, own = (shared or {}).get("control", zero), (kept or {}).get("control", zero)
        return {"correction": server - own}

    def step(self, local: Tensor, direction: Tensor, state: LocalState) -> tuple[Tensor, LocalState]:
        return local - self.learning_rate * (direction + state["correction"]), state

    def keep(self, model: Tensor, local: Tensor, state: LocalState) -> LocalState:
        return {"control": self.gradient(local - model) - state["correction"]}

    def advance(self, shared: Numbers, aggregate: Tensor, rate: float) -> LocalState:
        # The aggregate replaces the mean over the cohort in the paper's update.
        return {"control": shared["control"] + rate * (self.gradient(aggregate) - shared["control"])}


@dataclass(frozen=True, kw_only=True)
class FedSGD(Algorithm):
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

    def step(self, local: Tensor, direction: Tensor, state: LocalState) -> tuple[Tensor, LocalState]:
        return -direction, state

    def update(self, model: Tensor, local: Tensor) -> Tensor:
        return local

    def combine(self, model: Tensor, aggregate: Tensor) -> Tensor:
        return model + self.learning_rate * aggregate

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
