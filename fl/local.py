"""Local training: what one client does in a round, for all replicas at once."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..audit.claim import Unit
from .probe import Canary
from .protection import Context, Protection, State, check_rows
from .sampling import lots
from .streams import Streams
from .task import Task


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Which replicas run together.

    Args:
        replicas: how many.
        block: number of this batch: part of every stream's name, so that no two batches share a draw.
        world: 1 where the canary is in.
    """

    replicas: int = 1
    block: int = 0
    world: int = 0

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.block < 0 or self.world not in (0, 1):
            raise ValueError(
                "replicas must be >= 1, block >= 0 and world 0 or 1, "
                f"got {self.replicas}, {self.block} and {self.world}"
            )


@dataclass(frozen=True, kw_only=True)
class LocalResult:
    """``update (R, d)`` and, for each local step, the mask ``(R, n)`` of the samples used."""

    update: Tensor
    lots: list[Tensor]


@dataclass(frozen=True, kw_only=True)
class LocalTrainer:
    """Trains one client after the other on the model that was broadcast; knows what is planted in this world."""

    task: Task
    protection: Protection
    streams: Streams
    batch: Batch
    canary: Canary | None

    @property
    def planted_client(self) -> Tensor | None:
        """The update ``(d,)`` of the canary that is one more client, where this world has one."""
        if self.canary is None or self.canary.unit is Unit.SAMPLE:
            return None
        return self.canary.row(self.batch.world)

    def train(self, model: Tensor, client: int, context: Context, state: State) -> LocalResult:
        """``model (R, d)`` -> the client's update and lots."""
        algorithm = context.plan.algorithm
        local, local_state, masks = model, algorithm.start(model), []
        for step in range(algorithm.local_steps):
            mask = self._lot(client, context, step)
            direction = self._direction(local, mask, client, context, state, step)
            local, local_state = algorithm.step(local, direction, local_state)
            masks.append(mask[:, : context.plan.sizes[client]])
        return LocalResult(update=algorithm.update(model, local), lots=masks)

    def _lot(self, client: int, context: Context, step: int) -> Tensor:
        """Who is drawn: a sample canary stands last and is drawn like any sample, in world 1."""
        planted = self._planted_sample(client) is not None
        rng = self._generator("lot", client, context, step)
        return context.plan.lot.draw(rng, self.batch.replicas, context.plan.sizes[client] + planted)

    def _direction(self, local: Tensor, mask: Tensor, client: int, context: Context, state: State, step: int) -> Tensor:
        canary, part = self._planted_sample(client), self.task.parts[client]
        chosen, real = lots(mask[:, : len(part)])
        images, labels = self.task.images[part[chosen]], self.task.labels[part[chosen]]
        if not self.protection.per_sample and canary is None:
            weights = real / real.sum(1, keepdim=True).clamp_min(1)
            return self.task.network.gradient(local, images, labels, weights)
        rows = self.task.network.sample_gradients(local, images, labels)
        if canary is not None:
            rows = torch.cat([rows, canary.to(rows).expand(len(rows), 1, -1)], dim=1)
            real = torch.cat([real, mask[:, len(part) :]], dim=1)
        rng = self._generator("local noise", client, context, step)
        direction = self.protection.local_step(rows, real, client, context, state, rng)
        return check_rows("local_step", direction, local)

    def _planted_sample(self, client: int) -> Tensor | None:
        if self.canary is None or self.canary.unit is not Unit.SAMPLE or self.canary.client != client:
            return None
        return self.canary.row(self.batch.world)

    def _generator(self, purpose: str, client: int, context: Context, step: int) -> np.random.Generator:
        block, world = self.batch.block, self.batch.world
        return self.streams.generator(
            purpose, replicate=block, world=world, round=context.round, client=client, step=step
        )
