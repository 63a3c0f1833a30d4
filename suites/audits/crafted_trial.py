"""Apply a defense to one of two chosen inputs, and score what the observer receives."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.stats import binom
from torch import Tensor

from ...audit.arrays import BoolArray, FloatArray
from ...audit.claim import Adjacency
from ...audit.evidence import Projections, Setting
from ...fl.laws.law import Mixing, ReportLaw
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context
from ...fl.streams import Streams, uniform
from ...fl.task import Task
from ..jobs.block_job import BlockJob

_CHANCE = 1e-9
"""Chance below which independent rows that repeat each other so often are refused."""
_LARGE = 100_000
"""Numbers of a message from which fewer calls are compared."""
_GUARD = 2**30
"""Calls that only check the noise are numbered from here: no counted trial shares a draw with them."""
_CERTAIN = 1e4
"""Stands for a log-ratio of infinity: scores are finite, and their order is all that counts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CraftedTrial:
    """A pair of inputs for one claim; it scores what the observer receives by the likelihood ratio between the two
    inputs.

    Args:
        senders: clients with reports that are drawn; ``row``: the subject's place among them.
        absent, present: the subject's raw rows ``(d,)`` without and with the canary.
        rate: probability that the report is of the record that differs, where one record is drawn per report.
    """

    law: ReportLaw
    shuffled: bool
    senders: tuple[int, ...]
    row: int
    absent: Tensor
    present: Tensor
    rate: float

    def drawn(self, updates: Message, rng: np.random.Generator) -> Message:
        """Return the updates after the protected client has sampled a record for its report. In trials where it
        does not sample the canary, its update is the one without the canary.
        """
        if self.rate == 1:
            return updates
        values = updates.values.clone()
        values[uniform(rng, (len(values),)) >= self.rate, self.row] = self.absent.to(values)
        return updates.with_values(values)

    def updates(self, world: int, replicas: int, adjacency: Adjacency) -> Message:
        """Return the updates that clients would send without protection; ``world`` is 1 with the canary, 0 without."""
        values = self.absent.expand(replicas, len(self.senders), -1).clone()
        there = torch.ones(values.shape[:2], dtype=torch.bool)
        if world == 1:
            values[:, self.row] = self.present
        elif adjacency is Adjacency.ADD_REMOVE:
            values[:, self.row], there[:, self.row] = 0, False
        return Message(values=values, present=there, senders=self.senders)

    def read(self, seen: Message, world: int) -> "RoundScores":
        """Return the scores of the client reports ``seen`` in one round; the scores are exact likelihood ratios if all
        clients use the same mechanism.
        """
        if not self.shuffled:
            report, there = seen.values[:, self.row], seen.present[:, self.row]
            both = self._logs(report, self.law.log_density)
            # With a drawn record the report may be of the other row, so density zero proves nothing there.
            odd = both[world].isneginf() & there if self.rate == 1 else torch.zeros_like(there)
            ratio = _ratio(*both).masked_fill(~there, 0)
            return RoundScores(ratio=ratio, place=torch.zeros_like(ratio), odd=odd)
        split = self.law.mixing is Mixing.COORDINATES
        ratios = _ratio(*self._logs(seen.values, self.law.log_densities if split else self.law.log_density))
        there = seen.present.unsqueeze(-1) if split else seen.present
        # Each place is equally likely to hold the subject's report: the likelihood ratio is the mean over all of them.
        mean = ratios.masked_fill(~there, -math.inf).logsumexp(1) - there.sum(1).clamp_min(1).log()
        # A round in which no report arrived is evidence of neither arm.
        mean, own = mean.masked_fill(there.sum(1) == 0, 0), ratios[:, self.row].sigmoid()
        ratio, place = (mean.sum(-1), own.mean(-1)) if split else (mean, own)
        return RoundScores(ratio=ratio, place=place, odd=torch.zeros(len(ratio), dtype=torch.bool))

    def _logs(self, seen: Tensor, log_density: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Log densities under the absent and the present row; ValueError for NaN, infinity or a wrong shape."""
        absent, present = (
            torch.as_tensor(log_density(seen, self.law.contribution(row.expand_as(seen))))
            for row in (self.absent, self.present)
        )
        split = self.shuffled and self.law.mixing is Mixing.COORDINATES
        for logs in (absent, present):
            if logs.shape != (seen.shape if split else seen.shape[:-1]):
                raise ValueError(
                    f"log_density of the defense's ReportLaw must return one number per report, got shape "
                    f"{tuple(logs.shape)}"
                )
            if bool((logs.isnan() | logs.isposinf()).any()):
                raise ValueError(
                    "log_density of the defense's ReportLaw must return finite numbers or -infinity, got NaN or "
                    "+infinity"
                )
        return absent, present


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundScores:
    """The scores of the client reports of one round: arrays of shape ``(replicas,)`` with one entry per trial.

    Args:
        ratio: log-likelihood ratio of what the observer saw.
        place: behind a shuffler, the likeness in [0, 1] of what arrived in the subject's own place to the present row;
            zeros elsewhere.
        odd: whether the law gives the subject's report density zero under its own row.
    """

    ratio: Tensor
    place: Tensor
    odd: Tensor


def _ratio(absent: Tensor, present: Tensor) -> Tensor:
    # A report that neither row can produce is evidence of neither.
    return torch.nan_to_num(present - absent, nan=0.0).clamp(-_CERTAIN, _CERTAIN)


@dataclass(frozen=True, eq=False)
class CraftedBatch:
    """A batch of independent trials, all with the canary or all without it.

    Args:
        ratios: for each trial and round the log-likelihood ratio of what the observer received.
        place: (n,), behind a shuffler, the mean likeness in [0, 1] of what arrived in the sender's own place to the
            present row; zeros elsewhere.
        odd: (n,), whether a report arrived that its own row cannot produce by the law.
    """

    ratios: Projections
    place: FloatArray
    odd: BoolArray


def batch_of_trials(
    job: BlockJob, trial: CraftedTrial, task: Task, plan: Plan, world: int, replicas: int, number: int
) -> CraftedBatch:
    """Apply the defense in every round of the claim and return the scores of the trials; ``world`` is 1 with the
    canary, 0 without.
    """
    begun = seen_in_rounds(job, trial, task, plan, world, replicas, number)
    rounds = [trial.read(seen, world) for seen in begun]
    values = torch.stack([one.ratio for one in rounds], dim=1).double().numpy()
    ratios = Projections(values, np.ones(values.shape, dtype=np.bool_), Setting.claimed(job.claim))
    place = torch.stack([one.place for one in rounds]).double().mean(0).numpy()
    return CraftedBatch(ratios, place, torch.stack([one.odd for one in rounds]).any(0).numpy())


def seen_in_rounds(
    job: BlockJob, trial: CraftedTrial, task: Task, plan: Plan, world: int, replicas: int, number: int
) -> Iterator[Message]:
    """Yield what the observer receives in each round; each cohort is drawn from all clients by the plan's sampling."""
    streams, protection = Streams(job.seed), job.protection
    model = task.initial(streams).expand(replicas, -1)
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
        # Drawn among all clients, then cut: a cohort of fixed size depends on how many clients there are.
        cohorts = partial(streams.generator, replicate=number + 1, world=world)
        there = plan.draw_cohort(cohorts, replicas, plan.clients, round=past)[:, list(trial.senders)]
        thinned = protection.participates(context, state, draws("participation"))
        rows = trial.drawn(updates, draws("lot"))
        present = rows.present & there if thinned is None else rows.present & there & thinned
        rows = Message(values=rows.values.masked_fill(~present.unsqueeze(-1), 0), present=present, senders=rows.senders)
        seen = protection.report(rows, context, state, draws("report"))
        if trial.shuffled:
            seen = protection.channel(seen, context, state, draws("channel"))
        wanted = (replicas, len(trial.senders), len(trial.present))
        if tuple(seen.values.shape) != wanted or not bool(torch.isfinite(seen.values).all()):
            raise ValueError(
                f"the defense's reports must be finite numbers of shape {wanted}, got shape {tuple(seen.values.shape)}"
            )
        yield seen


def check_noise(job: BlockJob, trial: CraftedTrial, task: Task, plan: Plan) -> None:
    """Check, by a few calls of the defense, that its reports depend on the random generator that it receives, and that
    parallel trials have independent noise.

    Reports that are all equal have no noise at all: the audit itself refutes these.

    Raises:
        ValueError: where noise is shared or not taken from the streams; a correct mechanism with a chance below 1e-9.
    """
    # Messages of many numbers are never equal by chance, and cost too much to be drawn often.
    large = len(trial.senders) * len(trial.present) > _LARGE
    calls, rows = (3, 2) if large else (20, 8)
    begun = (seen_in_rounds(job, trial, task, plan, 0, rows, _GUARD + call) for call in range(calls))
    keys = np.stack([_keys(next(rounds).values) for rounds in begun])
    if len(np.unique(keys)) == 1:
        return
    # Rows differ, yet every call gives the same ones: the noise came from a seed of its own.
    if (keys == keys[0]).all():
        raise ValueError(
            "the defense's reports did not change when its hooks got other random generators: draw the noise from the "
            "generator that is passed to the hook"
        )
    alike = int((keys == keys[:, :1]).all(axis=1).sum())
    _, counts = np.unique(keys, return_counts=True)
    chance = float(((counts / keys.size) ** rows).sum())
    if (large and alike == calls) or (alike and binom.sf(alike - 1, calls, min(1.0, chance)) < _CHANCE):
        raise ValueError(
            "parallel runs share their noise: draw it in the shape of the whole tensor, whose first axis is the run, "
            "not once for all of them"
        )


def _keys(reports: Tensor) -> FloatArray:
    """One number per replica, ``(replicas,)``, that differs between different reports (or sets of them)."""
    # Sorted over the senders: a shuffler that moves equal reports to other places must not make them look different.
    flat = reports.double().sort(1).values.flatten(1)
    return np.asarray((flat @ torch.arange(1, flat.shape[1] + 1, dtype=torch.float64).cos()).numpy(), dtype=np.float64)
