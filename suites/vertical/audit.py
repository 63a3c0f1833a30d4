"""Audit one claim about a vertical federation: independent runs with either of two labels, or rows, of one person.

A small federation is run many times with each of the two, and a score is computed from all that the claim's observer
receives. Scores are linear discriminants (Fisher 1936), learned on runs of their own: one of the messages about that
person, and one of everything, because a person's data may show in the messages about other people.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.claim import Claim, Unit
from ...audit.estimators.best_bound import best_bound
from ...audit.estimators.clopper_pearson import clopper_pearson
from ...audit.evidence import MembershipScores, Setting
from ...audit.finding import Finding, judge, not_audited
from ...audit.measurement import Measurement
from ...audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY
from ...audit.power.threshold import SplitThreshold
from ...fl.streams import Streams, normal
from ...fl.vertical.engine import Planted, Runs, StepEvent, run_vertical
from ...fl.vertical.plan import VerticalPlan
from ...fl.vertical.protection import VerticalProtection
from ...fl.vertical.task import VerticalTask
from ..attacking.trial import Clock, failures_as_rows
from ..config.resolve_vertical import small_plan, vertical_plan_of, vertical_task_of
from ..config.vertical import VerticalAuditSpec
from ..jobs.vertical_job import VerticalAuditJob
from ..results.store import Store
from .discriminant import discriminant
from .label_coins import measured_in_one_run

BLOCK = 250
"""Runs made at once; part of the streams' names, so another number gives other runs."""
ROWS = 512
"""Random rows among which the two are chosen whose embeddings differ most."""
LENGTH = 10.0
"""Length of the two rows, in lengths of an ordinary row: short rows could not reveal a missing clip."""


def audit_vertical(job: VerticalAuditJob, store: Store, finished: frozenset[str]) -> list[str]:
    """Audit one claim and write its verdict; return a description of each failure.

    Raises:
        UnwritableRunFolder: if the folder cannot be written.
    """
    if job.cell.cell_id in finished:
        return []
    torch.set_num_threads(1)
    clock = Clock()
    with failures_as_rows([job.cell], store, clock) as failed:
        finding = found_about(job)
        measured = finding.measurement
        row = job.cell.record(
            metric="epsilon_low",
            value=None if measured is None else measured.epsilon_low,
            ci_low=None if measured is None else measured.epsilon_low,
            ci_level=None if measured is None else 1 - measured.alpha,
            ci_method="" if measured is None else f"{measured.estimator}, one-sided, {measured.threshold_policy}",
            ceiling=None if measured is None else measured.ceiling,
            detectable=None if measured is None else measured.detectable,
            verdict=finding.verdict.value,
            route=finding.route or "",
            reason=finding.reason if measured is None else f"{finding.reason}; evidence: {measured.witness}",
            n=None if measured is None else measured.canaries or min(measured.n0, measured.n1),
            unit="epsilon",
            direction="higher_leaks",
            **clock.fields(),
        )
        store.finish(job.cell.cell_id, [row])
    return failed


def found_about(job: VerticalAuditJob) -> Finding:
    """Return the finding about a claim, from runs of a small federation with the claim's number of epochs.

    OUT_OF_SCOPE where the defense states another claim about the small federation, or no pair of inputs is known for
    the claim's unit and observer.
    """
    task, plan = _small(job)
    prepared = job.defense.prepare(plan)
    same = [one for one in prepared.claims if _comparable(one) == _comparable(job.claim)]
    if not same:
        return not_audited(job.claim, "the defense states another claim about the small federation that the audit runs")
    why = _why_not(job.claim, _settings(job).design)
    if why:
        return not_audited(job.claim, why)
    return judge(job.claim, measured(job, task, plan, prepared.protection))


def _settings(job: VerticalAuditJob) -> VerticalAuditSpec:
    if job.federation.audit is None:
        raise ValueError("the vertical federation has no audit table")
    return job.federation.audit


def _comparable(claim: Claim) -> tuple[object, ...]:
    return (
        round(claim.epsilon, 6),
        claim.delta,
        claim.unit,
        claim.adjacency,
        claim.observer,
        claim.rounds,
        claim.subjects,
        claim.part,
    )


def _why_not(claim: Claim, design: str) -> str:
    if design == "one_run":
        if claim.unit is Unit.LABEL and claim.observer == PASSIVE_PARTY:
            return ""
        return "one run with coins audits claims about one label against a passive party alone"
    if claim.unit is Unit.LABEL and claim.observer in (PASSIVE_PARTY, FINAL_MODEL):
        return ""
    if claim.unit in (Unit.SAMPLE, Unit.REPORT) and claim.observer == ACTIVE_PARTY:
        return ""
    return f"no pair of inputs is known for one {claim.unit.value} and the observer {claim.observer}"


def _small(job: VerticalAuditJob) -> tuple[VerticalTask, VerticalPlan]:
    settings = _settings(job)
    whole = vertical_task_of(job.federation, job.seed)
    own = vertical_plan_of(job.federation, whole)
    if settings.design == "one_run":
        return whole, own
    plan = small_plan(own, settings.people, settings.batch)
    return replace(whole, people=whole.people.chosen(torch.arange(plan.people))), plan


@dataclass(kw_only=True)
class _Received:
    """A recorder that keeps all numbers that the observer receives in a run: about one person, and in all."""

    observer: object
    person: int
    own: list[Tensor]
    everything: list[Tensor]

    def watch(self, event: StepEvent) -> None:
        messages: tuple[Tensor, ...] = ()
        if self.observer == PASSIVE_PARTY:
            messages = event.gradients[:1]
        elif self.observer == ACTIVE_PARTY and event.sent:
            messages = event.embeddings[:1]
        here = event.people == self.person
        for values in messages:
            self.everything.append(values.flatten(1))
            if bool(here.any()):
                self.own.append(values[:, here].flatten(1))


def measured(
    job: VerticalAuditJob, task: VerticalTask, plan: VerticalPlan, protection: VerticalProtection
) -> Measurement:
    """Return the lower bound on epsilon, the best of the bounds by each score, which share alpha."""
    settings, streams = _settings(job), Streams(job.seed)
    if settings.design == "one_run":
        labels = frequent(task)
        return measured_in_one_run(job.claim, task, plan, protection, streams=streams, pair=labels, alpha=job.alpha)
    pair = _labels(task) if job.claim.unit is Unit.LABEL else _rows(task, plan, protection, streams)
    arms = [_runs(job.claim, task, plan, protection, streams, pair, arm, settings.pilot, 0) for arm in (0, 1)]
    scores = [discriminant(out, within) for out, within in zip(*arms, strict=True)]
    first = -(-settings.pilot // BLOCK)
    tested = [_runs(job.claim, task, plan, protection, streams, pair, arm, settings.replicas, first) for arm in (0, 1)]
    witness = f"one person's {pair.words}, {settings.replicas} runs per arm, score: a linear discriminant of "
    bounds = []
    for score, out, within, words in zip(scores, *tested, (f"messages about {pair.who}", "all messages"), strict=False):
        shown = MembershipScores(score(within), score(out), Setting.claimed(job.claim))
        bounds.append(
            clopper_pearson(
                shown,
                delta=job.claim.delta,
                alpha=job.alpha / len(scores),
                threshold=SplitThreshold(0.5, curve=job.claim.curve),
                curve=job.claim.curve,
                epsilon=job.claim.epsilon,
                witness=witness + words,
            )
        )
    return best_bound(bounds)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pair:
    """Two data sets that differ in one person: the arm's number -> what is planted in so many replicas."""

    person: int
    plant: Callable[[int, int], Planted]
    words: str
    who: str = "this person"


def frequent(task: VerticalTask) -> tuple[int, int]:
    """Return the most and the second most frequent label, which no prior excludes."""
    counts = torch.bincount(task.public.labels, minlength=task.network.classes)
    first, second = torch.argsort(counts, descending=True, stable=True)[:2].tolist()
    return first, second


def _labels(task: VerticalTask) -> _Pair:
    """Two labels of one person."""
    first, second = frequent(task)

    def plant(arm: int, replicas: int) -> Planted:
        labels = task.people.labels.clone()
        labels[0] = (first, second)[arm]
        return Planted(labels=labels.expand(replicas, -1).clone())

    return _Pair(person=0, plant=plant, words=f"label {first} or {second}")


def _rows(task: VerticalTask, plan: VerticalPlan, protection: VerticalProtection, streams: Streams) -> _Pair:
    """Two rows of one person at the first party, long ones, whose embeddings point in the most different directions."""
    rng = streams.generator("audit rows")
    block = task.people.columns[0]
    length = LENGTH * float(block.norm(dim=1).mean())
    directions = normal(rng, (ROWS, block.shape[1]))
    rows = length * directions / directions.norm(dim=1, keepdim=True)
    rows = torch.cat([rows, -rows])
    layers = task.network.initial(streams).bottoms[0]
    values = task.network.bottoms[0].forward(layers, rows.unsqueeze(0))[0][0]
    cosines = torch.nn.functional.normalize(values, dim=1)
    worst = int((cosines @ cosines.T).argmin())
    chosen = rows[worst // len(rows)], rows[worst % len(rows)]

    def plant(arm: int, replicas: int) -> Planted:
        return Planted(person=0, rows={0: chosen[arm].expand(replicas, -1).clone()})

    return _Pair(person=0, plant=plant, words=f"rows at the first party, {LENGTH:g} times as long as the others")


def _runs(
    claim: Claim,
    task: VerticalTask,
    plan: VerticalPlan,
    protection: VerticalProtection,
    streams: Streams,
    pair: _Pair,
    arm: int,
    count: int,
    first: int,
) -> list[FloatArray]:
    """What the observer received in ``count`` runs of one arm: (count, numbers) about the person, and in all."""
    kept: list[list[Tensor]] = []
    for number in range(-(-count // BLOCK)):
        size = min(BLOCK, count - number * BLOCK)
        seen = _Received(observer=claim.observer, person=pair.person, own=[], everything=[])
        final = run_vertical(
            task,
            plan,
            protection,
            streams,
            runs=Runs(replicas=size, block=first + number, world=arm),
            planted=pair.plant(arm, size),
            recorders=[seen],
        )
        parts = [torch.cat(numbers, dim=1) for numbers in (seen.own, seen.everything) if numbers]
        if claim.observer == FINAL_MODEL:
            parts = [torch.cat([layer.flatten(1) for layers in (*final.bottoms, final.top) for layer in layers], dim=1)]
        kept.append(parts)
    return [torch.cat(blocks).double().numpy() for blocks in zip(*kept, strict=True)]
