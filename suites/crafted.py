"""Crafted reports: independent trials of a defense's own stations on the rows that differ most; nothing is trained.

A claim about what a client sends holds for every update that it might send, so also for these: one client's row is the
present or the absent one of a pair, everybody else's is the absent one, and the observer knows all of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ..audit.claim import Adjacency, Claim, Unit
from ..audit.evidence import Projections, Setting
from ..audit.observer import SHUFFLED
from ..fl.law import Mixing, ReportLaw
from ..fl.message import Message
from ..fl.plan import Plan
from ..fl.protection import Context
from ..fl.streams import Streams, uniform
from ..fl.task import Task
from .canaries import JOINT
from .cells import BlockJob
from .resolve import plan_of, task_of

COORDINATE, LAYER = "one coordinate", "layer "
NARROW = 30
"""How many times as often a claim about one coordinate is tried: only that coordinate is drawn."""
_NUMBERS = 2**22
"""Numbers that a call of the stations holds at most."""
_CERTAIN = 1e4
"""Stands for a log-ratio of infinity: scores are finite, and their order is all that counts."""


def report_law(job: BlockJob) -> ReportLaw | None:
    """The law of one client's report, where the defense publishes one to the claim's observer."""
    _, plan = _federation(job)
    law = job.protection.law(job.claim.observer, plan, subject(job.claim))
    return law if isinstance(law, ReportLaw) else None


def subject(claim: Claim) -> int:
    """The client whose report differs: one of those that the claim speaks of."""
    return int(claim.parameters.get("client", 0))


def crafted_evidence(job: BlockJob, law: ReportLaw, world: int) -> list[Projections]:
    """``job.replicas`` trials of one world: for each round the log-likelihood ratio of what the observer saw."""
    task, plan = _federation(job)
    trial = _trial(job, law, plan)
    most = _NUMBERS // (len(trial.senders) * len(trial.present))
    size = max(1, min(most, job.audit.batch, job.replicas))
    whole, rest = divmod(job.replicas, size)
    sizes = [size] * whole + ([rest] if rest else [])
    return [_trials(job, trial, task, plan, world, count, number) for number, count in enumerate(sizes)]


def witness(claim: Claim, law: ReportLaw) -> str:
    """What was tried, in words."""
    where = {Mixing.NONE: "", Mixing.ROWS: ", rows shuffled", Mixing.COORDINATES: ", each coordinate shuffled"}
    what = "" if claim.part == JOINT else f" in {claim.part}"
    mixed = where[law.mixing] if claim.observer.rank == SHUFFLED.rank else ""
    return f"reports on the two rows that differ most{what}{mixed}, scored by their log-likelihood ratio"


def _federation(job: BlockJob) -> tuple[Task, Plan]:
    """The claim's own: how many clients there are is part of what a shuffler promises."""
    task = task_of(job.federation, job.seed)
    return task, plan_of(job.federation, job.change, task)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Trial:
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

    def score(self, seen: Message) -> Tensor:
        """``(replicas,)``: the log-likelihood ratio, exact where all clients share the subject's mechanism."""
        if not self.shuffled:
            return self._ratio(seen.values[:, self.row], self.law.log_density)
        split = self.law.mixing is Mixing.COORDINATES
        ratios = self._ratio(seen.values, self.law.log_densities if split else self.law.log_density)
        there = seen.present.unsqueeze(-1) if split else seen.present
        mean = ratios.masked_fill(~there, -math.inf).logsumexp(1) - there.sum(1).clamp_min(1).log()
        return mean.sum(-1) if split else mean

    def _ratio(self, seen: Tensor, log_density: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        absent, present = (
            log_density(seen, self.law.contribution(row.expand_as(seen))) for row in (self.absent, self.present)
        )
        # A report that neither row can give is no evidence of either.
        return torch.nan_to_num(present - absent, nan=0.0).clamp(-_CERTAIN, _CERTAIN)


def _trial(job: BlockJob, law: ReportLaw, plan: Plan) -> _Trial:
    claim, who = job.claim, subject(job.claim)
    if not 0 <= who < plan.clients:
        raise ValueError(f"a claim's client must be in 0..{plan.clients - 1}, got {who}")
    shuffled = claim.observer.rank == SHUFFLED.rank
    if shuffled and law.mixing is Mixing.NONE:
        raise ValueError("a claim behind a shuffler needs a law that says what is shuffled, rows or coordinates")
    # Who can tell the reports apart learns nothing of one from the others.
    senders = tuple(range(plan.clients)) if shuffled else (who,)
    absent, present = rows_that_differ(claim, law, plan)
    if claim.part == COORDINATE and shuffled and law.mixing is Mixing.COORDINATES:
        # Coordinates that are noised and shuffled apart are the same whether others are drawn or not.
        absent, present = absent[:1], present[:1]
    row = senders.index(who)
    rate = float(claim.parameters.get("rate", 1.0)) if claim.unit is Unit.SAMPLE else 1.0
    return _Trial(law=law, shuffled=shuffled, senders=senders, row=row, absent=absent, present=present, rate=rate)


def rows_that_differ(claim: Claim, law: ReportLaw, plan: Plan) -> tuple[Tensor, Tensor]:
    """Raw rows ``(d,)``, absent and present, that differ in what the claim's part names, and there as much as can be.

    Raises:
        ValueError: for a part that is neither joint, nor one coordinate, nor a layer of the plan.
    """
    absent, present = law.worst_pair(plan.layout.dim)
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


def _trials(
    job: BlockJob, trial: _Trial, task: Task, plan: Plan, world: int, replicas: int, number: int
) -> Projections:
    """One call of the stations in each round that the claim covers."""
    streams, claim, protection = Streams(job.seed), job.claim, job.protection
    model = task.network.initial(streams.generator("init")).expand(replicas, -1)
    updates, state = trial.updates(world, replicas, claim.adjacency), protection.initial_state(plan)
    scores = list[Tensor]()
    for past in range(claim.rounds):
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
        seen = protection.report(trial.drawn(updates, draws("lot")), context, state, draws("report"))
        if trial.shuffled:
            seen = protection.channel(seen, context, state, draws("channel"))
        scores.append(trial.score(seen))
    values = torch.stack(scores, dim=1).double().numpy()
    return Projections(values, np.ones(values.shape, dtype=np.bool_), Setting.claimed(claim))
