"""Reruns one federation with the same random draws, so that the difference of two runs' releases can be computed.

Two runs differ only if the draws, the model or the data do. Here the draws are equal with and without a canary, every
client takes part with all its samples, and neither the server's model nor the gradients change. What remains between
two runs is what was changed on purpose, a planted row or the hooks' noise, in every round at the same model.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..audit.observer import SHUFFLED, Observer
from .algorithms.local_training import LocalState, Numbers
from .canary import Canary
from .engine import run_federation
from .models.network import Network
from .partitions.sampling import Full, Sampling
from .plan import Plan
from .protection import Protection
from .recorder import RoundEvent
from .streams import Streams
from .task import Task
from .training.local import Batch

HOOK_STREAMS = frozenset({"local noise", "local query", "report", "channel", "aggregate", "query", "broadcast"})
"""Streams from which hooks draw their noise. Participation (cohort, lot, participation) is drawn from others."""


@dataclass(frozen=True)
class ReplayedStreams(Streams):
    """Random streams that are the same with and without the canary, so that two runs share every draw.

    The world is left out of the streams' names.

    Another ``noise`` (a number >= 0) gives the hooks other noise and leaves all other draws alone.
    """

    noise: int = 0

    def generator(
        self, purpose: str, *, replicate: int = 0, world: int = 0, round: int = 0, client: int = 0, step: int = 0
    ) -> np.random.Generator:
        taken = self.noise if purpose in HOOK_STREAMS else 0
        return super().generator(purpose, replicate=replicate + taken, round=round, client=client, step=step)


@dataclass(frozen=True)
class DrawAll(Sampling):
    """A sampling rule that draws every item but publishes the numbers of the rule that it replaces.

    Hooks divide by the published rate.
    """

    rule: Sampling

    def draw(self, rng: np.random.Generator, replicas: int, n: int, turn: int = 0) -> Tensor:
        return Full().draw(rng, replicas, n)

    def rate(self, n: int) -> float:
        return self.rule.rate(n)

    def participations(self, rounds: int) -> int:
        return self.rule.participations(rounds)

    def most(self, n: int) -> int:
        return self.rule.most(n)


@dataclass(frozen=True, kw_only=True)
class FrozenModel:
    """A federated algorithm whose server model never changes, so that two runs differ only in what the audit changes on
    purpose.

    An update is ``scale`` times the sum of the steps' directions.

    ``local`` is the update so far, not weights: with fixed gradients, (w - g) - w would only round g to w's last digit.
    """

    scale: float
    local_steps: int

    @property
    def linear_scale(self) -> float | None:
        return self.scale

    def share(self, model: Tensor) -> LocalState:
        return {}

    def start(self, model: Tensor, shared: Numbers | None = None, kept: Numbers | None = None) -> LocalState:
        return {"sum": torch.zeros_like(model)}

    def step(self, local: Tensor, direction: Tensor, state: LocalState) -> tuple[Tensor, LocalState]:
        total = state["sum"] + self.scale * direction
        return total, {"sum": total}

    def update(self, model: Tensor, local: Tensor) -> Tensor:
        return local

    def keep(self, model: Tensor, local: Tensor, state: LocalState) -> LocalState:
        return {}

    def combine(self, model: Tensor, aggregate: Tensor) -> Tensor:
        return model

    def advance(self, shared: Numbers, aggregate: Tensor, rate: float) -> LocalState:
        return {}

    def aggregate_between(self, before: Tensor, after: Tensor) -> Tensor:
        return after - before

    def gradient(self, update: Tensor) -> Tensor:
        return update / (self.scale * self.local_steps)


@dataclass(frozen=True, kw_only=True)
class FixedGradients(Network):
    """A network whose gradients do not depend on the model, because its loss is linear in the parameters.

    The gradients are those at ``point (d,)``, times ``steepness``. A privacy claim holds for every loss, so it holds
    for this one.
    """

    point: Tensor = field(compare=False)
    steepness: float

    def sample_gradients(self, params: Tensor, images: Tensor, labels: Tensor, dropout: Tensor | None = None) -> Tensor:
        return self.steepness * super().sample_gradients(self._fixed(params), images, labels, dropout)

    def gradient(
        self, params: Tensor, images: Tensor, labels: Tensor, weights: Tensor, dropout: Tensor | None = None
    ) -> Tensor:
        return self.steepness * super().gradient(self._fixed(params), images, labels, weights, dropout)

    def _fixed(self, params: Tensor) -> Tensor:
        return self.point.expand(len(params), -1)


@dataclass(frozen=True, kw_only=True)
class FrozenFederation:
    """A federation whose model never changes, so that the difference of two runs' releases can be computed.

    Each run has ``rounds`` rounds.
    """

    task: Task
    plan: Plan
    rounds: int


def frozen_federation(task: Task, plan: Plan, *, rounds: int, steepness: float, seed: int = 0) -> FrozenFederation:
    """Build a federation like that of ``plan`` whose model never changes, with one additional weight on which the loss
    does not depend.

    It is limited to ``rounds`` rounds.

    Clients, sizes, published rates and local steps are unchanged. An optimiser that is not linear (Adam) is replaced
    by the sum of its steps: what it does with the directions is post-processing, on which no guarantee rests.

    Args:
        steepness: factor of every gradient; large, so that clipping takes effect.
    """
    task, algorithm = task.with_inert(max(1, task.network.inert)), plan.algorithm
    network = task.network
    fixed = FixedGradients(
        model=network.model,
        shape=network.shape,
        classes=network.classes,
        inert=network.inert,
        normalisation=network.normalisation,
        point=task.initial(Streams(seed)),
        steepness=steepness,
    )
    frozen = replace(
        plan,
        cohort=DrawAll(plan.cohort),
        lot=DrawAll(plan.lot),
        # Without a linear scale any factor serves: minus one, as for a plain gradient.
        algorithm=FrozenModel(scale=algorithm.linear_scale or -1.0, local_steps=algorithm.local_steps),
        layout=fixed.layout,
    )
    return FrozenFederation(
        task=replace(task, network=fixed, warm_start=None), plan=frozen, rounds=min(rounds, plan.rounds)
    )


@dataclass(kw_only=True)
class Recording:
    """A recorder that keeps what ``observer`` receives in one run, with one entry per round.

    ``releases``: ``(rows, d)`` in double precision: the reports where the observer sees them (behind a shuffler: before
    shuffling, in the senders' order), otherwise the aggregate as the only row. ``present``: ``(rows,)``; a client that
    has stopped is an absent row of zeros. ``senders``: None for an aggregate. ``states``: the numbers of the public
    state by name.
    """

    observer: Observer
    releases: list[Tensor] = field(default_factory=list)
    present: list[Tensor] = field(default_factory=list)
    senders: tuple[int, ...] | None = None
    states: list[dict[str, Tensor]] = field(default_factory=list)

    def watch(self, event: RoundEvent) -> None:
        """Record what the observer receives in a finished round."""
        self.states.append({name: value.clone() for name, value in _numbers("", event.state)})
        # Double precision: differences of two runs are tiny compared with the values.
        if self.observer.rank < SHUFFLED.rank:
            self.releases.append(event.aggregate.double())
            self.present.append(torch.ones(1, dtype=torch.bool))
            return
        self._keep(event.reports.values[0].double(), event.reports.present[0].clone(), event.reports.senders or ())

    def _keep(self, values: Tensor, present: Tensor, came: tuple[int, ...]) -> None:
        """Store a round's rows, one row for each client seen so far."""
        # A round has rows only for clients that took part, so earlier rounds get rows of zeros for newcomers.
        known = self.senders or ()
        self.senders = tuple(sorted({*known, *came}))
        self.releases = [_placed(rows, known, self.senders) for rows in self.releases]
        self.present = [_placed(rows, known, self.senders) for rows in self.present]
        self.releases.append(_placed(values, came, self.senders))
        self.present.append(_placed(present, came, self.senders))


def replay(
    federation: FrozenFederation,
    protection: Protection,
    observer: Observer,
    *,
    seed: int = 0,
    noise: int = 0,
    canary: Canary | None = None,
    world: int = 0,
) -> Recording:
    """Run a federation with a frozen model once, and return what the observer receives.

    Runs with one ``seed`` share every draw; ``noise`` changes only the hooks' noise.
    """
    recording = Recording(observer=observer)
    streams, batch = ReplayedStreams(seed, noise), Batch(world=world)
    run_federation(
        federation.task,
        federation.plan,
        protection,
        streams,
        batch=batch,
        canary=canary,
        recorders=[recording],
        stop_after=federation.rounds,
    )
    return recording


def _placed(rows: Tensor, came: tuple[int, ...], senders: tuple[int, ...]) -> Tensor:
    """``rows (len(came), ...)`` at the places of their senders; zero or false elsewhere."""
    if came == senders:
        return rows
    # Absent clients get zeros, so that rows of two runs can be subtracted one by one.
    placed = rows.new_zeros(len(senders), *rows.shape[1:])
    placed[[senders.index(sender) for sender in came]] = rows
    return placed


def _numbers(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """Every number of a nested state with its path; text is skipped."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for place, item in enumerate(value):
            yield from _numbers(f"{name}[{place}]", item)
    elif isinstance(value, Tensor | np.ndarray | Real):
        yield name, torch.as_tensor(value).double()
