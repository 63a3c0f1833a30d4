"""Build the small federation to which an audit adds a canary, and determine what its observer receives and knows."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from ...attacks.attack import Knowledge, Level
from ...audit.claim import HELD_BY_CLIENTS, Adjacency, Unit
from ...audit.estimators.release_tests import GaussianRelease
from ...audit.observer import FINAL_MODEL
from ...checks.canaries import check_covered
from ...fl.canary import Canaries, Canary, CanarySet, DataCanary
from ...fl.engine import run_federation
from ...fl.laws.law import GaussianLaw, Law
from ...fl.plan import Plan
from ...fl.recorder import ViewRecorder
from ...fl.streams import Streams
from ...fl.task import Task
from ...fl.training.local import Batch
from ...fl.view import View
from ..config.resolve import audited, executor_of, plan_of, task_of
from ..jobs.block_job import AuditRequest, BlockJob

_CLIENTS, _WORK = 16, 2**25
"""Clients of a federation that is checked as a whole at most, and per-sample gradients of one run in numbers."""
_SAMPLES, _NUMBERS = 4, 2**22
"""Samples of each client for checks of the claim's own model, and per-sample gradients of one round in numbers: larger
models are not checked.
"""


def audited_federation(job: BlockJob) -> tuple[Task, Plan]:
    """Build the audit's federation: the first clients of the claim's federation, a few samples each, and a model with
    extra weights that no data changes.

    A claim holds for every data set and model, so also for this small one; rounds, sampling, algorithm and protection
    are the claim's own. Where a sample is replaced the number of samples is public and stays, and a claim may rest on
    it: clients then keep theirs.
    """
    return small_federation(job, job.inert)


def small_federation(request: AuditRequest, inert: int) -> tuple[Task, Plan]:
    """Build the audit's federation with so many ``inert`` weights."""
    task = task_of(audited(request.federation, request.audit), request.seed)
    replaced = (request.claim.unit, request.claim.adjacency) == (Unit.SAMPLE, Adjacency.REPLACE_ONE)
    samples = max(task.sizes) if replaced else request.audit.samples_per_client
    task = task.restricted(clients=request.audit.clients, samples=samples).with_inert(inert)
    return task, plan_of(request.federation, request.change, task)


def federation_of(request: AuditRequest) -> tuple[Task, Plan]:
    """Build the claim's own federation at full size: a guarantee behind a shuffler depends on the number of clients,
    and numbers of the protection may depend on the plan.
    """
    task = task_of(request.federation, request.seed)
    return task, plan_of(request.federation, request.change, task)


def checked_federation(job: BlockJob) -> tuple[Task, Plan]:
    """Build the federation of the implementation checks: all clients with their own sizes, or a seeded sample of them
    with the largest and the smallest.

    Where there are too many samples, each client keeps the same share.
    """
    # The replays need a weight that no data moves; the defense is prepared for it like for any other.
    task = task_of(audited(job.federation, job.audit), job.seed).with_inert(max(1, job.inert))
    if task.clients > _CLIENTS:
        order = sorted(range(task.clients), key=lambda client: (task.sizes[client], client))
        drawn = Streams(job.seed).generator("checked clients").permutation(order[1:-1])[: _CLIENTS - 2]
        task = replace(task, parts=tuple(task.parts[k] for k in sorted([order[0], order[-1], *drawn.tolist()])))
    plan = plan_of(job.federation, job.change, task)
    work = sum(plan.sizes) * plan.layout.dim * job.claim.rounds * plan.algorithm.local_steps
    if work > _WORK:
        # A replaced sample leaves the number of samples public, so that a claim may rest on it.
        if (job.claim.unit, job.claim.adjacency) == (Unit.SAMPLE, Adjacency.REPLACE_ONE):
            return small_federation(job, max(1, job.inert))
        parts = tuple(part[: max(2, math.ceil(len(part) * _WORK / work))] for part in task.parts)
        task = replace(task, parts=parts)
    return task, plan_of(job.federation, job.change, task)


def own_model_federation(job: BlockJob) -> tuple[Task, Plan] | None:
    """Build a few clients of the claim's federation, with a few samples each and the claim's own model and data; None
    where the checks run this model anyway, or where it is too large or mixes the samples of a batch.
    """
    if job.audit.model == job.federation.model:
        return None
    task = task_of(job.federation, job.seed)
    if task.network.mixes:
        return None
    task = task.with_inert(max(1, job.inert))
    order = sorted(range(task.clients), key=lambda client: (-task.sizes[client], client))
    # The largest and the smallest client, and one between them.
    chosen = sorted({order[0], order[-1], order[len(order) // 2]})
    largest = task.sizes[order[0]]
    # Sizes keep their proportions, on which weights depend.
    parts = tuple(task.parts[k][: max(2, math.ceil(_SAMPLES * task.sizes[k] / largest))] for k in chosen)
    task = replace(task, parts=parts)
    plan = plan_of(job.federation, job.change, task)
    work = sum(plan.sizes) * plan.layout.dim * plan.algorithm.local_steps
    return None if work > _NUMBERS else (task, plan)


def inseparable(request: AuditRequest) -> str:
    """Return an empty string if a canary can be added. Otherwise return the reason, which is that the audit's model
    mixes the samples of a batch.
    """
    if not (request.protection.per_sample or request.claim.unit is Unit.SAMPLE):
        return ""
    network = task_of(audited(request.federation, request.audit), request.seed).network
    return f"{network.mixture}: this claim is not audited there" if network.mixes else ""


def published_law(job: BlockJob, plan: Plan) -> Law | None:
    """Return the noise distribution that the defense publishes for what the claim's observer receives from the canary's
    client.
    """
    return job.protection.law(job.claim.observer, plan, _holder(job, plan))


def _holder(job: BlockJob, plan: Plan) -> int:
    """The first client that holds the canary, or is it."""
    if job.claim.unit in HELD_BY_CLIENTS:
        return 0
    # A canary that is a client is numbered after the plan's clients, unless it takes the place of one.
    return plan.clients if job.place is None else job.place


def canary_length(job: BlockJob, plan: Plan) -> float:
    """Return the canary's norm, which is ``canary_norm`` times the clip norm. The clip norm is taken from the published
    noise distribution, else from the claim, and is 1 if neither states it.
    """
    law = published_law(job, plan)
    if isinstance(law, GaussianLaw):
        return job.audit.canary_norm * law.clip_norm
    published = job.claim.parameters.get("clip_norm", 1.0)
    return job.audit.canary_norm * (float(published) if isinstance(published, int | float) else 1.0)


def claimed_release(job: BlockJob) -> GaussianRelease | None:
    """Return the claimed noise distribution of what the canary's client releases, in units of the sensitivity to the
    canary.

    None where no Gaussian law of a round is published or observed, where the rest of the release is not zero along the
    canary, or where the canary's client takes part in fewer rounds than the release has: scores of that law would be no
    likelihood ratios.
    """
    check_covered(job.claim)
    _, plan = audited_federation(job)
    length, law = canary_length(job, plan), published_law(job, plan)
    # A final model shows no single round that a law could score.
    if not job.inert or not isinstance(law, GaussianLaw) or law.then or job.claim.observer.rank == FINAL_MODEL.rank:
        return None
    if law.noise_std == 0:
        # Without noise there is no likelihood to compare; the law's epsilon says what that means.
        return None
    if plan.cohort.participations(job.claim.rounds) < job.claim.rounds:
        return None
    row = torch.zeros(plan.layout.dim)
    # Inert weights are the last ones of the model.
    row[-1] = length
    return release_of(law, row, replaced=job.claim.adjacency is Adjacency.REPLACE_ONE, rounds=job.claim.rounds)


def release_of(law: GaussianLaw, row: Tensor, *, replaced: bool, rounds: int) -> GaussianRelease:
    """Return the noise distribution rescaled so that the canary, array ``row (d,)``, has sensitivity 1.

    The canary is present or absent (or zero), or with ``replaced`` it is the row or its negative.
    """
    # Both rows pass the law's own clipping: the sensitivity is what is left of the canary, not its length.
    shift = law.contribution(row) - (law.contribution(-row) if replaced else 0)
    sigma = law.noise_std / (float(torch.linalg.vector_norm(shift)) * law.steps**0.5)
    return GaussianRelease(
        sigma=sigma,
        rate=law.rate,
        steps=law.steps,
        rounds=rounds,
        spacing=law.grid / law.noise_std if law.grid else 0.0,
    )


def observed(
    job: BlockJob, task: Task, plan: Plan, canary: Canaries, batch: Batch, *, senders: tuple[int, ...]
) -> View:
    """Run a batch of federations over the rounds that the claim covers; return what the claim's observer receives.

    With canaries along inert weights the view contains these weights only, and of uploads only those of ``senders``.
    """
    # Whole models of hundreds of replicas would not fit into memory.
    kept = slice(plan.layout.model_dim, plan.layout.dim) if job.inert else None
    recorder = ViewRecorder(observer=job.claim.observer, coordinates=kept, senders=senders)
    final = run_federation(
        task,
        plan,
        job.protection,
        Streams(job.seed),
        batch=batch,
        canary=canary,
        recorders=[recorder],
        stop_after=job.claim.rounds,
        executor=executor_of(job.federation),
        device=job.device,
    )
    return recorder.view(plan, final)


def knowledge(job: BlockJob, task: Task, plan: Plan, canary: Canary | DataCanary | CanarySet) -> Knowledge:
    """Return what the worst-case (DP) adversary knows: everything except whether the canary is present."""
    return Knowledge.of(
        task,
        plan,
        job.protection,
        level=Level.WORST_CASE,
        canary=canary,
        initial=task.initial(Streams(job.seed)),
    )
