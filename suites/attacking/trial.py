"""Train one federation and run every attack of the suite on it; a failure is stored as a result row.

Observers that do not learn which client sent which update are scored as if all clients were one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ...attacks.attack import Knowledge, Level
from ...attacks.uploads import reduce_view
from ...audit.evidence import (
    AttributeScores,
    CandidateScores,
    Exposures,
    LabelCounts,
    PropertyEstimates,
    Reconstructions,
    SourceScores,
    TokenGuesses,
)
from ...audit.observer import UPLOADS
from ...audit.wording import counted
from ...fl.candidates import PlantedCandidates, PlantedOwners, PlantedRecords
from ...fl.engine import ResumeState, run_federation
from ...fl.hooks import Recorder
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.recorder import (
    LotRecorder,
    RoundEvent,
    View,
    ViewRecorder,
)
from ...fl.streams import Streams
from ...fl.task import Task
from ..config.recorded import recording_of
from ..config.resolve import executor_of, plan_of, task_of
from ..config.tables.suite import FederationSpec, PlanChange
from ..results.cell import Cell
from ..results.record import Record
from ..results.store import Store
from ..scoring.attribute_rows import score_attributes, score_properties
from ..scoring.label_rows import score_label_counts, score_tokens
from ..scoring.membership_rows import all_scores, counted_scores, score_exposures, score_membership, score_source
from ..scoring.reconstruction_rows import score_reconstructions
from ..scoring.utility_rows import Course, utility_rows
from .checkpoint import Checkpoint
from .finished_cells import AttackCell, Clock, Works, run_attack
from .jobs import TrainingJob
from .recorded import check_recorded, known_rows, senders_of, unscored, watch_recording
from .worst_case import worst_case_hypotheses


@dataclass(frozen=True, kw_only=True)
class TrialJob(TrainingJob):
    """A job that trains one federation once and runs all attacks on it.

    Args:
        training: the cell that measures utility; None for a federation that borrows its calibration.
        device: where it is trained, and where its attacks search for images.
    """

    federation: FederationSpec
    change: PlanChange
    protection: Protection
    device: str = "cpu"

    @property
    def words(self) -> str:
        return f"{counted(self.federation.clients, 'client')}, {counted(self.federation.rounds, 'round')}"

    def trained(self, store: Store, clock: Clock) -> "TrainedTrial":
        return _train(self, clock, self._checkpoint(store))

    def utility(self, cell: Cell, trained: "TrainedTrial", store: Store) -> list[Record]:
        rows = utility_rows(cell, trained.task, trained.final[0], trained.course, store)
        return rows if self.federation.recording is None else known_rows(rows, recording_of(self.federation))

    def attacked(self, item: AttackCell, trained: "TrainedTrial", store: Store) -> list[Record]:
        return _attack(item, self, trained, store)

    def works(self, store: Store, trained: "TrainedTrial") -> Works:
        yield from super().works(store, trained)
        # Reached when the rows of all cells are stored.
        if (checkpoint := self._checkpoint(store)) is not None:
            checkpoint.discard()

    def _checkpoint(self, store: Store) -> Checkpoint | None:
        """That of a trial without attacks; with attacks there is none, because it does not hold their views."""
        return None if self.training is None or self.attacks else Checkpoint(store=store, cell_id=self.training.cell_id)


Planted = PlantedCandidates | PlantedOwners


@dataclass(kw_only=True)
class TrainedTrial:
    """A trained federation together with everything that was recorded during its training.

    Args:
        candidates: by attack: its candidates, None where it needs none, or the error where choosing them failed.
        lots: by client: the drawn lots of the clients about which candidates are scored, and of all clients where an
            attack uses uploads.
    """

    task: Task
    plan: Plan
    streams: Streams
    final: Tensor
    views: dict[str, View]
    candidates: dict[str, Planted | Exception | None]
    lots: dict[int, LotRecorder]
    course: Course


def _train(job: TrialJob, clock: Clock, checkpoint: Checkpoint | None) -> TrainedTrial:
    task, streams = task_of(job.federation, job.seed), Streams(job.seed)
    plan = plan_of(job.federation, job.change, task)
    candidates = {item.entry.label: _candidates(item, task, streams) for item in job.attacks}
    observers = {str(item.entry.observer): item.entry.observer for item in job.attacks}
    recorders = {name: ViewRecorder(observer=observer) for name, observer in observers.items()}
    with_samples = [one for one in candidates.values() if isinstance(one, PlantedCandidates)]
    with_lots = {client for one in with_samples for client in one.shown.clients}
    # An attack on uploads is scored against every client's lots; a worst-case attack on sums knows all other lots.
    if None in candidates.values() or any(_knows_sums(item) for item in job.attacks):
        with_lots |= set(range(task.clients))
    lots = {client: LotRecorder(client=client) for client in sorted(with_lots)}
    course = Course.of(task, plan, job.protection)
    watching: list[Recorder[RoundEvent]] = [*recorders.values(), *lots.values(), *course.recorders]
    if job.federation.recording is not None:
        final = watch_recording(recording_of(job.federation), plan, watching)
    else:
        final = run_federation(
            task,
            plan,
            job.protection,
            streams,
            recorders=watching,
            resume_from=None if checkpoint is None else _resumed(checkpoint, plan, clock, course),
            on_round_end=None if checkpoint is None else partial(_keep, checkpoint, clock, course),
            executor=executor_of(job.federation),
            device=job.device,
        )
    if not bool(torch.isfinite(final).all()):
        raise FloatingPointError("training diverged: the final model holds NaN or infinity")
    views = {name: recorder.view(plan, final) for name, recorder in recorders.items()}
    return TrainedTrial(
        task=task,
        plan=plan,
        streams=streams,
        final=final,
        views=views,
        candidates=candidates,
        lots=lots,
        course=course,
    )


def _resumed(checkpoint: Checkpoint, plan: Plan, clock: Clock, course: Course) -> ResumeState | None:
    """The state at an earlier session's checkpoint; its recorders' content and its times are restored as well."""
    found = checkpoint.load(plan)
    if found is None:
        return None
    course.restore(found.recorded)
    clock.cpu, clock.wall = clock.cpu - found.cpu_s, clock.wall - found.wall_s
    return found.resume_state


def _keep(checkpoint: Checkpoint, clock: Clock, course: Course, resume_state: ResumeState) -> None:
    times = clock.fields()
    checkpoint.save_if_due(resume_state, recorded=course.content, cpu_s=times["cpu_s"], wall_s=times["wall_s"])


def _knows_sums(item: AttackCell) -> bool:
    return item.entry.attack.level is Level.WORST_CASE and item.entry.observer.rank < UPLOADS.rank


def _candidates(item: AttackCell, task: Task, streams: Streams) -> Planted | Exception | None:
    """An attack's candidates, or the error: only that attack's cell fails, the federation is trained for the others."""
    try:
        # One stream for all attacks: those with equally many candidates get the same ones and can be compared.
        return item.entry.attack.plant(task, streams.generator("candidates"))
    except Exception as error:
        return error


def _attack(item: AttackCell, job: TrialJob, trained: TrainedTrial, store: Store) -> list[Record]:
    attack, label = item.entry.attack, item.entry.label
    recording = None if job.federation.recording is None else recording_of(job.federation)
    if recording is not None:
        check_recorded(item.entry, recording)
    view, planted = trained.views[str(item.entry.observer)], trained.candidates[label]
    if isinstance(planted, Exception):
        raise planted
    hypotheses = None
    if isinstance(planted, PlantedCandidates) and attack.level is Level.WORST_CASE:
        hypotheses = worst_case_hypotheses(trained.task, trained.plan, job.protection, trained.lots, view, planted)
    knowledge = Knowledge.of(
        trained.task,
        trained.plan,
        job.protection,
        level=attack.level,
        candidates=None if planted is None else planted.shown,
        hypotheses=hypotheses,
    )
    # An active server changes what clients train on, so its view comes from a federation of its own.
    if attack.active:
        view = _tampered(item, job, trained, knowledge)
    if item.entry.reduced_to is not None and not attack.handles_reduced_views:
        reduced = reduce_view(view, knowledge)
        view, knowledge = reduced.view, reduced.knowledge
    evidence = run_attack(attack, view, knowledge, trained.streams.generator(f"attack {label}"), device=job.device)
    senders = None
    if recording is not None:
        if recording.truth is None:
            return unscored(item.cell, evidence, store)
        senders = senders_of(attack, view)
    return score(item.cell, evidence, trained, planted, store, adversary=attack.adversary, senders=senders)


def _tampered(item: AttackCell, job: TrialJob, trained: TrainedTrial, knowledge: Knowledge) -> View:
    """The observer's view of a second federation, with the same data and random draws, whose server is the attacker."""
    recorder, plan = ViewRecorder(observer=item.entry.observer), trained.plan
    tamper = partial(item.entry.attack.tamper, knowledge=knowledge)
    final = run_federation(
        trained.task,
        plan,
        job.protection,
        trained.streams,
        recorders=[recorder],
        tamper=tamper,
        executor=executor_of(job.federation),
        device=job.device,
    )
    return recorder.view(plan, final)


def score(
    cell: Cell,
    evidence: object,
    trained: TrainedTrial,
    planted: Planted | None,
    store: Store,
    *,
    adversary: str,
    senders: tuple[int, ...] | None = None,
) -> list[Record]:
    """Compare one attack's output with the true data; return the result rows. ``senders``: the clients whose updates
    the attacked round of a recording holds.
    """
    if isinstance(evidence, CandidateScores):
        if planted is None:
            raise TypeError(
                "the attack returned membership scores, but its method plant() named no candidates to score"
            )
        if isinstance(planted, PlantedOwners):
            return score_membership(cell, all_scores(evidence, planted.member), store, adversary=adversary)
        return score_membership(cell, counted_scores(evidence, planted), store, adversary=adversary)
    if isinstance(evidence, SourceScores):
        if not isinstance(planted, PlantedCandidates):
            raise TypeError(
                "the attack returned source-inference scores, but its method plant() named no candidates to score"
            )
        return score_source(cell, evidence, planted, store)
    if isinstance(evidence, AttributeScores):
        if not isinstance(planted, PlantedRecords):
            raise TypeError("the attack returned attribute scores, but its method plant() named no records to score")
        return score_attributes(cell, evidence, planted, trained.task, store)
    if isinstance(evidence, PropertyEstimates):
        return score_properties(cell, evidence, trained.task, store)
    if isinstance(evidence, Exposures):
        if not isinstance(planted, PlantedCandidates):
            raise TypeError("the attack returned exposures, but its method plant() named no secrets to score")
        return score_exposures(cell, evidence, planted, store, adversary=adversary)
    task, lots = trained.task, trained.lots
    if isinstance(evidence, Reconstructions | LabelCounts | TokenGuesses) and is_pooled(evidence):
        pool = pooled_truth(task, trained.plan, lots)
        evidence, task, lots = pooled_evidence(evidence), pool.task, pool.lots
    if isinstance(evidence, Reconstructions):
        return score_reconstructions(cell, evidence, task, store, None if is_pooled(evidence) else senders)
    if isinstance(evidence, LabelCounts):
        return score_label_counts(cell, evidence, task, trained.plan, lots)
    if isinstance(evidence, TokenGuesses):
        return score_tokens(cell, evidence, task, trained.plan, lots)
    raise TypeError(
        "an attack must return CandidateScores, SourceScores, AttributeScores, PropertyEstimates, Reconstructions, "
        f"LabelCounts, TokenGuesses or Exposures, got {type(evidence).__name__}"
    )


@dataclass(frozen=True, kw_only=True)
class PooledTruth:
    """A federation's data as if one client held the samples of all clients, with the batches of samples used in
    training.
    """

    task: Task
    lots: dict[int, LotRecorder]


def is_pooled(evidence: Reconstructions | LabelCounts | TokenGuesses) -> bool:
    """Return whether an attack's output comes from an observer that does not learn which client sent which update."""
    return evidence.setting.observer.rank < UPLOADS.rank


def pooled_evidence(
    evidence: Reconstructions | LabelCounts | TokenGuesses,
) -> Reconstructions | LabelCounts | TokenGuesses:
    """Return an attack's output as if all clients had sent one joint update. It holds all reconstructed images or
    texts, or the counts of labels or tokens summed over all clients.
    """
    if isinstance(evidence, Reconstructions):
        return replace(evidence, uploads=np.zeros(len(evidence.images), dtype=np.int64))
    if isinstance(evidence, TokenGuesses):
        texts = None if evidence.texts is None else (np.concatenate(evidence.texts),)
        return replace(evidence, counts=evidence.counts.sum(0, keepdims=True), texts=texts)
    return replace(evidence, counts=evidence.counts.sum(0, keepdims=True))


def pooled_truth(task: Task, plan: Plan, lots: Mapping[int, LotRecorder]) -> PooledTruth:
    """Merge all clients' samples and training batches as if a single client held them, in the order of the clients."""
    rounds = [
        _pooled_masks([_counted(lots[client].lots[number], plan, part) for client, part in enumerate(task.parts)])
        for number in range(max((len(found.lots) for found in lots.values()), default=0))
    ]
    return PooledTruth(
        task=replace(task, parts=(torch.cat(task.parts),)),
        lots={0: LotRecorder(client=0, lots=rounds)},
    )


def _counted(masks: list[Tensor], plan: Plan, part: Tensor) -> list[Tensor]:
    # A full lot is the same in each step: its samples are in the truth only once.
    counted = masks[:1] if plan.lot.rate(len(part)) == 1 else masks
    # A client that took no part keeps its place in the mask, so that indices of the pooled lot stay right.
    return counted or [torch.zeros(1, len(part), dtype=torch.bool)]


def _pooled_masks(clients: list[list[Tensor]]) -> list[Tensor]:
    """For each step the concatenated masks of all clients; a client that takes fewer steps has an empty mask."""
    steps = max(len(masks) for masks in clients)
    return [
        torch.cat([masks[step] if step < len(masks) else torch.zeros_like(masks[0]) for masks in clients], dim=1)
        for step in range(steps)
    ]
