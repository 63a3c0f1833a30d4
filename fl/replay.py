"""Reruns one federation with the same random draws, so that the difference of two runs' releases can be computed.

Two runs differ only if the draws, the model or the data do. Here the draws are equal with and without a canary, every
client takes part with all its samples, and neither the server's model nor the gradients change. What remains between
two runs is what was changed on purpose, a planted row or the hooks' noise, in every round at the same model. Only where
a defense changes the model before it is broadcast does the server's model move: clients' gradients stay the same, and
what is broadcast shows what the hook does with the aggregates.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..audit.observer import FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer
from .algorithms import Algorithm, LocalState, Numbers
from .canary import Canary
from .channels import (
    FINAL,
    SIDE,
    Channels,
    array_channels,
    changes_broadcast,
    of_replica,
    received_channels,
    state_channels,
    state_numbers,
)
from .engine import run_federation
from .hooks import Recorder
from .models.gradients import Weigh
from .models.network import Network
from .plan import Plan
from .protection import Context, Protection, State
from .recorder import RoundEvent
from .sampling import Sampling
from .streams import Streams, uniform
from .task import Task
from .training.executors.sequential import Sequential
from .training.local import Batch, LocalResult, LocalStep, Lot, sums_by_norm

HOOK_STREAMS = frozenset({"local noise", "local query", "report", "channel", "aggregate", "query", "broadcast"})
"""Streams from which hooks draw their noise. Participation (cohort, lot, participation) is drawn from others."""

Stream = tuple[str, int, int, int]
"""Purpose, round, client and step of a stream."""
Consumed = dict[Stream, tuple[int, ...]]
"""How far each of the hooks' streams was used in a round."""


@dataclass(frozen=True)
class ReplayedStreams(Streams):
    """Random streams that are the same with and without the canary, so that two runs share every draw.

    The arm is left out of the streams' names.

    Another ``noise`` (a number >= 0) gives the hooks other noise and leaves all other draws alone.

    ``watched``: whether ``consumed`` is asked how far the hooks' streams were used.
    """

    noise: int = 0
    watched: bool = False
    _given: dict[Stream, np.random.Generator] = field(default_factory=dict, init=False, repr=False, compare=False)

    def generator(
        self, purpose: str, *, replicate: int = 0, arm: int = 0, round: int = 0, client: int = 0, step: int = 0
    ) -> np.random.Generator:
        taken = self.noise if purpose in HOOK_STREAMS else 0
        made = super().generator(purpose, replicate=replicate + taken, round=round, client=client, step=step)
        if self.watched and purpose in HOOK_STREAMS:
            self._given[purpose, round, client, step] = made
        return made

    def consumed(self) -> Consumed:
        """Return how much of the random stream of each hook of the defense was used since the last call."""
        found = {name: _position(rng) for name, rng in self._given.items()}
        self._given.clear()
        return found


def _position(rng: np.random.Generator) -> tuple[int, ...]:
    """How much of a generator was drawn: its counter, and what is left of its last block."""
    state: Any = rng.bit_generator.state
    return (*map(int, state["state"]["counter"]), int(state["buffer_pos"]), int(state["has_uint32"]))


def unequal_stream(one: Sequence[Consumed], other: Sequence[Consumed], number: int) -> str:
    """Return a description of a random stream of which two runs drew different amounts in a round up to ``number``;
    empty if there is no such stream.

    Such runs share no draws: a hook draws as many numbers as its data have rows, say, and all later draws differ.
    """
    for before, after in zip(one[: number + 1], other[: number + 1], strict=False):
        for name, position in before.items():
            if after.get(name, position) != position:
                purpose, turn, client, step = name
                where = f" of client {client}, step {step}" if purpose in ("local noise", "local query") else ""
                return f"{purpose}{where} in round {turn}"
    return ""


@dataclass(frozen=True)
class DrawAll(Sampling):
    """A sampling rule that draws every item, or the first ``count``, but publishes the rate and size of the rule that
    it replaces.

    Hooks divide by the published rate.
    """

    rule: Sampling
    count: float = math.inf

    def draw(self, rng: np.random.Generator, replicas: int, n: int, turn: int = 0) -> Tensor:
        return (torch.arange(n) < self.count).repeat(replicas, 1)

    def rate(self, n: int) -> float:
        return self.rule.rate(n)

    def participations(self, rounds: int) -> int:
        return self.rule.participations(rounds)

    def most(self, n: int) -> int:
        return self.rule.most(n)


@dataclass(frozen=True)
class DrawHalf(DrawAll):
    """A sampling rule that draws different items in each round but publishes the numbers of the rule that it
    replaces.
    """

    def draw(self, rng: np.random.Generator, replicas: int, n: int, turn: int = 0) -> Tensor:
        return uniform(rng, (replicas, n)) < 1 / 2


@dataclass(frozen=True, kw_only=True)
class FrozenModel(Algorithm):
    """A federated algorithm whose server model never changes, so that two runs differ only in what the audit changes on
    purpose.

    An update is ``scale`` times the sum of the steps' directions.

    ``local`` is the update so far, not weights: with fixed gradients, (w - g) - w would only round g to w's last digit.

    ``server``: the algorithm whose server combines aggregates with the model; None: the model stays as it is.
    """

    scale: float
    server: Algorithm | None = None

    @property
    def linear_scale(self) -> float | None:
        return self.scale

    def start(self, model: Tensor, shared: Numbers | None = None, kept: Numbers | None = None) -> LocalState:
        return {"sum": torch.zeros_like(model)}

    def step(self, local: Tensor, direction: Tensor, state: LocalState) -> tuple[Tensor, LocalState]:
        total = state["sum"] + self.scale * direction
        return total, {"sum": total}

    def update(self, model: Tensor, local: Tensor) -> Tensor:
        return local

    def combine(self, model: Tensor, aggregate: Tensor) -> Tensor:
        return model if self.server is None else self.server.combine(model, aggregate)

    def aggregate_between(self, before: Tensor, after: Tensor) -> Tensor:
        return after - before

    def gradient(self, update: Tensor) -> Tensor:
        return update / (self.scale * self.local_steps)


_LOTS, _SMALL = 256, 2**16
"""Lots whose gradients are kept, at most, and numbers of each."""


@dataclass(frozen=True, kw_only=True)
class FixedGradients(Network):
    """A network whose gradients do not depend on the model, because its loss is linear in the parameters.

    The gradients are those at ``point (d,)``, times ``steepness``. A privacy claim holds for every loss, so it holds
    for this one.
    """

    point: Tensor = field(compare=False)
    steepness: float
    known: dict[tuple[bytes, bytes], LocalResult] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Clients' updates by their samples: see ``FixedTrainer``."""
    rows: dict[tuple[bytes, bytes], Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Gradients ``(1, n, d)`` of samples, of some lots."""

    def sample_gradients(self, params: Tensor, images: Tensor, labels: Tensor, dropout: Tensor | None = None) -> Tensor:
        if not self.steepness:
            return params.new_zeros(*labels.shape[:2], params.shape[1])
        if dropout is None and (len(images) == 1 or (_alike(images) and _alike(labels))):
            # Equal samples at one point: the replicas of a batch have the same gradients, and later runs too.
            samples = images[:1].cpu().numpy().tobytes(), labels[:1].cpu().numpy().tobytes()
            if (rows := self.rows.get(samples)) is None:
                rows = self.steepness * super().sample_gradients(self._fixed(params[:1]), images[:1], labels[:1])
                if len(self.rows) < _LOTS and rows.numel() <= _SMALL:
                    self.rows[samples] = rows
            # A hook may change in place what it gets.
            return rows.clone().expand(len(params), -1, -1)
        return self.steepness * super().sample_gradients(self._fixed(params), images, labels, dropout)

    def gradient(
        self, params: Tensor, images: Tensor, labels: Tensor, weights: Tensor, dropout: Tensor | None = None
    ) -> Tensor:
        if not self.steepness:
            return torch.zeros_like(params)
        if dropout is None and _alike(images) and _alike(labels) and _alike(weights):
            one = self.steepness * super().gradient(self._fixed(params[:1]), images[:1], labels[:1], weights[:1])
            return one.expand(len(params), -1)
        return self.steepness * super().gradient(self._fixed(params), images, labels, weights, dropout)

    def clipped_gradients(
        self, params: Tensor, images: Tensor, labels: Tensor, weigh: Weigh, dropout: Tensor | None = None
    ) -> Tensor:
        def steeper(norms: Tensor) -> Tensor:
            return weigh(self.steepness * norms)

        return self.steepness * super().clipped_gradients(self.point, images, labels, steeper, dropout)

    def _fixed(self, params: Tensor) -> Tensor:
        return self.point.expand(len(params), -1)


@dataclass(frozen=True, kw_only=True)
class FixedTrainer(Sequential):
    """A trainer that computes the update of all samples of a client only once, for all rounds and runs of a frozen
    federation. The update is the same in all of them, because it does not depend on the model.
    """

    def train(
        self,
        model: Tensor,
        client: int,
        context: Context,
        state: State,
        *,
        shared: Numbers | None = None,
        kept: Numbers | None = None,
    ) -> LocalResult:
        network, task = self.task.network, self.task
        if not isinstance(network, FixedGradients) or not self._repeats(network, client, context.plan.lot):
            return super().train(model, client, context, state, shared=shared, kept=kept)
        part = task.parts[client]
        samples = (task.images[part].numpy().tobytes(), task.labels[part].numpy().tobytes())
        if samples not in network.known:
            result = super().train(model, client, context, state)
            network.known[samples] = LocalResult(update=result.update[:1], lots=[lot[:1] for lot in result.lots])
        one, size = network.known[samples], (len(model), -1)
        return LocalResult(update=one.update.expand(size), lots=[lot.expand(size) for lot in one.lots])

    def step(self, local: Tensor, lot: Lot, context: Context, state: State) -> LocalStep:
        network = self.task.network
        flat = isinstance(network, FixedGradients) and not network.steepness
        if not flat or sums_by_norm(self.protection, network):
            return super().step(local, lot, context, state)
        # All gradients are zero, and no sample is read.
        if self.takes_mean(lot):
            return LocalStep(direction=torch.zeros_like(local), drawn=lot.mask)
        return self.protected(local.new_zeros(*lot.chosen.shape, local.shape[1]), lot, context, state)

    def _repeats(self, network: Network, client: int, lot: Sampling) -> bool:
        """Whether the client's update is the same in every round: without hooks in its steps, draws or a canary."""
        return (
            type(lot) is DrawAll
            and math.isinf(lot.count)
            and self.is_plain
            and not network.dropout_rate
            and client < self.task.clients
            and not (self.canary is not None and self._plants(client))
        )


def _alike(cases: Tensor) -> bool:
    """Whether all replicas of a batch of several have the same samples."""
    return len(cases) > 1 and torch.equal(cases, cases[:1].expand_as(cases))


@dataclass(frozen=True, kw_only=True)
class FrozenFederation:
    """A federation whose model never changes, so that the difference of two runs' releases can be computed.

    Each run has ``rounds`` rounds.
    """

    task: Task
    plan: Plan
    rounds: int

    def run(
        self,
        protection: Protection,
        streams: Streams,
        recorders: Sequence[Recorder[RoundEvent]],
        *,
        canary: Canary | None = None,
        arm: int = 0,
        rounds: int | None = None,
        replicas: int = 1,
    ) -> Tensor:
        """Run the federation in several replicas at once, and return its published final models."""
        return run_federation(
            self.task,
            self.plan,
            protection,
            streams,
            batch=Batch(replicas=replicas, arm=arm),
            canary=canary,
            recorders=recorders,
            stop_after=rounds or self.rounds,
            executor=FixedTrainer,
        )


def frozen_federation(
    task: Task, plan: Plan, *, rounds: int, steepness: float, seed: int = 0, moving: bool = False, sampled: bool = False
) -> FrozenFederation:
    """Build a federation like the one of ``plan``, but with a model that never changes and that has one additional
    weight on which the loss does not depend.

    It is limited to ``rounds`` rounds.

    Clients, sizes, published rates and local steps are unchanged. An optimiser that is not linear (Adam) is replaced
    by the sum of its steps: what it does with the directions is post-processing, on which no guarantee rests.

    Args:
        steepness: factor of every gradient; large, so that clipping takes effect.
        sampled: whether cohorts and lots are drawn by the plan's rules; else every client takes part with all samples.
        moving: whether the server's model moves by the aggregates, for a defense that changes what is broadcast.
    """
    task, algorithm = task.with_inert(max(1, task.network.inert)), plan.algorithm
    network = task.network
    fixed = FixedGradients(
        model=network.model,
        shape=network.shape,
        classes=network.classes,
        inert=network.inert,
        normalisation=network.normalisation,
        options=network.options,
        task=network.task,
        point=task.initial(Streams(seed)),
        steepness=steepness,
    ).sharing(network)
    frozen = replace(
        plan,
        cohort=plan.cohort if sampled else DrawAll(plan.cohort),
        lot=plan.lot if sampled else DrawAll(plan.lot),
        # Without a linear scale any factor serves: minus one, as for a plain gradient.
        algorithm=FrozenModel(
            scale=algorithm.linear_scale or -1.0,
            local_steps=algorithm.local_steps,
            server=algorithm if moving else None,
        ),
        layout=fixed.layout,
    )
    return FrozenFederation(
        task=replace(task, network=fixed, warm_start=None), plan=frozen, rounds=min(rounds, plan.rounds)
    )


@dataclass(kw_only=True)
class Recording:
    """What ``observer`` receives in one replica (independent run), with one entry per round.

    ``releases``: ``(rows, d)`` in double precision: the reports where the observer sees them (behind a shuffler: before
    shuffling, in the senders' order), otherwise the aggregate as the only row. ``present``: ``(rows,)``; a client that
    has stopped is an absent row of zeros. ``senders``: None for an aggregate. ``took_part``: the clients of each round,
    whether the observer sees them or not. ``states``: the numbers of the public
    state by name. ``channels``: everything that the observer receives, by name; ``ending``: what it receives after the
    last round; ``missing``: what of it cannot be compared, with the reason. ``consumed``: how far the hooks' streams
    were used.
    """

    observer: Observer
    protection: Protection
    plan: Plan
    replica: int = 0
    releases: list[Tensor] = field(default_factory=list)
    present: list[Tensor] = field(default_factory=list)
    senders: tuple[int, ...] | None = None
    took_part: list[frozenset[int]] = field(default_factory=list)
    states: list[dict[str, Tensor]] = field(default_factory=list)
    channels: list[Channels] = field(default_factory=list)
    ending: Channels = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    consumed: list[Consumed] = field(default_factory=list)
    _total: Tensor | None = None

    def record(self, event: RoundEvent, state: Channels, missing: dict[str, str]) -> None:
        """Record a finished round, given the channels of the public state; ``missing``: the parts of the state that are
        not compared.
        """
        replica = self.replica
        self.states.append(state_numbers(of_replica(state, replica, len(event.aggregate))))
        found = received_channels(event, state, self.observer, self.protection, self.plan, missing, replica)
        self.channels.append(found)
        self.missing |= missing if self.observer.rank >= GLOBAL_MODELS.rank else {}
        if self.observer.rank == FINAL_MODEL.rank:
            own = event.aggregate[replica]
            self._total = own if self._total is None else self._total + own
        reports = event.reports
        there = zip(reports.senders or (), reports.present[replica].tolist(), strict=False)
        self.took_part.append(frozenset(sender for sender, present in there if present))
        # Double precision: differences of two runs are tiny compared with the values.
        if self.observer.rank < SHUFFLED.rank:
            self.releases.append(event.aggregate[replica : replica + 1].double())
            self.present.append(torch.ones(1, dtype=torch.bool))
            return
        self._keep(reports.values[replica].double(), reports.present[replica].clone(), reports.senders or ())

    def finish(self, final: Tensor) -> None:
        """Record what the observer receives after the last round: the final model ``(replicas, d)``. If the model is
        frozen, record the sum of the aggregates instead, which an observer of the final model could compute.
        """
        if changes_broadcast(self.protection):
            self.ending = array_channels(FINAL, final[self.replica])
        elif self._total is not None:
            self.ending = array_channels("sum of the aggregates", self._total)

    def _keep(self, values: Tensor, present: Tensor, came: tuple[int, ...]) -> None:
        """Store a round's rows, one row for each client seen so far."""
        # A round has rows only for clients that took part, so earlier rounds get rows of zeros for newcomers.
        known = self.senders or ()
        self.senders = tuple(sorted({*known, *came}))
        self.releases = [_placed(rows, known, self.senders) for rows in self.releases]
        self.present = [_placed(rows, known, self.senders) for rows in self.present]
        self.releases.append(_placed(values, came, self.senders))
        self.present.append(_placed(present, came, self.senders))


def replay_many(
    federation: FrozenFederation,
    protection: Protection,
    observer: Observer,
    *,
    seed: int = 0,
    noise: int = 0,
    canary: Canary | None = None,
    arm: int = 0,
    rounds: int | None = None,
    replicas: int = 1,
) -> list[Recording]:
    """Run a federation with a frozen model in several replicas at once, which differ in their noise, and return what
    the observer receives in each.

    Runs with one ``seed`` share every draw; ``noise`` changes only the hooks' noise. A run of fewer ``rounds`` is the
    beginning of a run of more. Replicas of equal number share their draws in calls that differ in the canary. Where
    cohorts or lots are sampled, they differ too.
    """
    recordings = [
        Recording(observer=observer, protection=protection, plan=federation.plan, replica=number)
        for number in range(replicas)
    ]
    streams = ReplayedStreams(seed, noise, watched=True)
    watching = [_Together(recordings, streams)]
    final = federation.run(protection, streams, watching, canary=canary, arm=arm, rounds=rounds, replicas=replicas)
    for recording in recordings:
        recording.finish(final)
    return recordings


@dataclass(frozen=True)
class _Together:
    """A recorder that passes a round on to several, with the channels of the public state, which it computes once."""

    recordings: list[Recording]
    streams: ReplayedStreams

    def watch(self, event: RoundEvent) -> None:
        state, missing = state_channels(event.state)
        consumed = self.streams.consumed()
        for recording in self.recordings:
            recording.consumed.append(consumed)
            recording.record(event, state, dict(missing))


@dataclass(kw_only=True)
class ManyRuns:
    """A recorder of many replicas (independent runs) at once, with one entry per round.

    ``releases`` of the first ``kept`` rounds: ``(R, rows, d)`` in double precision: the reports where ``observer`` sees
    them, otherwise the aggregate as the only row. ``present``: ``(R, rows)``; ``senders``: None for an aggregate.
    ``aggregates`` of the same rounds: ``(R, d)``. ``states``: the numbers of the public state by name, ``(R, ...)``
    where each replica has its own. ``side``: arrays sent with reports that the observer receives, by name.
    """

    observer: Observer
    replicas: int
    kept: int = 2
    releases: list[Tensor] = field(default_factory=list)
    present: list[Tensor] = field(default_factory=list)
    senders: list[tuple[int, ...] | None] = field(default_factory=list)
    aggregates: list[Tensor] = field(default_factory=list)
    states: list[dict[str, Tensor]] = field(default_factory=list)
    side: list[dict[str, Tensor]] = field(default_factory=list)

    def watch(self, event: RoundEvent) -> None:
        """Record a finished round."""
        if len(self.releases) < self.kept:  # All rounds would need much memory.
            aggregate, reports = event.aggregate.double(), event.reports
            sees = self.observer.rank >= SHUFFLED.rank
            self.aggregates.append(aggregate)
            self.releases.append(reports.values.double() if sees else aggregate.unsqueeze(1))
            self.present.append(reports.present if sees else torch.ones(len(aggregate), 1, dtype=torch.bool))
            self.senders.append((reports.senders or ()) if sees else None)
        self.states.append(state_numbers(state_channels(event.state)[0]))
        self.side.append(side_arrays(event, self.observer))

    def side_array(self, name: str) -> Tensor | None:
        """Return an array that is sent with reports, over all rounds that have it, ``(R, numbers)``; None if no round
        has it.
        """
        found = [array.reshape(self.replicas, -1) for one in self.side if (array := one.get(name)) is not None]
        return torch.cat(found, dim=1) if found else None


def side_arrays(event: RoundEvent, observer: Observer) -> dict[str, Tensor]:
    """Return the arrays that clients send with their reports, ``(R, rows, ...)`` in double precision, keyed by the
    names of their channels. The arrays are zero for absent clients; an observer that does not receive reports gets
    none.
    """
    found = dict[str, Tensor]()
    for name, array in event.reports.side.items():
        if observer.rank >= UPLOADS.rank and name not in event.reports.unsent:
            absent = ~event.reports.present.reshape(*event.reports.present.shape, *[1] * (array.ndim - 2))
            found[f"{SIDE}{name}"] = array.double().masked_fill(absent, 0)
    return found


def _placed(rows: Tensor, came: tuple[int, ...], senders: tuple[int, ...]) -> Tensor:
    """``rows (len(came), ...)`` at the places of their senders; zero or false elsewhere."""
    if came == senders:
        return rows
    # Absent clients get zeros, so that rows of two runs can be subtracted one by one.
    placed = rows.new_zeros(len(senders), *rows.shape[1:])
    placed[[senders.index(sender) for sender in came]] = rows
    return placed
