"""Run the hooks of a defense on given rows, round by round, with cohorts and lots as the plan samples them.

No model is trained: rows of clients and of samples are given, so that hundreds of runs cost no more than their noise.
Runs with equal streams share every draw, and differ only in the unit, in the data or in the hooks' noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Claim, Unit
from ...audit.observer import AGGREGATE, SHUFFLED
from ...fl.channels import changes_broadcast, state_channels, state_numbers
from ...fl.hooks import overrides
from ...fl.laws.law import GaussianLaw
from ...fl.message import Message, clear_absent
from ...fl.partitions.sampling import lot_indices
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.replay import Consumed, ReplayedStreams
from ...fl.task import Task
from ..canaries import JOINT
from .surroundings import Surroundings, draw_surroundings

ABSENT, ZERO, PRESENT, OPPOSITE = "absent", "zero", "present", "opposite"
"""What a run holds in the unit's place: nothing, a row of zeros, the unit's row, or its opposite."""
_FEW_SAMPLES = 2
"""Samples of a client that does not hold the unit."""


class CannotRun(ValueError):
    """A defense's hooks cannot be run on given rows; the message is the reason."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HookRun:
    """What the hooks gave in one run of each replica, one entry per round.

    Args:
        cohort: ``(R, clients)``, who took part, as the plan and the hook ``participates`` drew it.
        updates, reports, received: the messages before and after the hooks ``report`` and ``channel``.
        aggregates: ``(R, d)``.
        states: the public states after the rounds.
        first_state: whether the round's public state is that of the first round, for which a law is published.
        consumed: how far the hooks' streams were used.
    """

    cohort: Sequence[Tensor]
    updates: Sequence[Message]
    reports: Sequence[Message]
    received: Sequence[Message]
    aggregates: Sequence[Tensor]
    states: Sequence[State]
    first_state: Sequence[bool]
    consumed: Sequence[Consumed]

    def releases(self, claim: Claim, holders: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the claim's observer receives of the holder, ``(R, T, d)`` in double precision, and whether
        anything was sent, ``(R, T)``: the holder's report where the observer sees reports, else the aggregate.
        """
        if claim.observer.rank < SHUFFLED.rank:
            values = torch.stack(list(self.aggregates), dim=1).double()
            return values, torch.ones(values.shape[:2], dtype=torch.bool)
        found, sent = list[Tensor](), list[Tensor]()
        replicas = torch.arange(len(holders))
        for message in self.reports:
            if message.senders is None or set(holders.tolist()) - {*message.senders}:
                raise CannotRun("the defense's reports name no senders")
            rows = torch.tensor([message.senders.index(one) for one in holders.tolist()])
            found.append(message.values[replicas, rows].double())
            sent.append(message.present[replicas, rows])
        return torch.stack(found, dim=1), torch.stack(sent, dim=1)

    def rows(self, claim: Claim, clients: int) -> Tensor:
        """Return what the claim's observer receives, ``(R, T, clients, d)`` in double precision, with zeros for clients
        that sent nothing; of a sum ``(R, T, 1, d)``.
        """
        if claim.observer.rank < SHUFFLED.rank:
            return torch.stack(list(self.aggregates), dim=1).double().unsqueeze(2)
        found = list[Tensor]()
        for message in self.reports:
            if message.senders is None or set(range(clients)) - {*message.senders}:
                raise CannotRun("the defense's reports name no senders")
            order = torch.tensor([message.senders.index(one) for one in range(clients)])
            found.append(message.values[:, order].double() * message.present[:, order].unsqueeze(-1))
        return torch.stack(found, dim=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class HookSetup:
    """A federation whose hooks are run: ``task`` gives the initial model and the samples that hooks may ask for."""

    task: Task
    plan: Plan
    protection: Protection
    claim: Claim
    seed: int

    @property
    def length(self) -> float:
        """The clip norm that the law or the claim publishes; 1 where neither does."""
        law = self.protection.law(self.claim.observer, self.plan, 0)
        published = law.clip_norm if isinstance(law, GaussianLaw) else self.claim.parameters.get("clip_norm", 1.0)
        return float(published) if isinstance(published, int | float) and published > 0 else 1.0

    def surroundings(self, holders: Sequence[int], *, rounds: int, runs: int, further: int = 0) -> Surroundings:
        """Return drawn surroundings of so many runs; another number ``further`` gives others."""
        return draw_surroundings(
            holders=list(holders),
            clients=self.plan.clients,
            dim=self.plan.layout.dim,
            rounds=rounds,
            replicas=runs,
            clip_norm=self.length,
            seed=self.seed + further,
        )

    def why_not(self) -> str:
        """Return why the hooks cannot be run on given rows; empty if they can."""
        unit = self.claim.unit
        if unit not in (Unit.SAMPLE, Unit.CLIENT, Unit.REPORT):
            return f"no row of one {unit} can be given to the hooks"
        if self.claim.part != JOINT:
            return f"the claim is about {self.claim.part} alone"
        if overrides(self.protection, "local_query"):
            return "clients answer queries about their lots, which given rows do not have"
        if unit is not Unit.SAMPLE and self.protection.per_sample:
            return "clients protect their samples one by one, which given rows of clients do not have"
        if self.claim.observer.rank < AGGREGATE.rank and changes_broadcast(self.protection):
            return "noise may be added to the broadcast model"
        return ""

    def run(
        self, around: Surroundings, arm: str, *, noise: int = 0, data: bool = True, garbage: float = 0.0
    ) -> HookRun:
        """Run all replicas once.

        Args:
            arm: what is in the unit's place.
            noise: another number gives the hooks other noise.
            data: whether all others hold their rows, or rows of zeros.
            garbage: length of the rows of samples that are in no lot, which must not matter.
        """
        plan, protection, replicas = self.plan, self.protection, around.replicas
        around = around if data else replace(around, neighbours=None)
        streams = ReplayedStreams(self.seed, noise, watched=True)
        model = self.task.initial(streams).expand(replicas, -1).clone()
        state, first = protection.initial_state(plan), None
        others = around.others if data else torch.zeros_like(around.others)
        found: dict[str, list[Any]] = {name: [] for name in HookRun.__dataclass_fields__}
        for turn in range(around.rounds):
            draws = partial(streams.generator, round=turn)
            context = Context(
                plan=plan,
                round=turn,
                replicas=replicas,
                senders=tuple(range(plan.clients)),
                public_loss=partial(self.task.public_loss, model),
                samples=partial(self.task.samples, model),
            )
            state = protection.open_round(context, state)
            numbers = state_numbers(state_channels(state)[0])
            first = numbers if first is None else first
            found["first_state"].append(_equal(first, numbers))
            present = self._cohort(context, state, streams)
            protection.broadcast(model, context, state, draws("broadcast"))
            updates = self._updates(around, arm, others, present, context, state, streams, garbage)
            reports = protection.report(updates, context, state, draws("report"))
            received = protection.channel(reports, context, state, draws("channel"))
            aggregate = protection.aggregate(received, context, state, draws("aggregate"))
            for name, value in (
                ("cohort", present),
                ("updates", updates),
                ("reports", reports),
                ("received", received),
                ("aggregates", aggregate),
            ):
                found[name].append(value)
            state = protection.query(received, context, state, draws("query"))
            state = protection.close_round(aggregate, context, state)
            found["consumed"].append(streams.consumed())
            found["states"].append(state)
        return HookRun(**found)

    def _cohort(self, context: Context, state: State, streams: ReplayedStreams) -> Tensor:
        plan, replicas = self.plan, context.replicas
        present = plan.draw_cohort(streams.generator, replicas, plan.clients, round=context.round)
        rng = streams.generator("participation", round=context.round)
        thinned = self.protection.participates(context, state, rng)
        return present if thinned is None else present & thinned

    def _updates(
        self,
        around: Surroundings,
        arm: str,
        others: Tensor,
        present: Tensor,
        context: Context,
        state: State,
        streams: ReplayedStreams,
        garbage: float,
    ) -> Message:
        turn, replicas = context.round, torch.arange(around.replicas)
        unit = _row(around.units[:, turn], arm)
        if self.claim.unit is not Unit.SAMPLE:
            values, there = others.clone(), present.clone()
            values[replicas, around.holders] = unit
            if arm == ABSENT:
                there[replicas, around.holders] = False
            return Message(values=clear_absent(values, there), present=there, senders=context.senders)
        algorithm = self.plan.algorithm
        scale = algorithm.linear_scale or -1.0
        values = torch.zeros_like(others)
        for client in range(self.plan.clients):
            here = around.holders == client
            for step in range(algorithm.local_steps):
                rng = streams.generator("lot", round=turn, client=client, step=step)
                lot = self._lot(around, arm, others[:, client], unit, here, client, rng, garbage)
                noise = streams.generator("local noise", round=turn, client=client, step=step)
                values[:, client] += scale * self._direction(*lot, client, context, state, noise)
        return Message(values=clear_absent(values, present), present=present, senders=context.senders)

    def _direction(
        self, rows: Tensor, real: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        if self.protection.per_sample:
            return self.protection.local_step(rows, real, client, context, state, rng)
        weights = real / real.sum(1, keepdim=True).clamp_min(1)
        return torch.einsum("rl,rld->rd", weights, rows)

    def _lot(
        self,
        around: Surroundings,
        arm: str,
        base: Tensor,
        unit: Tensor,
        here: Tensor,
        client: int,
        rng: np.random.Generator,
        garbage: float,
    ) -> tuple[Tensor, Tensor]:
        """The rows of a client's lot ``(R, L, d)`` and which of them count, ``(R, L)``."""
        size = self.plan.sizes[client] if bool(here.any()) else min(_FEW_SAMPLES, self.plan.sizes[client])
        mask = self.plan.lot.draw(rng, around.replicas, size)
        chosen, real = lot_indices(mask)
        # A client's samples point to both sides, so that their sum is neither zero nor as long as it can be.
        rows = base.unsqueeze(1) * (1 - 0.75 * (chosen % 3)).unsqueeze(-1)
        if around.neighbours is not None:
            near = around.neighbours[torch.arange(len(rows)).unsqueeze(1), chosen % around.neighbours.shape[1]]
            rows = torch.where(here.view(-1, 1, 1), near, rows)
        if garbage:
            rows = torch.where(real.unsqueeze(-1), rows, garbage * (1 + chosen).unsqueeze(-1))
        places = (around.places * size).long()
        units = (chosen == places.unsqueeze(1)) & here.unsqueeze(1) & real
        rows = rows.to(torch.promote_types(rows.dtype, unit.dtype))
        run, place = units.nonzero(as_tuple=True)
        rows[run, place] = unit[run].to(rows.dtype)
        return rows, real & ~units if arm == ABSENT else real


def _row(unit: Tensor, arm: str) -> Tensor:
    return {PRESENT: unit, OPPOSITE: -unit}.get(arm, torch.zeros_like(unit))


def _equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two public states hold equal numbers, also in every replica."""
    if one.keys() != other.keys():
        return False
    return all(one[name].shape == other[name].shape and bool((one[name] == other[name]).all()) for name in one)
