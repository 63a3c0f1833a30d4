"""Audit one claim about a transfer: run the mechanism of its votes, or of one teacher's answers, on neighbours.

The mechanism is that of the defense, calibrated for a few queries. Which neighbouring inputs differ most is tried on
pilot runs: vote counts that are made for it, and those of the suite's own teachers.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from ...audit.claim import Claim, Unit
from ...audit.finding import Finding, Verdict, not_audited
from ...audit.mechanism.mechanism import audit_mechanism
from ...audit.observer import ANSWERS, UPLOADS
from ...defenses.transfer.worst_votes import (
    Mechanism,
    Pair,
    answer_mechanism,
    label_mechanism,
    neighbouring_counts,
    neighbouring_logits,
    neighbours_of,
)
from ...fl.transfer.plan import TransferPlan
from ...fl.transfer.protection import TransferProtection, votes_of
from ..attacking.trial import Clock, failures_as_rows
from ..checks.same_claim import same_claim
from ..checks.verdict_row import verdict_row
from ..config.resolve_transfer import teachers_of, transfer_plan_of, transfer_task_of
from ..jobs.transfer_job import TransferAuditJob
from ..results.store import Store


def audit_transfer(job: TransferAuditJob, store: Store, finished: frozenset[str]) -> list[str]:
    """Audit one claim and write its verdict; return a description of each failure.

    Raises:
        UnwritableRunFolder: if the folder cannot be written.
    """
    if job.cell.cell_id in finished:
        return []
    torch.set_num_threads(1)
    clock = Clock()
    with failures_as_rows([job.cell], store, clock) as failed:
        row = verdict_row(job.cell, found_about(job), ())
        store.finish(job.cell.cell_id, [row.model_copy(update=clock.fields())])
    return failed


def found_about(job: TransferAuditJob) -> Finding:
    """Return the finding about a claim: of several numbers of queries the one that refutes it, or else the one that
    would have refuted the smallest epsilon.

    OUT_OF_SCOPE where the defense states another claim about fewer queries, or no neighbouring inputs are known for the
    claim's unit and observer.
    """
    found = {size: _of_size(job, size) for size in job.sizes}
    refuted = [size for size, one in found.items() if one.verdict is Verdict.REFUTED]
    size = refuted[0] if refuted else min(found, key=lambda one: _detectable(found[one]))
    words = f"the mechanism of {size} of {job.federation.queries} queries"
    return replace(found[size], reason=f"{words}: {found[size].reason}")


def _detectable(finding: Finding) -> float:
    measured = finding.measurement
    return float("inf") if measured is None or measured.detectable is None else measured.detectable


def _of_size(job: TransferAuditJob, size: int) -> Finding:
    """The finding of the defense that is calibrated for ``size`` queries, at this size's share of alpha."""
    claim, spec = job.claim, job.federation
    plan = replace(transfer_plan_of(spec, transfer_task_of(spec, job.seed)), queries=size)
    prepared = job.defense.prepare(plan)
    same = [one for one in prepared.claims if same_claim(one, claim)]
    if not same:
        return not_audited(claim, f"the defense states another claim about {size} queries")
    inputs = _inputs(job, plan, prepared.protection, same[0])
    if inputs is None:
        words = f"no neighbouring inputs are known for one {claim.unit.value} and the observer {claim.observer}"
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


def _inputs(
    job: TransferAuditJob, plan: TransferPlan, protection: TransferProtection, claim: Claim
) -> tuple[Mechanism, Sequence[Pair]] | None:
    """What the claim's observer receives as a function of one input, and pairs of neighbouring inputs."""
    if claim.observer == UPLOADS and claim.unit is Unit.REPORT:
        return answer_mechanism(protection, plan), neighbouring_logits(plan)
    # One teacher changes its votes in any way, whether its client or one of its samples is another.
    if claim.observer == ANSWERS and claim.unit in (Unit.CLIENT, Unit.SAMPLE):
        threshold = claim.parameters.get("threshold")
        made = neighbouring_counts(plan, threshold=threshold if isinstance(threshold, float) else None)
        own = neighbours_of(votes_of(teachers_of(job.federation, job.seed))[0].numpy(), plan.queries)
        return label_mechanism(protection, plan), [*made, own]
    return None
