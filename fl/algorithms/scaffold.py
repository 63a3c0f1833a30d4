"""SCAFFOLD corrects the clients' drift by control variates of clients and server (Karimireddy et al. 2020)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .local_training import LocalState, LocalTraining, Numbers


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
