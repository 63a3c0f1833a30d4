"""Train one federation and run every attack of the suite on it; a failure is stored as a result row."""

from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor

from ...attacks.attack import Knowledge, Level
from ...attacks.uploads import reduce_view
from ...audit.evidence import CandidateScores, Exposures, LabelCounts, Reconstructions, SourceScores, TokenGuesses
from ...audit.observer import UPLOADS
from ...fl.engine import Recorder, run_federation
from ...fl.plan import Plan
from ...fl.probe import CandidateProbe, OwnerProbe
from ...fl.recorder import LotRecorder, NumbersRecorder, UtilityRecorder, ViewRecorder
from ...fl.resume_state import ResumeState
from ...fl.streams import Streams
from ...fl.task import Task
from ...fl.traffic import TrafficRecorder
from ...fl.view import View
from ..config.resolve import executor_of, plan_of, task_of
from ..jobs.cell import Cell
from ..jobs.trial_job import AttackCell, TrialJob
from ..results.record import Record
from ..results.store import Store
from ..scoring.candidates import all_scores, counted_scores
from ..scoring.exposure_rows import score_exposures
from ..scoring.label_rows import score_label_counts
from ..scoring.membership_rows import score_membership
from ..scoring.reconstruction_rows import score_reconstructions
from ..scoring.source_rows import score_source
from ..scoring.token_rows import score_tokens
from ..scoring.utility_rows import utility_rows
from .checkpoint import Checkpoint
from .device import run_attack
from .finished_cells import Clock, Works, finish_job
from .pooled import is_pooled, pooled_evidence, pooled_truth
from .worst_case import worst_case_hypotheses

Probe = CandidateProbe | OwnerProbe


@dataclass(kw_only=True)
class TrainedTrial:
    """A trained federation together with everything that was recorded during its training.

    Args:
        probes: by attack: its candidates, None where it needs none, or the error where choosing them failed.
        lots: by client: the drawn lots of the clients about which candidates are scored, and of all clients where an
            attack uses uploads.
    """

    task: Task
    plan: Plan
    streams: Streams
    final: Tensor
    views: dict[str, View]
    probes: dict[str, Probe | Exception | None]
    lots: dict[int, LotRecorder]
    utility: UtilityRecorder
    numbers: NumbersRecorder
    traffic: TrafficRecorder


def run_trial(job: TrialJob, store: Store, finished: frozenset[str]) -> list[str]:
    """Train one federation, run and score the attacks on it, and write the results that are not yet stored.

    Returns the titles of failed cells with their reasons.

    Raises:
        UnwritableRunFolder: the cells written before stay.
    """
    checkpoint, clock = _checkpoint(job, store), Clock()

    def works(trained: TrainedTrial) -> Works:
        yield from _works(job, trained, store)
        # Reached when the rows of all cells are stored.
        if checkpoint is not None:
            checkpoint.discard()

    return finish_job(job.cells, store, finished, partial(_train, job, clock, checkpoint), works, clock=clock)


def _checkpoint(job: TrialJob, store: Store) -> Checkpoint | None:
    """The checkpoint of a trial without attacks; with attacks there is none, because it does not hold their views."""
    return None if job.training is None or job.attacks else Checkpoint(store=store, cell_id=job.training.cell_id)


def _train(job: TrialJob, clock: Clock, checkpoint: Checkpoint | None) -> TrainedTrial:
    task, streams = task_of(job.federation, job.seed), Streams(job.seed)
    plan = plan_of(job.federation, job.change, task)
    probes = {item.entry.label: _candidates(item, task, streams) for item in job.attacks}
    observers = {str(item.entry.observer): item.entry.observer for item in job.attacks}
    recorders = {name: ViewRecorder(observer=observer) for name, observer in observers.items()}
    planted = [probe for probe in probes.values() if isinstance(probe, CandidateProbe)]
    with_lots = {client for probe in planted for client in probe.shown.clients}
    # An attack on uploads is scored against every client's lots; a worst-case attack on sums knows all other lots.
    if None in probes.values() or any(_knows_sums(item) for item in job.attacks):
        with_lots |= set(range(task.clients))
    lots = {client: LotRecorder(client=client) for client in sorted(with_lots)}
    utility = UtilityRecorder(task=task, every=plan.marks[0])
    # About 200 points are enough for a figure, and keep the file of a run of 10,000 rounds small.
    numbers = NumbersRecorder(protection=job.protection, plan=plan, every=max(1, plan.rounds // 200))
    traffic = TrafficRecorder()
    watching: list[Recorder] = [*recorders.values(), *lots.values(), utility, numbers, traffic]
    final = run_federation(
        task,
        plan,
        job.protection,
        streams,
        recorders=watching,
        resume_from=None if checkpoint is None else _resumed(checkpoint, plan, clock, utility, numbers, traffic),
        on_round_end=None if checkpoint is None else partial(_keep, checkpoint, clock, utility, numbers, traffic),
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
        probes=probes,
        lots=lots,
        utility=utility,
        numbers=numbers,
        traffic=traffic,
    )


def _resumed(
    checkpoint: Checkpoint,
    plan: Plan,
    clock: Clock,
    utility: UtilityRecorder,
    numbers: NumbersRecorder,
    traffic: TrafficRecorder,
) -> ResumeState | None:
    """The state at an earlier session's checkpoint; its recorders' content and its times are restored as well."""
    found = checkpoint.load(plan)
    if found is None:
        return None
    utility.rows, numbers.rows = found.recorded["utility"], found.recorded["numbers"]
    # A checkpoint without these counts leaves too few rounds, and the rows of bytes name this as their reason.
    for name, count in found.recorded.get("traffic", {}).items():
        setattr(traffic, name, count)
    clock.cpu, clock.wall = clock.cpu - found.cpu_s, clock.wall - found.wall_s
    return found.resume_state


def _keep(
    checkpoint: Checkpoint,
    clock: Clock,
    utility: UtilityRecorder,
    numbers: NumbersRecorder,
    traffic: TrafficRecorder,
    resume_state: ResumeState,
) -> None:
    times = clock.fields()
    recorded = {"utility": utility.rows, "numbers": numbers.rows, "traffic": asdict(traffic)}
    checkpoint.save_if_due(resume_state, recorded=recorded, cpu_s=times["cpu_s"], wall_s=times["wall_s"])


def _knows_sums(item: AttackCell) -> bool:
    return item.entry.attack.level is Level.WORST_CASE and item.entry.observer.rank < UPLOADS.rank


def _candidates(item: AttackCell, task: Task, streams: Streams) -> Probe | Exception | None:
    """An attack's candidates, or the error: only that attack's cell fails, the federation is trained for the others."""
    try:
        # One stream for all attacks: those with equally many candidates get the same ones and can be compared.
        return item.entry.attack.plant(task, streams.generator("candidates"))
    except Exception as error:
        return error


def _works(job: TrialJob, trained: TrainedTrial, store: Store) -> Works:
    if job.training is not None:
        recorded = trained.utility, trained.numbers, trained.traffic
        yield job.training, partial(utility_rows, job.training, trained.task, trained.final[0], *recorded, store)
    yield from ((item.cell, partial(_attack, item, job, trained, store)) for item in job.attacks)


def _attack(item: AttackCell, job: TrialJob, trained: TrainedTrial, store: Store) -> list[Record]:
    attack, label = item.entry.attack, item.entry.label
    view, probe = trained.views[str(item.entry.observer)], trained.probes[label]
    if isinstance(probe, Exception):
        raise probe
    hypotheses = None
    if isinstance(probe, CandidateProbe) and attack.level is Level.WORST_CASE:
        hypotheses = worst_case_hypotheses(trained.task, trained.plan, job.protection, trained.lots, view, probe)
    knowledge = Knowledge.of(
        trained.task,
        trained.plan,
        job.protection,
        level=attack.level,
        candidates=None if probe is None else probe.shown,
        hypotheses=hypotheses,
    )
    # An active server changes what clients train on, so its view comes from a federation of its own.
    if attack.active:
        view = _tampered(item, job, trained, knowledge)
    if item.entry.reduced_to is not None and not attack.handles_reduced_views:
        reduced = reduce_view(view, knowledge)
        view, knowledge = reduced.view, reduced.knowledge
    evidence = run_attack(attack, view, knowledge, trained.streams.generator(f"attack {label}"), device=job.device)
    return score(item.cell, evidence, trained, probe, store, adversary=item.entry.attack.adversary)


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
    cell: Cell, evidence: object, trained: TrainedTrial, probe: Probe | None, store: Store, *, adversary: str
) -> list[Record]:
    """Compare one attack's output with the true data; return the result rows."""
    if isinstance(evidence, CandidateScores):
        if probe is None:
            raise TypeError(
                "the attack returned membership scores, but its method plant() named no candidates to score"
            )
        if isinstance(probe, OwnerProbe):
            return score_membership(cell, all_scores(evidence, probe.member), store, adversary=adversary)
        return score_membership(cell, counted_scores(evidence, probe), store, adversary=adversary)
    if isinstance(evidence, SourceScores):
        if not isinstance(probe, CandidateProbe):
            raise TypeError(
                "the attack returned source-inference scores, but its method plant() named no candidates to score"
            )
        return score_source(cell, evidence, probe, store)
    if isinstance(evidence, Exposures):
        if not isinstance(probe, CandidateProbe):
            raise TypeError("the attack returned exposures, but its method plant() named no secrets to score")
        return score_exposures(cell, evidence, probe, store, adversary=adversary)
    task, lots = trained.task, trained.lots
    if isinstance(evidence, Reconstructions | LabelCounts | TokenGuesses) and is_pooled(evidence):
        pool = pooled_truth(task, trained.plan, lots)
        evidence, task, lots = pooled_evidence(evidence), pool.task, pool.lots
    if isinstance(evidence, Reconstructions):
        return score_reconstructions(cell, evidence, task, store)
    if isinstance(evidence, LabelCounts):
        return score_label_counts(cell, evidence, task, trained.plan, lots)
    if isinstance(evidence, TokenGuesses):
        return score_tokens(cell, evidence, task, trained.plan, lots)
    raise TypeError(
        "an attack must return CandidateScores, SourceScores, Reconstructions, LabelCounts, TokenGuesses or Exposures, "
        f"got {type(evidence).__name__}"
    )
