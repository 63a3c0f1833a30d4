"""Crafted trial: the two rows that a claim is tried on, the hooks that they go through, the score of what comes."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency, Claim
from ...fl.laws.law import Mixing, ReportLaw
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context
from ...fl.streams import Streams, uniform
from ...fl.task import Task
from ..config.canaries import JOINT
from .cells import BlockJob

COORDINATE, LAYER = "one coordinate", "layer "
_CHANCE = 1e-9
"""Of honest rows that hang together so often."""
_LARGE = 100_000
_GUARD = 2**30
"""Calls of guards are numbered from here: no counted trial shares a draw with them."""
_CERTAIN = 1e4
"""Stands for a log-ratio of infinity: scores are finite, and their order is all that counts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One claim's rows, and what its observer reads of them.

    Args:
        senders: whose reports are drawn; ``row``: the subject's place among them.
        absent, present: its raw rows ``(d,)`` in world 0 and 1.
        rate: chance that the report is of the record that differs, where one record is drawn and the claim is about it.
    """

    law: ReportLaw
    shuffled: bool
    senders: tuple[int, ...]
    row: int
    absent: Tensor
    present: Tensor
    rate: float

    def drawn(self, updates: Message, rng: np.random.Generator) -> Message:
        """Where another record was drawn, the subject's report is of that."""
        if self.rate == 1:
            return updates
        values = updates.values.clone()
        values[uniform(rng, (len(values),)) >= self.rate, self.row] = self.absent.to(values)
        return updates.with_values(values)

    def updates(self, world: int, replicas: int, adjacency: Adjacency) -> Message:
        """What the clients would send without protection."""
        values = self.absent.expand(replicas, len(self.senders), -1).clone()
        there = torch.ones(values.shape[:2], dtype=torch.bool)
        if world == 1:
            values[:, self.row] = self.present
        elif adjacency is Adjacency.ADD_REMOVE:
            values[:, self.row], there[:, self.row] = 0, False
        return Message(values=values, present=there, senders=self.senders)

    def read(self, seen: Message, world: int) -> "Reading":
        """What this round's reports say; the ratio is exact where all clients share the subject's mechanism."""
        if not self.shuffled:
            report, there = seen.values[:, self.row], seen.present[:, self.row]
            both = self._logs(report, self.law.log_density)
            odd = both[world].isneginf() & there if self.rate == 1 else torch.zeros_like(there)
            ratio = _ratio(*both).masked_fill(~there, 0)
            return Reading(ratio=ratio, place=torch.zeros_like(ratio), odd=odd)
        split = self.law.mixing is Mixing.COORDINATES
        ratios = _ratio(*self._logs(seen.values, self.law.log_densities if split else self.law.log_density))
        there = seen.present.unsqueeze(-1) if split else seen.present
        mean = ratios.masked_fill(~there, -math.inf).logsumexp(1) - there.sum(1).clamp_min(1).log()
        mean, own = mean.masked_fill(there.sum(1) == 0, 0), ratios[:, self.row].sigmoid()
        ratio, place = (mean.sum(-1), own.mean(-1)) if split else (mean, own)
        return Reading(ratio=ratio, place=place, odd=torch.zeros(len(ratio), dtype=torch.bool))

    def _logs(self, seen: Tensor, log_density: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Log densities under the absent and the present row; ValueError where they are none."""
        absent, present = (
            torch.as_tensor(log_density(seen, self.law.contribution(row.expand_as(seen))))
            for row in (self.absent, self.present)
        )
        split = self.shuffled and self.law.mixing is Mixing.COORDINATES
        for logs in (absent, present):
            if logs.shape != (seen.shape if split else seen.shape[:-1]):
                raise ValueError(f"its law must give a log density for each report, got shape {tuple(logs.shape)}")
            if bool((logs.isnan() | logs.isposinf()).any()):
                raise ValueError("its law must give log densities below infinity, got NaN or infinity")
        return absent, present


@dataclass(frozen=True, kw_only=True, eq=False)
class Reading:
    """One round of ``(replicas,)`` trials.

    Args:
        ratio: log-likelihood ratio of what the observer saw.
        place: behind a shuffler, how much what arrived in the subject's own place looks like the present row, in
            [0, 1]; zeros elsewhere.
        odd: whether the subject's report is none that its own row can give by the law.
    """

    ratio: Tensor
    place: Tensor
    odd: Tensor


def _ratio(absent: Tensor, present: Tensor) -> Tensor:
    # A report that neither row can give is no evidence of either.
    return torch.nan_to_num(present - absent, nan=0.0).clamp(-_CERTAIN, _CERTAIN)


def rows_that_differ(claim: Claim, law: ReportLaw, plan: Plan) -> tuple[Tensor, Tensor]:
    """Raw rows ``(d,)``, absent and present, that differ in what the claim's part names, and there as much as can be.

    Raises:
        ValueError: for a part that is neither joint, nor one coordinate, nor a layer of the plan.
    """
    absent, present = law.worst_pair(plan.layout.dim)
    for row in (absent, present):
        if not isinstance(row, Tensor) or row.shape != (plan.layout.dim,) or not bool(row.isfinite().all()):
            raise ValueError(f"worst_pair must be two rows of {plan.layout.dim} finite numbers, got {row!r:.60}")
    if claim.adjacency is Adjacency.ZERO_OUT:
        absent = torch.zeros_like(present)
    if claim.part == JOINT:
        return absent, present
    layers, place = plan.layout.slices, slice(0, 1)
    if claim.part != COORDINATE:
        name = claim.part.removeprefix(LAYER)
        if name not in layers:
            raise ValueError(f"a claim's part must be {JOINT}, {COORDINATE}, or a layer, got {claim.part!r}")
        place = layers[name]
    partly = absent.clone()
    partly[place] = present[place]
    return absent, partly


def seen_in_rounds(
    job: BlockJob, trial: Trial, task: Task, plan: Plan, world: int, replicas: int, number: int
) -> Iterator[Message]:
    """What the observer saw, round by round; cohorts are drawn as the plan says, of all clients."""
    streams, protection = Streams(job.seed), job.protection
    model = task.network.initial(streams.generator("init")).expand(replicas, -1)
    updates, state = trial.updates(world, replicas, job.claim.adjacency), protection.initial_state(plan)
    for past in range(job.claim.rounds):
        # Block 0 is the trial's.
        draws = partial(streams.generator, replicate=number + 1, world=world, round=past)
        context = Context(
            plan=plan,
            round=past,
            replicas=replicas,
            senders=trial.senders,
            public_loss=partial(task.public_loss, model),
        )
        state = protection.open_round(context, state)
        there = plan.cohort.draw(draws("cohort"), replicas, plan.clients)[:, list(trial.senders)]
        thinned = protection.participates(context, state, draws("participation"))
        rows = trial.drawn(updates, draws("lot"))
        present = rows.present & there if thinned is None else rows.present & there & thinned
        rows = Message(values=rows.values.masked_fill(~present.unsqueeze(-1), 0), present=present, senders=rows.senders)
        seen = protection.report(rows, context, state, draws("report"))
        if trial.shuffled:
            seen = protection.channel(seen, context, state, draws("channel"))
        wanted = (replicas, len(trial.senders), len(trial.present))
        if tuple(seen.values.shape) != wanted or not bool(torch.isfinite(seen.values).all()):
            raise ValueError(f"reports must be finite numbers {wanted}, got shape {tuple(seen.values.shape)}")
        yield seen


def check_noise(job: BlockJob, trial: Trial, task: Task, plan: Plan) -> None:
    """First rounds of a few small calls: other draws must move the reports, and the rows of a call must not hang
    together. What is the same everywhere has no noise at all: that is left to the audit.

    Raises:
        ValueError: where noise is shared or not taken from the streams; an honest mechanism with a chance below 1e-9.
    """
    # Messages of many numbers are never equal by chance, and cost too much to be asked for often.
    large = len(trial.senders) * len(trial.present) > _LARGE
    calls, rows = (3, 2) if large else (20, 8)
    begun = (seen_in_rounds(job, trial, task, plan, 0, rows, _GUARD + call) for call in range(calls))
    keys = np.stack([_keys(next(rounds).values) for rounds in begun])
    if len(np.unique(keys)) == 1:
        return
    if (keys == keys[0]).all():
        raise ValueError("reports must take their noise from the generator that a hook is handed: others moved none")
    alike = int((keys == keys[:, :1]).all(axis=1).sum())
    _, counts = np.unique(keys, return_counts=True)
    chance = float(((counts / keys.size) ** rows).sum())
    if (large and alike == calls) or (alike and binom.sf(alike - 1, calls, min(1.0, chance)) < _CHANCE):
        raise ValueError(
            "replicas share their noise: draw it in the shape of the whole tensor, replicas first, "
            "not once for all of them"
        )


def _keys(reports: Tensor) -> FloatArray:
    """One number a replica, ``(replicas,)``, that tells reports (or sets of them) apart."""
    flat = reports.double().sort(1).values.flatten(1)
    return np.asarray((flat @ torch.arange(1, flat.shape[1] + 1, dtype=torch.float64).cos()).numpy(), dtype=np.float64)
