"""Audit one claim about a transfer: run the mechanism of its votes, or of one teacher's answers, on neighbours.

The mechanism is that of the defense, calibrated for a few queries. Which neighbouring inputs differ most is tried on
pilot runs: vote counts that are made for it, and those of the suite's own teachers.
"""

from dataclasses import replace

from ...audit.finding import Finding, Verdict, not_audited
from ...audit.mechanism.mechanism import audit_mechanism
from ...audit.observer import ANSWERS
from ...checks.results import same_claim
from ...defenses.transfer.worst_votes import mechanism_of, sums_votes
from ...fl.transfer.protection import votes_of
from ..attacking.finished_cells import finish_cell
from ..config.resolve_transfer import teachers_of, transfer_plan_of, transfer_task_of
from ..jobs.transfer_job import TransferAuditJob
from ..jobs.verdict_rows import verdict_rows
from ..results.store import Store


def audit_transfer(job: TransferAuditJob, store: Store, finished: frozenset[str]) -> list[str]:
    """Audit one claim and write its verdict; return a description of each failure.

    Raises:
        UnwritableRunFolder: if the folder cannot be written.
    """
    return finish_cell(job.cell, store, finished, lambda: verdict_rows(job.cell, found_about(job), ()))


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
    votes = votes_of(teachers_of(spec, job.seed))[0].numpy() if claim.observer == ANSWERS else None
    inputs = mechanism_of(same[0], prepared.protection, plan, votes)
    if inputs is None:
        neighbours = f"one {claim.unit.value} ({claim.adjacency.phrase})"
        words = f"no neighbouring inputs are known for {neighbours} and the observer {claim.observer}"
        if not sums_votes(prepared.protection):
            words += ", for a defense with a teacher_answers or aggregate_votes of its own"
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
