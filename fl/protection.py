"""Protection: the hooks through which a defense changes a round. By default they change nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import isfunction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..audit.observer import Observer
from .laws.law import Law
from .message import Message
from .plan import Plan
from .task import Samples

State = Mapping[str, Any]
"""Public state of a protection (clip bound, sigma, control variates); broadcast with the model."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Public facts of one round.

    Args:
        senders: the rows' client numbers, canary clients last.
        public_loss: evaluates the mean loss ``(replicas,)`` of the model at the start of the round on public data.
        samples: the samples of a client, for that client's own hooks, or (None) the public ones, with the model at the
            start of the round. None where a hook is called without a federation.
    """

    plan: Plan
    round: int
    replicas: int
    senders: tuple[int, ...] = ()
    public_loss: Callable[[], Tensor] | None = None
    samples: Callable[[int | None], Samples] | None = None


class Protection:
    """No protection. A defense overrides the hooks that it uses.

    State goes in and out and generators are arguments, so that one object serves a thousand replicas. Replicas are the
    first dimension of every tensor. A hook draws all its randomness from the generator that it receives.
    """

    per_sample: bool = False
    """Whether ``local_step`` needs per-sample gradients. Without it the engine computes only their mean, which is
    faster, and does not call ``local_step``: a class that overrides ``local_step`` must set this.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise TypeError for a method whose name almost matches a hook: the engine would never call it."""
        super().__init_subclass__(**options)
        for name, member in vars(cls).items():
            if isfunction(member) and not name.startswith("_") and not hasattr(super(cls, cls), name):
                # A misspelled hook would leave its noise out without any error, and the audit would blame the defense.
                for hook in get_close_matches(name, _HOOKS, n=1, cutoff=_ALIKE):
                    raise TypeError(f"{cls.__name__}.{name} overrides nothing: did you mean {hook}? Else rename it")

    def initial_state(self, plan: Plan) -> State:
        """The state before the first round."""
        return {}

    def open_round(self, context: Context, state: State) -> State:
        """The state with which a round starts."""
        return state

    def participates(self, context: Context, state: State, rng: np.random.Generator) -> Tensor | None:
        """Mask ``(replicas, rows)`` of the clients that stay in the cohort (filters, drop-out), or None for all."""
        return None

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        """Per-sample gradients ``(R, n, d)`` of a lot, of which ``present (R, n)`` count -> direction ``(R, d)``."""
        count = present.sum(1, keepdim=True).clamp_min(1)
        return (gradients * present.unsqueeze(-1)).sum(1) / count

    def local_query(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        """What a client releases about a step's lot in addition to the direction, ``(R, k)``, with its noise.

        It is sent with the report as its side array ``query``, ``(R, rows, steps, k)``. The engine calls it only where
        it is overridden, after ``local_step`` on the same lot.
        """
        raise NotImplementedError

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        """Clients' updates -> clients' reports."""
        return updates

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        """Reports -> what arrives at the server (a shuffler, a secure sum)."""
        return reports

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        """What arrived -> the aggregate ``(R, d)``: the mean weighted by the clients' sizes (FedAvg).

        Where a shuffler has hidden the senders, every row has the same weight.
        """
        senders = received.senders
        sizes = [1.0] * received.present.shape[1] if senders is None else [context.plan.weight(k) for k in senders]
        weights = received.present * torch.tensor(sizes)
        # A round to which no client came has an aggregate of zero, not NaN.
        total = weights.sum(1, keepdim=True).clamp_min(1e-12)
        return torch.einsum("rk,rkd->rd", weights / total, received.values)

    def query(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> State:
        """The state with what the server releases about the reports in addition to their aggregate (a noised count)."""
        return state

    def broadcast(self, model: Tensor, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        """The server's model ``(R, d)`` -> the model that clients receive."""
        return model

    def close_round(self, aggregate: Tensor, context: Context, state: State) -> State:
        """The state after a round; it may depend only on what was released."""
        return state

    def numbers(self, plan: Plan, state: State) -> Mapping[str, float]:
        """Public numbers of the first replica by name, the same names in every round: a report may plot them."""
        return {}

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        """The law of what this observer sees of one client's contribution (or its samples') in one round.

        None where the defense publishes no noise law.
        """
        return None


_HOOKS = [name for name, member in vars(Protection).items() if isfunction(member) and not name.startswith("_")]
# Share of letters in common above which a method name counts as a misspelled hook (`difflib`).
_ALIKE = 0.8


def check_replica_rows(hook: str, rows: Tensor, like: Tensor) -> Tensor:
    """Return ``rows``, or raise ValueError where a hook did not return one row per replica."""
    # Torch would broadcast a single row to all replicas silently, and they would share their noise.
    if rows.shape != like.shape:
        raise ValueError(f"{hook} must return (replicas, d) = {tuple(like.shape)}, got {tuple(rows.shape)}")
    return rows
