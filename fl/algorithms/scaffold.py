"""SCAFFOLD: control variates of clients and server correct the clients' drift (Karimireddy et al. 2020)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..fields import check_count, check_positive


@dataclass(frozen=True, kw_only=True)
class Scaffold:
    """Local steps along ``gradient - own control + server's control`` (Algorithm 1, option II for the own control).

    Of the paper's two uploads only the update is sent. The change of the client's control is
    ``-(server's control) - update / (local_steps * learning_rate)``, so the update determines both, and the server
    advances its control from the aggregate alone. Whatever protects the update therefore protects the control, and the
    server's control, which is broadcast, depends only on what was released. Clients have the aggregate's weights; the
    share of clients in a round is the published rate, not the number that took part.
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
        """None: updates are linear in the directions only for fixed controls, which change in every round."""
        return None

    def share(self, model: Tensor) -> dict[str, Tensor]:
        return {"control": torch.zeros_like(model)}

    def start(
        self, model: Tensor, shared: Mapping[str, Tensor] | None = None, kept: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        zero = torch.zeros_like(model)
        # A client that has not taken part yet has a control of zero.
        server, own = (shared or {}).get("control", zero), (kept or {}).get("control", zero)
        return {"correction": server - own}

    def step(self, local: Tensor, direction: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return local - self.learning_rate * (direction + state["correction"]), state

    def update(self, model: Tensor, local: Tensor) -> Tensor:
        return local - model

    def keep(self, model: Tensor, local: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"control": self.gradient(local - model) - state["correction"]}

    def combine(self, model: Tensor, aggregate: Tensor) -> Tensor:
        return model + self.server_learning_rate * aggregate

    def advance(self, shared: Mapping[str, Tensor], aggregate: Tensor, rate: float) -> dict[str, Tensor]:
        # The aggregate replaces the mean over the cohort in the paper's update.
        return {"control": shared["control"] + rate * (self.gradient(aggregate) - shared["control"])}

    def aggregate_between(self, before: Tensor, after: Tensor) -> Tensor:
        return (after - before) / self.server_learning_rate

    def gradient(self, update: Tensor) -> Tensor:
        """Including the correction: the mean gradient minus the client's control plus the server's."""
        return -update / (self.learning_rate * self.local_steps)
