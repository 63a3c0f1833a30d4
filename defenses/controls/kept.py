"""Faults of state: raw momentum, remainders or old updates are kept and enter the releases of later rounds."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from ...fl.laws import clip, lot_sum
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ...fl.task import Samples
from .case import At, ClientCase, Fault, SampleCase, lengths_of


class RawMomentum(Fault, SampleCase):
    """The client's momentum buffer holds raw gradients and is added to the noised step."""

    def step(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        direction = super().step(gradients, present, at)
        if at.round == 0:
            self.memory.pop(at.client, None)
        before = self.remembered(at.client, torch.zeros_like(direction))
        raw = lot_sum(gradients.nan_to_num(), present) / at.plan.expected_lot(at.client)
        self.memory[at.client] = 0.9 * before + raw
        return direction + 0.9 * before


class _MomentumInState(ClientCase):
    published = False

    def initial_state(self, plan: Plan) -> State:
        return {"momentum": torch.zeros(1, plan.layout.dim)}

    def mean(self, received: Message, at: At) -> Tensor:
        momentum: Tensor = at.state["momentum"]
        return super().mean(received, at) + 0.5 * momentum

    def close_round(self, aggregate: Tensor, context: Context, state: State) -> State:
        return {"momentum": aggregate}


class ServerMomentumRaw(Fault, _MomentumInState):
    """The server's momentum, in the public state, is computed from the sum before noise."""

    def query(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> State:
        return {"momentum": 0.5 * state["momentum"] + received.values.sum(1) / self.divisor(context.plan)}

    def close_round(self, aggregate: Tensor, context: Context, state: State) -> State:
        return state


class StaleUpdates(Fault, ClientCase):
    """For an absent client its last update is used again, so that it is in nearly every round."""

    def total(self, received: Message, at: At) -> Tensor:
        total = super().total(received, at)
        if at.round == 0:
            self.memory.clear()
        for row, sender in enumerate(received.senders or ()):
            before = self.remembered(sender, torch.zeros_like(total))
            there = received.present[:, row, None]
            total = total + before.masked_fill(there, 0)
            self.memory[sender] = torch.where(there, received.values[:, row], before)
        return total


class _BoundInState(ClientCase):
    published = False

    def initial_state(self, plan: Plan) -> State:
        return {"bound": torch.tensor([self.clip_norm])}

    def clipped(self, values: Tensor, at: At) -> Tensor:
        return clip(values, at.state["bound"].view(-1, 1, 1))

    def noise(self, like: Tensor, at: At) -> Tensor:
        bound: Tensor = at.state["bound"].view(-1, 1)
        return bound * self.noise_multiplier * at.normal(like)


class BoundFromLongest(Fault, _BoundInState):
    """The next clip norm follows the longest clipped update of the round, exactly."""

    def query(
        self, received: Message, context: Context, state: State, rng: np.random.Generator
    ) -> Mapping[str, Tensor]:
        if not received.values.shape[1]:
            return state
        longest = lengths_of(received.values).squeeze(-1).amax(1)
        return {"bound": (0.5 * state["bound"] + 0.5 * longest).clamp(1e-3, 1e3)}


class _StopsByPublicLoss(ClientCase):
    """Training stops, and zeros are released, once the loss is small enough."""

    published = False

    def loss(self, at: At) -> Tensor:
        """Return the loss of each replica's model."""
        return torch.ones(at.context.replicas) if at.context.public_loss is None else at.context.public_loss()

    def mean(self, received: Message, at: At) -> Tensor:
        going = self.loss(at).unsqueeze(-1) > 2.3
        return super().mean(received, at) * going


class StopsByPrivateLoss(Fault, _StopsByPublicLoss):
    """Training stops by the mean loss on the clients' own samples."""

    def loss(self, at: At) -> Tensor:
        samples = at.context.samples
        if samples is None:
            return super().loss(at)
        return torch.stack([_mean_loss(samples(client)) for client in range(at.plan.clients)]).mean(0)


def _mean_loss(held: Samples) -> Tensor:
    """The mean loss of each replica's model."""
    network, losses = held.network, list[Tensor]()
    for model in held.models:
        losses.append(network.objective.mean_loss(network.evaluated(model, held.images), held.labels))
    return torch.stack(losses)
