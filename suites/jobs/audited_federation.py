"""Audited federation: the small federation that a claim is tried on, and what its observer sees and knows of it."""

import torch
from torch import Tensor

from ...attacks.attack import Knowledge, Level
from ...audit.claim import Adjacency, Unit
from ...audit.estimators.release_tests import GaussianRelease
from ...audit.observer import FINAL_MODEL
from ...fl.canary import Canaries, Canary, CanarySet, DataCanary
from ...fl.engine import run_federation
from ...fl.laws.law import GaussianLaw, Law
from ...fl.plan import Plan
from ...fl.recorder import ViewRecorder
from ...fl.streams import Streams
from ...fl.task import Task
from ...fl.training.local import Batch
from ...fl.view import View
from ..config.canaries import check_covered
from ..config.resolve import audited, plan_of, task_of
from .cells import BlockJob
from .crafted_reports import report_law
from .queried_lots import audited_law


def audited_federation(job: BlockJob) -> tuple[Task, Plan]:
    """The first clients of the claim's federation, with few samples each and an unused weight for each Dirac canary.

    A claim holds for every data set and model, so also for this small one; rounds, sampling, algorithm and protection
    are the claim's own. Where a sample is replaced the number of samples is public and stays, and a claim may rest on
    it: clients then keep theirs.
    """
    inert = 0 if job.audit.canary != "dirac" else job.audit.canaries or 1
    task = task_of(audited(job.federation, job.audit), job.seed)
    replaced = (job.claim.unit, job.claim.adjacency) == (Unit.SAMPLE, Adjacency.REPLACE_ONE)
    samples = max(task.sizes) if replaced else job.audit.samples_per_client
    task = task.restricted(clients=job.audit.clients, samples=samples).with_inert(inert)
    return task, plan_of(job.federation, job.change, task)


def inseparable(job: BlockJob) -> str:
    """Why no canary can stand in the audit's own federation, whose model mixes samples; empty where one can, or where
    the audit trains no model.
    """
    of_samples = job.protection.per_sample or job.claim.unit is Unit.SAMPLE
    if not of_samples or audited_law(job) is not None:
        return ""
    network = task_of(audited(job.federation, job.audit), job.seed).network
    return f"{network.mixture}: this claim is not audited there" if network.mixes else ""


def published_law(job: BlockJob, plan: Plan) -> Law | None:
    """What the defense publishes about the canary's sender, as the claim's observer sees it."""
    return job.protection.law(job.claim.observer, plan, 0 if job.claim.unit is Unit.SAMPLE else plan.clients)


def canary_length(job: BlockJob, plan: Plan) -> float:
    """``canary_norm`` times the clip norm that the defense publishes, in its law or its claim; 1 where it publishes
    none.
    """
    law = published_law(job, plan)
    if isinstance(law, GaussianLaw):
        return job.audit.canary_norm * law.clip_norm
    published = job.claim.parameters.get("clip_norm", 1.0)
    return job.audit.canary_norm * (float(published) if isinstance(published, int | float) else 1.0)


def claimed_release(job: BlockJob) -> GaussianRelease | None:
    """The claimed law of what the canary's sender releases, over the canary's sensitivity.

    None where no law of a round is published or seen, or where the rest of the release is not zero along the canary:
    scores of that law would be no likelihood ratios.
    """
    if report_law(job) is not None:
        return None
    check_covered(job.claim)
    _, plan = audited_federation(job)
    length, law = canary_length(job, plan), published_law(job, plan)
    if job.audit.canary != "dirac" or not isinstance(law, GaussianLaw) or job.claim.observer.rank == FINAL_MODEL.rank:
        return None
    row = torch.zeros(plan.layout.dim)
    row[-1] = length
    return release_of(law, row, replaced=job.claim.adjacency is Adjacency.REPLACE_ONE, rounds=job.claim.rounds)


def release_of(law: GaussianLaw, row: Tensor, *, replaced: bool, rounds: int) -> GaussianRelease:
    """The law over the sensitivity to a canary ``row (d,)`` that is there or not (or zero), or ``replaced`` by its
    negative.
    """
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
    """What the claim's observer sees of a batch of federations over the rounds that the claim covers.

    Of Dirac canaries only the unused weights are kept, of uploads only ``senders``.
    """
    inert = slice(plan.layout.model_dim, plan.layout.dim)
    recorder = ViewRecorder(
        observer=job.claim.observer, coordinates=inert if job.audit.canary == "dirac" else None, senders=senders
    )
    final = run_federation(
        task,
        plan,
        job.protection,
        Streams(job.seed),
        batch=batch,
        canary=canary,
        recorders=[recorder],
        stop_after=job.claim.rounds,
    )
    return recorder.view(plan, final)


def knowledge(job: BlockJob, task: Task, plan: Plan, canary: Canary | DataCanary | CanarySet) -> Knowledge:
    """Everything but the one bit."""
    return Knowledge.of(
        task,
        plan,
        job.protection,
        level=Level.WORST_CASE,
        canary=canary,
        initial=task.network.initial(Streams(job.seed).generator("init")),
    )
