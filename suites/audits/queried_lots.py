"""Audit everything that a client releases about its sampled batches: gradient steps and query answers.

A claim about one sample holds for every data set, so also for a client that holds this sample or none: a gradient far
beyond every clip norm, in each lot by its own coin. The protection's own hooks clip, noise and answer; no model is
trained. A canary in a federation shows in the uploads only; here the score includes the query too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.evidence import Projections, Setting
from ...audit.observer import UPLOADS
from ...checks.canaries import why_not_covered
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.rounds import Round, Rounds
from ...fl.streams import Runs, Streams
from ..config.resolve import plan_of, task_of
from .audit_method import BlockJob, PlannedAudit
from .case import Case
from .replicas import Arms, ReplicaMethod

_WITNESS = (
    "a client's steps and answers with and without one sample whose gradient far exceeds the clip norm, scored by "
    "their log-likelihood ratio"
)
_FAR = 1e6
"""Gradient of the sample in every coordinate: beyond every clip norm."""
_CLIENT = 0
"""The client that holds the sample; claims about samples hold for every client."""
_BATCH = 20_000
"""Trials of one call."""


@runtime_checkable
class QueryLaw(Protocol):
    """A protection (a defense prepared for one plan) that publishes how the presence of one sample changes the
    distribution of everything that a client releases about a sampled batch.
    """

    def log_ratio(
        self, direction: Tensor, answer: Tensor | None, client: int, context: Context, state: State
    ) -> Tensor:
        """Return the log-likelihood ratio, shape ``(R,)`` for R runs, of one step's ``direction (R, d)`` and ``answer
        (R, k)`` between a client with a single sample and a client without data. The sample is drawn as training
        batches are, and its gradient exceeds every clip norm along the last coordinate. If ``answer`` is None, only the
        direction counts.
        """
        ...


class QueriedLots(ReplicaMethod):
    """An audit method for sample-level claims of a defense that publishes the log-likelihood ratios of a client's
    gradient steps and query answers.
    """

    attack = "queried_lots"
    precedence = 20
    chosen_by_suite = False
    own_federation = False

    def covers(self, request: Case) -> bool:
        return query_law(request.protection, request.claim) is not None

    def out_of_scope(self, request: Case) -> str:
        # No model is trained, so one that mixes samples is no obstacle.
        return why_not_covered(request.claim)

    def trials(self, job: BlockJob) -> tuple[Arms, Mapping[str, NDArray[Any]]]:
        return [query_evidence(job, arm) for arm in (0, 1)], {}

    def witness(self, audit: PlannedAudit) -> str:
        return _WITNESS


def query_law(protection: Protection, claim: Claim) -> QueryLaw | None:
    """Return the protection (prepared defense) if this audit applies to it, otherwise None. The protection must publish
    log-likelihood ratios of query answers, and the claim must be about adding or removing one sample for an observer of
    client updates.
    """
    covered = (claim.unit, claim.adjacency, claim.observer.rank) == (Unit.SAMPLE, Adjacency.ADD_REMOVE, UPLOADS.rank)
    return protection if covered and isinstance(protection, QueryLaw) else None


def query_evidence(job: BlockJob, arm: int) -> list[Projections]:
    """Run ``job.replicas`` trials under the claim's own plan, in batches; ``arm`` is 1 with the sample, 0 without."""
    task = task_of(job.federation, job.seed)
    plan, streams = plan_of(job.federation, job.change, task), Streams(job.seed)
    # The batch size is fixed, not the suite's: another one would draw other trials.
    return [
        published_query_trials(job.protection, plan, job.claim, arm=arm, trials=size, streams=streams, block=number + 1)
        for number, size in job.batches(_BATCH)
    ]


def published_query_trials(
    protection: Protection,
    plan: Plan,
    claim: Claim,
    *,
    arm: int,
    trials: int,
    streams: Streams,
    block: int = 1,
    queried: bool = True,
) -> Projections:
    """Simulate ``trials`` trials, over all rounds of the claim, of a client that holds only the sample (``arm`` 1) or
    no data (``arm`` 0).

    Gives for each round the log-likelihood ratio of what the client released, zero where it had stopped.

    Args:
        block: part of every stream's name: no two blocks share a draw; block 0 belongs to the suite's trials.
        queried: whether the score includes the answers.

    Raises:
        ValueError: for a protection that publishes no ratio, or a claim that these trials are no evidence about.
    """
    law = query_law(protection, claim)
    if law is None:
        raise ValueError(
            "an audit of query answers needs a protection with a method log_ratio, and a claim about adding or "
            f"removing one sample against an observer of client updates; got {type(protection).__name__} and the claim "
            f"{claim.describe()}"
        )
    lots = _Lots(law=law, arm=arm, queried=queried)
    rounds = Rounds(
        plan=plan,
        protection=protection,
        streams=streams,
        rows=lots,
        runs=Runs(replicas=trials, block=block, arm=arm),
        candidates=(_CLIENT,),
        invited=lambda turn: torch.ones(trials, 1, dtype=torch.bool),
        all_rows=True,
    )
    # No model is trained: one coordinate is all that a row needs.
    seen = [turn.cohort for turn in rounds.each(claim.rounds, model=torch.zeros(trials, 1))]
    values = torch.stack(lots.ratios, dim=1).numpy()
    masks = torch.cat(seen, dim=1).numpy()
    return Projections(np.asarray(values, dtype=np.float64), np.asarray(masks), Setting.claimed(claim))


@dataclass(frozen=True, kw_only=True)
class _Lots:
    """The lots of a client that holds one sample (``arm`` 1) or none, as rows of a round: its answers and a report of
    zero, because its steps were scored when they were made.

    Args:
        ratios: of each round so far, the log-likelihood ratio ``(R,)`` of what the client released.
    """

    law: QueryLaw
    arm: int
    queried: bool
    ratios: list[Tensor] = field(default_factory=list)

    def __call__(self, turn: Round) -> Message:
        runs, present, plan = turn.opening.replicas, turn.cohort, turn.run.plan
        row = torch.full((runs, 1, 1), _FAR)
        ratio, answers = torch.zeros(runs, dtype=torch.float64), list[Tensor]()
        for step in range(plan.algorithm.local_steps):
            # Without the sample every lot is empty, whatever the coins show.
            drawn = plan.lot.draw(turn.generator("lot", client=_CLIENT, step=step), runs, 1) & bool(self.arm)
            made = turn.local_step(row, drawn, _CLIENT, step)
            seen = made.answer if self.queried else None
            ratio += self.law.log_ratio(made.direction, seen, _CLIENT, turn.context, turn.state)
            answers += [] if made.answer is None else [made.answer]
        self.ratios.append(ratio.masked_fill(~present[:, 0], 0))
        queries = torch.stack(answers, dim=1).unsqueeze(1).masked_fill(~present[..., None, None], 0)
        return Message(values=torch.zeros(runs, 1, 1), present=present, senders=(_CLIENT,), side={"query": queries})


METHOD = QueriedLots()
