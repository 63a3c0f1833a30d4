"""Protection: the seam between the engine and a defense. Five stations and two queries; by default they do nothing."""

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
"""Public state of a protection (clip bound, sigma, control variates): broadcast with the model."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Public facts of one round.

    Args:
        senders: the rows' client numbers, canary clients last.
        public_loss: evaluates the mean loss ``(replicas,)`` of the server's model, as the round starts, on public data.
        samples: the samples of a client, for that client's own stations, or (None) public ones, with the server's model
            as the round starts. None where a station is tried without a federation.
    """

    plan: Plan
    round: int
    replicas: int
    senders: tuple[int, ...] = ()
    public_loss: Callable[[], Tensor] | None = None
    samples: Callable[[int | None], Samples] | None = None


class Protection:
    """No protection. A defense overrides the stations that it uses.

    State goes in and out, generators are arguments, so that one object serves a thousand replicas; every tensor has the
    replicas first. A station draws all its randomness from the generator that it is handed.
    """

    per_sample: bool = False
    """Whether ``local_step`` needs per-sample gradients. Without it the engine takes their mean, which is faster, and
    does not ask: who overrides ``local_step`` must set this.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise TypeError for a method that is nearly called like a station: nobody would ask for its noise."""
        super().__init_subclass__(**options)
        for name, member in vars(cls).items():
            if isfunction(member) and not name.startswith("_") and not hasattr(super(cls, cls), name):
                for station in get_close_matches(name, _STATIONS, n=1, cutoff=_ALIKE):
                    raise TypeError(f"{cls.__name__}.{name} overrides nothing: did you mean {station}? Else rename it")

    def initial_state(self, plan: Plan) -> State:
        """State before the first round."""
        return {}

    def open_round(self, context: Context, state: State) -> State:
        """State with which a round starts."""
        return state

    def participates(self, context: Context, state: State, rng: np.random.Generator) -> Tensor | None:
        """Mask ``(replicas, rows)`` that thins the cohort further (filters, drop-out), or None."""
        return None

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        """Per-sample gradients ``(R, n, d)`` of a lot, ``present (R, n)`` -> direction ``(R, d)``."""
        count = present.sum(1, keepdim=True).clamp_min(1)
        return (gradients * present.unsqueeze(-1)).sum(1) / count

    def local_query(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        """What a client releases of a step's lot beside the direction, ``(R, k)``, noised here; it travels with the
        report as its side ``query``, ``(R, rows, steps, k)``. Asked only where it is overridden, after ``local_step``
        on the same lot.
        """
        raise NotImplementedError

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        """Updates -> the clients' reports."""
        return updates

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        """Reports -> what arrives (a shuffler, a secure sum)."""
        return reports

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        """What arrived -> the aggregate ``(R, d)``: the mean weighted by the clients' sizes (FedAvg).

        Where a shuffler has hidden the senders every row weighs the same.
        """
        senders = received.senders
        sizes = [1.0] * received.present.shape[1] if senders is None else [context.plan.weight(k) for k in senders]
        weights = received.present * torch.tensor(sizes)
        total = weights.sum(1, keepdim=True).clamp_min(1e-12)
        return torch.einsum("rk,rkd->rd", weights / total, received.values)

    def query(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> State:
        """State with what the server releases of the reports beside their aggregate (a noised count)."""
        return state

    def broadcast(self, model: Tensor, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        """The server's model ``(R, d)`` -> the model that clients receive."""
        return model

    def close_round(self, aggregate: Tensor, context: Context, state: State) -> State:
        """State after a round; it may use nothing but what was released."""
        return state

    def numbers(self, plan: Plan, state: State) -> Mapping[str, float]:
        """Public numbers of the first replica's round, by name, that a report may draw over the rounds: the same names
        in each.
        """
        return {}

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        """The law of what this observer sees of one client's (or its samples') contribution in one round; None: no
        noise law.
        """
        return None


_STATIONS = [name for name, member in vars(Protection).items() if isfunction(member) and not name.startswith("_")]
_ALIKE = 0.8
"""Share of letters in common from which on a name is taken for a slip of the pen (``difflib``)."""


def check_rows(station: str, rows: Tensor, like: Tensor) -> Tensor:
    """``rows``, or ValueError where a station did not return one row a replica: torch would broadcast it silently."""
    if rows.shape != like.shape:
        raise ValueError(f"{station} must return (replicas, d) = {tuple(like.shape)}, got {tuple(rows.shape)}")
    return rows
