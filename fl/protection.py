"""Defines the hooks (methods that the engine calls) through which a defense changes a round; by default a hook changes
nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from ..audit.observer import Observer
from .hooks import Hooks
from .laws import Law
from .message import Message
from .plan import Plan
from .task import Samples

State = Mapping[str, Any]
"""Public state of a protection (clip bound, sigma, control variates); broadcast with the model."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """The public facts of one round that the hooks of a defense (the methods that the engine calls) may use.

    Args:
        senders: the rows' client numbers, canary clients last.
        public_loss: evaluates the mean loss ``(replicas,)`` of the model at the start of the round on public data.
        samples: the samples of a client, for that client's own hooks, or (None) the public ones, with the model at the
            start of the round. None where a hook is called without a federation.
        owners: ``(R, n)``, the owner of each sample of the lot, in ``local_step`` and ``local_query``; the samples of a
            canary have the owner -1. None in other hooks, and where the owners are not known.
        draws: in ``aggregate``, gives a generator by the number of a draw >= 0, the same one in each round of a run,
            for noise that is correlated over rounds: a round draws again what earlier rounds added. None elsewhere. The
            hook's own generator is that of the number of its round.
    """

    plan: Plan
    round: int
    replicas: int
    senders: tuple[int, ...] = ()
    public_loss: Callable[[], Tensor] | None = None
    samples: Callable[[int | None], Samples] | None = None
    owners: Tensor | None = None
    draws: Callable[[int], np.random.Generator] | None = None


Sums = Literal["mean", "unweighted mean", "sum"] | None
"""What the hook ``aggregate`` needs of the reports: their mean weighted by the clients' sizes, their mean with equal
weights, their sum, or (None) all of them.
"""


class BlockSum(Protocol):
    """The interface of a sum over the reports of one cohort in one run, to which blocks of clients are added in
    order.
    """

    def add(self, updates: Message, context: Context) -> Message:
        """Add a block of clients, whose senders ``context`` names; return their reports."""
        ...

    def received(self) -> Message:
        """Return the input of the hook ``aggregate``; call this after the reports of all clients were added."""
        ...


class Protection(Hooks):
    """The base class of defenses, which protects nothing; a defense overrides the hooks (methods that the engine calls)
    that it needs.

    State goes in and out and generators are arguments, so that one object serves a thousand replicas. Replicas are the
    first dimension of every tensor. A hook draws all its randomness from the generator that it receives.
    """

    per_sample: bool = False
    """Whether ``local_step`` needs per-sample gradients. Without it the engine computes only their mean, which is
    faster, and does not call ``local_step``: a class that overrides ``local_step`` must set this.
    """
    sums: ClassVar[Sums] = "mean"
    """What ``aggregate`` needs of the reports, where ``report`` treats each row alone and draws row after row, and
    ``channel`` changes nothing but the order of the rows: one of ``Sums``. The engine may then handle a large cohort in
    blocks: ``report`` gets a block of clients at a time, ``channel`` is not called, and ``aggregate`` gets one row
    without a sender, whose arrays are those of all reports, such as ``(1, 1, clients)``. A class that overrides
    ``local_query``, ``report``, ``channel``, ``aggregate``, ``query`` or a method that hooks call gets all reports at
    once unless it states this again; None: always.
    """

    def initial_state(self, plan: Plan) -> State:
        """Return the defense's public state before the first round."""
        return {}

    def open_round(self, context: Context, state: State) -> State:
        """Return the defense's public state at the start of a round."""
        return state

    def participates(self, context: Context, state: State, rng: np.random.Generator) -> Tensor | None:
        """Return which clients stay in the round's cohort, as a mask with one entry per replica (independent run) and
        client; None if all stay.

        Privacy filters and drop-out use this hook.
        """
        return None

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        """Turn a client's per-sample gradients into the direction of one local step, shape ``(R, d)`` with one row per
        replica (independent run).

        ``gradients``: ``(R, n, d)`` of the sampled lot, of which those in ``present (R, n)`` count.
        """
        count = present.sum(1, keepdim=True).clamp_min(1)
        return (gradients * present.unsqueeze(-1)).sum(1) / count

    def sample_weights(self, norms: Tensor, client: int, context: Context, state: State) -> Tensor | None:
        """Return the weight of each sample's gradient in the sum that ``local_step`` forms, from the norms of the
        sample's gradients with respect to the parameters. The default None means that the sum needs the gradients
        themselves.

        ``norms (m, parameters)``, some samples of one replica; the weights are ``(m,)`` or ``(m, parameters)``. A
        defense that returns weights also overrides ``noised_sum``. The engine then trains large models without holding
        the gradients of a lot's samples together. A class that overrides ``local_step`` overrides this hook too.
        """
        return None

    def noised_sum(
        self, total: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        """Turn the weighted sum of a lot's gradients, ``(R, d)``, into the direction of a local step."""
        raise NotImplementedError

    def local_query(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        """Return what a client releases about a local step, with noise, in addition to the step's direction.

        The result has shape ``(R, k)``.

        It is sent with the report as its side array ``query``, ``(R, rows, steps, k)``. The engine calls it only where
        it is overridden, after ``local_step`` on the same lot.
        """
        raise NotImplementedError

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        """Turn the clients' updates into the reports that they send."""
        return updates

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        """Turn the clients' reports into what arrives at the server, for example through a shuffler or secure
        aggregation.
        """
        return reports

    def block_sum(self, present: Tensor, context: Context, state: State, rng: np.random.Generator) -> BlockSum | None:
        """Return an object that adds up the reports of a cohort in blocks. This object replaces ``report`` and
        ``channel`` if no recorder needs the reports of a single run. The default None means that ``sums`` describes the
        sum.

        ``present (R, rows)``: the whole cohort. ``rng`` is the generator of ``report``, with the same draws: what it
        adds up must equal what ``channel`` returns of all reports. A class below that overrides ``local_query``,
        ``report`` or ``channel`` gets all reports at once unless it defines this hook again.
        """
        return None

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        """Turn what arrived at the server into the aggregate, shape ``(R, d)`` with one row per replica (independent
        run).

        By default it is the mean weighted by the clients' sizes (FedAvg), in single precision whatever the numbers of
        the reports are.

        Where a shuffler has hidden the senders, every row has the same weight.

        ``rng`` is the generator ``context.draws(context.round)``.
        """
        senders = received.senders
        sizes = [1.0] * received.present.shape[1] if senders is None else [context.plan.weight(k) for k in senders]
        weights = received.present * torch.tensor(sizes)
        # A round to which no client came has an aggregate of zero, not NaN.
        total = weights.sum(1, keepdim=True).clamp_min(1e-12)
        return torch.einsum("rk,rkd->rd", weights / total, received.values.to(weights.dtype))

    def query(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> State:
        """Return the defense's public state after the server has released something about the reports in addition to
        their aggregate.

        A noised count is an example.
        """
        return state

    def broadcast(self, model: Tensor, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        """Turn the server's model into the model that clients receive; both have shape ``(R, d)``, one row per replica
        (independent run).
        """
        return model

    def close_round(self, aggregate: Tensor, context: Context, state: State) -> State:
        """Return the defense's public state after a round; the state may depend only on what was released."""
        return state

    def numbers(self, plan: Plan, state: State) -> Mapping[str, float]:
        """Return named numbers of the defense's public state in the first replica (independent run), to be plotted over
        the rounds.

        The names are the same in every round.
        """
        return {}

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        """Return the law (distribution) of what an observer sees of one client's contribution in one round.

        The contribution is that of the client or of its samples.

        None where the defense publishes no noise law.
        """
        return None
