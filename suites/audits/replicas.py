"""Replicas: independent trials of both worlds, federations with a canary or crafted reports, and what each shows."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...attacks.canary import CanaryProjections, canary_sender
from ...audit.claim import Adjacency, Unit
from ...audit.evidence import Projections
from ...fl.laws.law import GaussianLaw
from ...fl.plan import Plan
from ...fl.streams import Streams
from ...fl.task import Task
from ...fl.training.local import Batch
from ..attacking.trial import Clock, failures_as_rows
from ..checks.replica_checks import check_centred, expected_repeats
from ..config.canaries import DESIGNS, CanaryInputs, PlantedCanary, check_covered
from ..jobs.audited_federation import audited_federation, canary_length, knowledge, observed, published_law
from ..jobs.cells import BlockJob
from ..jobs.crafted_reports import crafted_evidence, report_law
from ..jobs.queried_lots import audited_law, query_evidence
from ..results.store import Store
from .one_run import SETTING, run_one_run

_REPLACED_SAMPLE = (Unit.SAMPLE, Adjacency.REPLACE_ONE)


WORLDS = ("nonmember", "member")


def run_block(job: BlockJob, store: Store, finished: frozenset[str]) -> list[str]:
    """Score the block's replicas, or its one run, and write them; returns what failed. OSError if the disk refuses."""
    if job.cell.cell_id in finished:
        return []
    torch.set_num_threads(1)
    clock = Clock()
    with failures_as_rows([job.cell], store, clock) as failed:
        measured = _crowd_row(job, store) if job.audit.design == "one_run" else _replicas_row(job, store)
        store.finish(job.cell.cell_id, [job.cell.record(**measured, **clock.fields())])
    return failed


def _crowd_row(job: BlockJob, store: Store) -> dict[str, Any]:
    count = job.audit.canaries
    artifact = run_one_run(job, store)
    return {"metric": "canaries", "value": count, "n": count, "unit": "canaries in one run", "artifact": artifact}


def _replicas_row(job: BlockJob, store: Store) -> dict[str, Any]:
    law, more = report_law(job), {}
    if law is not None:
        batches = crafted_evidence(job, law)
        worlds_seen = [[batch.ratios for batch in side] for side in batches]
        for name, side in zip(WORLDS, batches, strict=True):
            more[f"{name}_place"] = np.concatenate([batch.place for batch in side])
            more[f"{name}_odd"] = np.concatenate([batch.odd for batch in side])
    elif audited_law(job) is not None:
        worlds_seen = [query_evidence(job, world) for world in (0, 1)]
    else:
        worlds_seen = _federations(job)
    artifact, count = save_projections(job, worlds_seen, store, more), job.replicas
    return {"metric": "replicas", "value": count, "n": count, "unit": "replicas a world", "artifact": artifact}


def _federations(job: BlockJob) -> list[list[Projections]]:
    """The evidence of whole federations with a canary, batch by batch, of world 0 and of world 1."""
    task, plan = audited_federation(job)
    canary = canary_for(job, task, plan)
    worlds_seen = [
        [_evidence(job, task, plan, canary, world, size, n) for n, size in enumerate(_batches(job))] for world in (0, 1)
    ]
    law = published_law(job, plan)
    noisy = isinstance(law, GaussianLaw)
    spacing = law.grid / law.noise_std if isinstance(law, GaussianLaw) and law.grid else 0.0
    check_independent(worlds_seen[0], noisy=noisy, spacing=spacing)
    # A replaced sample is there in world 0 too: where the law has its place wrong, it does not scatter about zero.
    if noisy and job.audit.canary == "dirac" and (canary.unit, canary.adjacency) != _REPLACED_SAMPLE:
        check_centred(worlds_seen[0])
    return worlds_seen


def check_independent(batches: list[Projections], *, noisy: bool, spacing: float = 0.0) -> None:
    """Replicas without the canary must differ: equal ones share a noise draw, and are no independent trials.

    Raises:
        ValueError: if, under a law that is ``noisy``, a tenth more of the replicas repeat another one bit for bit than
            noise rounded to ``spacing`` of its deviations would; those in which the canary's sender never came show no
            noise and are left out.
    """
    values = np.concatenate([batch.values[batch.seen.any(axis=1)] for batch in batches])
    if not noisy or not len(values):
        return
    if len(np.unique(values, axis=0)) < (0.9 - expected_repeats(len(values), spacing)) * len(values):
        raise ValueError(
            "replicas share their noise: draw it in the shape of the whole tensor, replicas first, "
            "not once for all of them"
        )


def save_projections(
    job: BlockJob,
    worlds_seen: list[list[Projections]],
    store: Store,
    more: Mapping[str, NDArray[Any]] | None = None,
) -> str:
    """Keep a block's evidence of both worlds (out, in), batch after batch, with its setting and what is ``more`` to be
    told of the trials; returns the artifact's path.
    """
    arrays = dict(more or {})
    for name, batches in zip(WORLDS, worlds_seen, strict=True):
        arrays[name] = np.concatenate([batch.values for batch in batches]).astype(np.float32)
        arrays[f"{name}_seen"] = np.concatenate([batch.seen for batch in batches])
    store.save_text(job.cell.cell_id, SETTING, json.dumps(worlds_seen[0][0].setting.to_dict()))
    return store.save_arrays(job.cell.cell_id, "projections", arrays)


def canary_for(job: BlockJob, task: Task, plan: Plan) -> PlantedCanary:
    """The canary of the suite's design for the claim's unit and adjacency; a row is ``canary_norm`` clip norms long.

    Raises:
        ValueError: for a unit or adjacency that no canary design covers.
    """
    check_covered(job.claim)
    ground = CanaryInputs(
        unit=job.claim.unit,
        adjacency=job.claim.adjacency,
        length=canary_length(job, plan),
        task=task,
        plan=plan,
        streams=Streams(job.seed),
    )
    return DESIGNS[job.audit.canary](ground)


def _batches(job: BlockJob) -> list[int]:
    whole, rest = divmod(job.replicas, job.audit.batch)
    return [job.audit.batch] * whole + ([rest] if rest else [])


def _evidence(
    job: BlockJob, task: Task, plan: Plan, canary: PlantedCanary, world: int, replicas: int, number: int
) -> Projections:
    """One batch of replicas in one world."""
    # Block 0 is the trial's: no replica shares a cohort, a lot or a noise draw with it, another batch or world.
    batch = Batch(replicas=replicas, block=number + 1, world=world)
    view = observed(job, task, plan, canary, batch, senders=(canary_sender(canary, plan),))
    return CanaryProjections().run(
        view, knowledge(job, task, plan, canary), Streams(job.seed).generator("attack canary")
    )
