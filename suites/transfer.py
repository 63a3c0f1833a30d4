"""Run, attack and audit transfers by answers: teachers label public samples for students (PATE).

An attack on votes is measured on planted votes: those of the attacked teacher are drawn uniformly, and all other
teachers vote as they were trained to. Real votes would be guessed well from the released label alone, because teachers
agree; of planted votes a guess without information is right once in as many times as there are classes.

An audit runs the mechanism of the votes, or of one teacher's answers, on neighbouring inputs, calibrated for a few
queries. Which inputs differ most is tried on pilot runs: vote counts that are made for it, and those of the suite's own
teachers.
"""

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..attacks.attack import Level
from ..attacks.shadow_models import ShadowModels
from ..attacks.transfer.shadow_students import shadow_students
from ..attacks.transfer.vote_attack import VoteAttack, VoteKnowledge
from ..audit.arrays import FloatArray
from ..audit.check import CheckResult
from ..audit.evidence import VoteScores
from ..audit.finding import Finding, Verdict, not_audited
from ..audit.mechanism.mechanism import audit_mechanism
from ..audit.observer import ANSWERS
from ..audit.wording import counted
from ..checks.results import same_claim
from ..checks.votes import vote_checks
from ..defenses.transfer.defense import PreparedTransfer, TransferDefense
from ..defenses.transfer.worst_votes import mechanism_of, sums_votes
from ..fl.streams import Runs, Streams
from ..fl.transfer.engine import run_transfer
from ..fl.transfer.protection import LabelLaw, counts_of, votes_of
from ..fl.transfer.recorder import AnswerRecorder, TransferEvent
from ..fl.transfer.task import TransferPlan, TransferTask
from .attacking.finished_cells import AttackCell, Clock
from .attacking.jobs import OtherAuditJob, TrainingJob
from .attacking.shadows import rows_of_attack
from .config.other_federations import shadow_teachers_of, teachers_of, transfer_plan_of, transfer_task_of
from .config.tables.other_federations import TransferSpec
from .results.cell import Cell
from .results.record import Record
from .results.store import Store
from .scoring.label_rows import score_votes
from .scoring.utility_rows import transfer_rows

_PLANTED_BLOCK = 2**28
"""Number of the batch of runs with planted votes, so that they share no random draw with the transfer itself."""


@dataclass(kw_only=True, eq=False)
class Transferred:
    """A finished transfer: its teachers' logits on the queries, and everything that happened in all of its runs.

    ``planted``: by attacked teacher, the planted votes and what happened in the runs with them. ``shadows``: by number,
    the shadow students. Both are filled by the first attack that needs them.
    """

    task: TransferTask
    plan: TransferPlan
    streams: Streams
    logits: Tensor
    event: TransferEvent
    planted: dict[int, tuple[Tensor, TransferEvent]] = field(default_factory=dict)
    shadows: dict[int, ShadowModels] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TransferTrialJob(TrainingJob):
    """A job that trains the teachers and students of one transfer once and runs all attacks on it."""

    federation: TransferSpec
    prepared: PreparedTransfer

    @property
    def words(self) -> str:
        spec = self.federation
        asked = "query" if spec.queries == 1 else "queries"
        return (
            f"{counted(spec.teachers, 'teacher')}, {spec.queries} {asked}, {counted(spec.students, 'student')} per seed"
        )

    def trained(self, store: Store, clock: Clock) -> Transferred:
        spec, streams, recorder = self.federation, Streams(self.seed), _Events()
        task, logits = transfer_task_of(spec, self.seed), teachers_of(spec, self.seed)
        plan = transfer_plan_of(spec, task)
        if not bool(logits.isfinite().all()):
            raise FloatingPointError("training diverged: a teacher's answers hold NaN or infinity")
        runs = Runs(replicas=spec.students)
        run_transfer(task, plan, self.prepared.protection, streams, logits=logits, runs=runs, recorders=[recorder])
        (event,) = recorder.kept
        if not bool(event.final_model.isfinite().all()):
            raise FloatingPointError("training diverged: a student holds NaN or infinity")
        return Transferred(task=task, plan=plan, streams=streams, logits=logits, event=event)

    def utility(self, cell: Cell, trained: Transferred, store: Store) -> list[Record]:
        return transfer_rows(cell, trained.task, trained.event, self.prepared.claims)

    def attacked(self, item: AttackCell, trained: Transferred, store: Store) -> list[Record]:
        attack = item.entry.part.instance
        if not isinstance(attack, VoteAttack):
            return _membership(item, self, trained, store)
        if attack.teacher not in trained.planted:
            trained.planted[attack.teacher] = _with_planted(trained, attack.teacher, self)
        votes, event = trained.planted[attack.teacher]
        protection, recorder = self.prepared.protection, AnswerRecorder(observer=attack.observer)
        recorder.watch(event)
        others = counts_of(votes_of(trained.logits))[0] - votes_of(trained.logits)[0, attack.teacher]
        known = others.double().numpy() if attack.level is Level.WORST_CASE else None
        knowledge = VoteKnowledge.of(trained.plan, protection, others=known)
        if knowledge.label_law is not None:
            knowledge = replace(knowledge, label_law=_Remembered(knowledge.label_law))
        draws = partial(trained.streams.generator, f"attack {item.entry.label}")
        evidence = [
            attack.run(recorder.view.of_run(number), knowledge, draws(replicate=number)) for number in range(len(votes))
        ]
        if not all(isinstance(one, VoteScores) for one in evidence):
            raise TypeError(f"an attack on votes must return VoteScores, got {type(evidence[0]).__name__}")
        return score_votes(item.cell, evidence, votes.numpy())


@dataclass(frozen=True, kw_only=True)
class TransferAuditJob(OtherAuditJob):
    """A job that audits one claim about a transfer, by runs of the mechanism of its votes or answers."""

    federation: TransferSpec
    defense: TransferDefense

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of queries for which the mechanism is audited."""
        found = () if self.federation.audit is None else self.federation.audit.queries
        return tuple(sorted({min(size, self.federation.queries) for size in found}))

    @property
    def replicas(self) -> int:
        return self.tested * len(self.sizes)

    @property
    def tested(self) -> int:
        return 0 if self.federation.audit is None else self.federation.audit.trials

    @property
    def runs(self) -> int:
        return 3 * self.replicas  # Half as many on each of two inputs choose the pair and the score.

    def found(self) -> tuple[Finding, tuple[CheckResult, ...]]:
        """Return the finding about a claim. If the mechanism was audited for several numbers of queries, the returned
        finding is the one that refutes the claim, or else the one that could have refuted the smallest epsilon.

        OUT_OF_SCOPE where the defense states another claim about fewer queries, or no neighbouring inputs are known for
        the claim's unit and observer.
        """
        found = {size: _of_size(self, size) for size in self.sizes}
        refuted = [size for size, one in found.items() if one.verdict is Verdict.REFUTED]
        size = refuted[0] if refuted else min(found, key=lambda one: _detectable(found[one]))
        words = f"audit of the votes on {size} of {self.federation.queries} queries"
        return replace(found[size], reason=f"{words}: {found[size].reason}"), (_answers(self),)


@dataclass(eq=False)
class _Remembered:
    """The law of a released label that computes the probabilities of equal counts once: all runs ask for the same."""

    law: LabelLaw
    known: dict[bytes, FloatArray] = field(default_factory=dict)

    def log_probabilities(self, counts: FloatArray) -> FloatArray:
        key = np.ascontiguousarray(counts).tobytes()
        if key not in self.known:
            self.known = {key: self.law.log_probabilities(counts)}
        return self.known[key]


@dataclass(frozen=True)
class _Events:
    """A recorder that keeps everything; only scoring receives it."""

    kept: list[TransferEvent] = field(default_factory=list)

    def watch(self, event: TransferEvent) -> None:
        self.kept.append(event)


def _with_planted(found: Transferred, teacher: int, job: TransferTrialJob) -> tuple[Tensor, TransferEvent]:
    """Plant one teacher's votes, run the transfer with them, and return the votes with what happened."""
    votes, logits = planted(found, teacher, job.federation.students)
    recorder = _Events()
    run_transfer(
        found.task,
        found.plan,
        job.prepared.protection,
        found.streams,
        logits=logits,
        runs=Runs(replicas=len(logits), block=_PLANTED_BLOCK, arm=1),
        recorders=[recorder],
    )
    return votes, recorder.kept[0]


def planted(found: Transferred, teacher: int, runs: int) -> tuple[Tensor, Tensor]:
    """Draw the votes of one teacher uniformly, ``(runs, queries)``; return them with the logits of all teachers,
    ``(runs, teachers, queries, classes)``, in which this teacher's logits keep their size.
    """
    plan = found.plan
    drawn = found.streams.generator("planted votes", client=teacher).integers(plan.classes, size=(runs, plan.queries))
    votes = torch.from_numpy(np.asarray(drawn, dtype=np.int64))
    logits = found.logits.repeat(runs, 1, 1, 1)
    own = logits[:, teacher]
    # The drawn class exchanges its logit with the largest one, so that only the vote changes.
    largest = own.argmax(-1)
    exchanged = own.clone()
    exchanged.scatter_(-1, largest.unsqueeze(-1), own.gather(-1, votes.unsqueeze(-1)))
    exchanged.scatter_(-1, votes.unsqueeze(-1), own.gather(-1, largest.unsqueeze(-1)))
    logits[:, teacher] = exchanged
    return votes, logits


def _membership(item: AttackCell, job: TransferTrialJob, found: Transferred, store: Store) -> list[Record]:
    """The rows of a membership attack on students whose teachers held random halves of the samples."""
    count = item.entry.shadows
    if count is None:
        raise ValueError("a membership attack on a student needs the key shadows, its number of shadow students")
    if count not in found.shadows:
        teachers = shadow_teachers_of(job.federation, job.seed, count)
        found.shadows[count] = shadow_students(found.task, found.plan, job.prepared.protection, found.streams, teachers)
    return rows_of_attack(item, job.seed, found.shadows[count], store)


def _detectable(finding: Finding) -> float:
    measured = finding.measurement
    return float("inf") if measured is None or measured.detectable is None else measured.detectable


def _answers(job: TransferAuditJob) -> CheckResult:
    """The check of the answers to all queries of the claim's own transfer."""
    plan, votes = _plan_and_votes(job)
    prepared = job.defense.prepare(plan)
    return vote_checks(prepared.protection, plan, job.claim, seed=job.seed, votes=votes)


def _plan_and_votes(job: TransferAuditJob) -> tuple[TransferPlan, NDArray[np.float64] | None]:
    """The plan of the claim, and the votes of its own teachers where an audit uses them."""
    plan = transfer_plan_of(job.federation, transfer_task_of(job.federation, job.seed))
    own = job.claim.observer == ANSWERS
    return plan, votes_of(teachers_of(job.federation, job.seed))[0].double().numpy() if own else None


def _of_size(job: TransferAuditJob, size: int) -> Finding:
    """The finding of the defense that is calibrated for ``size`` queries, at this size's share of alpha."""
    claim = job.claim
    plan, votes = _plan_and_votes(job)
    plan = replace(plan, queries=size)
    prepared = job.defense.prepare(plan)
    same = [one for one in prepared.claims if same_claim(one, claim)]
    if not same:
        return not_audited(claim, f"for a transfer of {size} queries, the defense states another claim")
    inputs = mechanism_of(same[0], prepared.protection, plan, votes)
    if inputs is None:
        neighbours = f"one {claim.unit.value} ({claim.adjacency.phrase})"
        words = f"no neighbouring inputs are known for {neighbours} and the observer {claim.observer}"
        if not sums_votes(prepared.protection):
            words += ", because the defense has its own hook teacher_answers or aggregate_votes"
        return not_audited(claim, words)
    mechanism, pairs = inputs
    return audit_mechanism(
        mechanism,
        same[0],
        pairs=pairs,
        trials=job.tested,
        seed=job.seed,
        alpha=job.alpha / len(job.sizes),
        batched=True,
    )
