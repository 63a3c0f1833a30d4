"""Replicas: plant a canary in many independent federations, both worlds, and keep what each shows of it."""

import json

import numpy as np
import torch

from ..attacks.attack import Knowledge, Level
from ..attacks.canary import CanaryProjections, canary_sender, worlds
from ..audit.claim import Adjacency, Claim, Unit
from ..audit.evidence import Projections
from ..audit.twins import Release
from ..fl.engine import run_federation
from ..fl.law import GaussianLaw
from ..fl.local import Batch
from ..fl.plan import Plan
from ..fl.probe import Canary
from ..fl.protection import Protection
from ..fl.recorder import ViewRecorder
from ..fl.streams import Streams
from ..fl.task import Task
from .cells import BlockJob
from .resolve import audited, plan_of, task_of
from .store import Store
from .trial import Clock, failures_as_rows

SETTING = "setting.json"
"""What a block's scores are evidence of, as the attack says it."""


def run_block(job: BlockJob, store: Store, finished: frozenset[str]) -> list[str]:
    """Score the block's replicas and write them; returns what failed. OSError if the disk refuses."""
    if job.cell.cell_id in finished:
        return []
    torch.set_num_threads(1)
    clock = Clock()
    with failures_as_rows([job.cell], store, clock) as failed:
        task, plan = audited_federation(job)
        canary = canary_for(job, plan)
        worlds_seen = [
            [_evidence(job, task, plan, canary, world, size, n) for n, size in enumerate(_batches(job))]
            for world in (0, 1)
        ]
        check_independent(worlds_seen[0], claimed_release(job))
        artifact = save_projections(job, worlds_seen, store)
        row = job.cell.record(
            metric="replicas", value=job.replicas, n=job.replicas, unit="replicas a world", artifact=artifact
        )
        store.finish(job.cell.cell_id, [row.model_copy(update=clock.fields())])
    return failed


def check_independent(batches: list[Projections], release: Release | None) -> None:
    """Replicas without the canary must differ: equal ones share a noise draw, and are no independent trials.

    Raises:
        ValueError: if, under a law with noise, more than a tenth of the replicas repeat another one bit for bit.
    """
    values = np.concatenate([batch.values for batch in batches])
    if release is not None and len(np.unique(values, axis=0)) < 0.9 * len(values):
        raise ValueError(
            "replicas share their noise: draw it in the shape of the whole tensor, replicas first, "
            "not once for all of them"
        )


def save_projections(job: BlockJob, worlds_seen: list[list[Projections]], store: Store) -> str:
    """Keep a block's evidence of both worlds (out, in), batch after batch, with its setting; returns the artifact's
    path.
    """
    arrays = {}
    for name, batches in zip(("nonmember", "member"), worlds_seen, strict=True):
        arrays[name] = np.concatenate([batch.values for batch in batches]).astype(np.float32)
        arrays[f"{name}_seen"] = np.concatenate([batch.seen for batch in batches])
    store.save_text(job.cell.cell_id, SETTING, json.dumps(worlds_seen[0][0].setting.to_dict()))
    return store.save_arrays(job.cell.cell_id, "projections", arrays)


def audited_federation(job: BlockJob) -> tuple[Task, Plan]:
    """The first clients of the claim's federation, with few samples each and one unused weight for the canary.

    A claim holds for every data set and model, so also for this small one; rounds, sampling, algorithm and protection
    are the claim's own.
    """
    task = task_of(audited(job.federation, job.audit), job.seed)
    task = task.restricted(clients=job.audit.clients, samples=job.audit.samples_per_client).with_inert(1)
    return task, plan_of(job.federation, job.change, task)


def canary_for(job: BlockJob, plan: Plan) -> Canary:
    """The canary of a claim's unit and adjacency, ``canary_norm`` clip norms long, along the unused weight.

    Raises:
        ValueError: for a unit or adjacency that no canary design covers.
    """
    unit, adjacency = job.claim.unit, job.claim.adjacency
    row = torch.zeros(plan.layout.dim)
    row[-1] = job.audit.canary_norm * clip_norm(job.claim, job.protection, plan)
    if unit in (Unit.SAMPLE, Unit.CLIENT) and adjacency is Adjacency.ADD_REMOVE:
        return Canary(unit=unit, present=row)
    if unit is Unit.REPORT and adjacency is Adjacency.REPLACE_ONE:
        return Canary(unit=unit, present=row, absent=-row)
    raise ValueError(f"no canary design covers unit {unit} under {adjacency}: this claim is not audited")


def clip_norm(claim: Claim, protection: Protection, plan: Plan) -> float:
    """The clip norm that the defense publishes, in its law or its claim; 1 where it publishes none."""
    law = protection.law(claim.observer, plan, plan.clients if claim.unit is not Unit.SAMPLE else 0)
    if isinstance(law, GaussianLaw):
        return law.clip_norm
    published = claim.parameters.get("clip_norm", 1.0)
    return float(published) if isinstance(published, int | float) else 1.0


def claimed_release(job: BlockJob) -> Release | None:
    """The claimed law of what the canary's sender releases, over the canary's sensitivity; None where there is none."""
    _, plan = audited_federation(job)
    canary = canary_for(job, plan)
    law = job.protection.law(job.claim.observer, plan, canary_sender(canary, plan))
    if not isinstance(law, GaussianLaw):
        return None
    shift, _ = worlds(canary, law, None)
    sigma = law.noise_std / (float(torch.linalg.vector_norm(shift)) * law.steps**0.5)
    return Release(sigma=sigma, rate=law.rate, steps=law.steps, rounds=job.claim.rounds)


def _batches(job: BlockJob) -> list[int]:
    whole, rest = divmod(job.replicas, job.audit.batch)
    return [job.audit.batch] * whole + ([rest] if rest else [])


def _evidence(
    job: BlockJob, task: Task, plan: Plan, canary: Canary, world: int, replicas: int, number: int
) -> Projections:
    """One batch of replicas in one world."""
    coordinate = slice(plan.layout.model_dim, plan.layout.dim)
    recorder = ViewRecorder(observer=job.claim.observer, coordinates=coordinate, senders=(canary_sender(canary, plan),))
    streams = Streams(job.seed)
    # Block 0 is the trial's: no replica shares a cohort, a lot or a noise draw with it, another batch or world.
    batch = Batch(replicas=replicas, block=number + 1, world=world)
    final = run_federation(task, plan, job.protection, streams, batch=batch, canary=canary, recorders=[recorder])
    knowledge = Knowledge(
        level=Level.WORST_CASE,
        network=task.network,
        plan=plan,
        law=lambda observer, client: job.protection.law(observer, plan, client),
        public_images=task.test_images,
        public_labels=task.test_labels,
        canary=canary,
    )
    return CanaryProjections().run(recorder.view(plan, final), knowledge, streams.generator("attack canary"))
