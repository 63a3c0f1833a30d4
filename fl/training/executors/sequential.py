"""Trains the clients of a cohort one after the other, each in all replicas (independent runs) at once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from ...algorithms import Numbers
from ...protection import Context, State
from ..local import LocalResult, LocalTrainer


@dataclass(frozen=True, kw_only=True)
class Sequential(LocalTrainer):
    """The executor that trains one client after the other."""

    def train_all(
        self, model: Tensor, context: Context, state: State, shared: Numbers, kept: Mapping[int, Numbers]
    ) -> Iterator[LocalResult]:
        for client in context.senders:
            yield self.train(model, client, context, state, shared=shared, kept=kept.get(client, {}))
