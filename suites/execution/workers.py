"""Carry out the jobs of a run, in this process or by the workers of a backend."""

import math
import time
from collections.abc import Iterable, Iterator

from ..attacking.shadows import run_shadows
from ..attacking.trial import run_trial
from ..audits.audit_claim import audit_claim, run_block
from ..audits.sequential_stopping import omitted_row, out_of_time, stop_reason
from ..jobs.block_job import BlockJob
from ..jobs.mutant_job import MutantJob
from ..jobs.planned_audit import PlannedAudit
from ..jobs.transfer_job import TransferAuditJob, TransferTrialJob
from ..jobs.trial_job import ShadowJob, TrialJob
from ..jobs.vertical_job import VerticalAuditJob, VerticalTrialJob
from ..mutation.mutants import run_mutant
from ..planning.run_plan import RunPlan
from ..results.cost import Cost
from ..results.store import Store
from ..transfer.audit import audit_transfer
from ..transfer.trial import run_transfer_trial
from ..vertical.audit import audit_vertical
from ..vertical.trial import run_vertical_trial
from .backend import Backend, Work


def finished_jobs(
    plan: RunPlan,
    store: Store,
    finished: frozenset[str],
    backend: Backend,
    cost: Cost,
    *,
    until: float = math.inf,
) -> Iterable[tuple[Work, list[str]]]:
    """Carry out the unfinished jobs, then the later stages of sequential audits, then the audits; yield each with its
    failures as soon as it ends.

    The CPU time of worker processes is added to ``cost``.

    ``until``: reading of ``time.monotonic`` after which no later stage is begun.
    """

    def unfinished(jobs: Iterable[Work]) -> list[Work]:
        return [job for job in jobs if not finished.issuperset(cell.cell_id for cell in job.cells)]

    yield from _carried(unfinished(plan.jobs), store, backend, cost)
    for stage in range(1, plan.stages):
        # Runs that the looks before have made needless are recorded as such, and not made.
        needed = list[BlockJob]()
        for audit in plan.audits:
            blocks = [block for block in audit.blocks if block.stage == stage and block.cell.cell_id not in finished]
            reason = stop_reason(audit, stage - 1, store) if blocks else ""
            if blocks and not reason and time.monotonic() >= until:
                reason = out_of_time(audit, stage - 1)
            if not reason:
                needed += blocks
                continue
            for block in blocks:
                store.finish(block.cell.cell_id, [omitted_row(block, reason)])
                yield block, []
        yield from _carried(list[Work](needed), store, backend, cost)
    # An audit pools what several jobs have written.
    yield from _carried(unfinished(plan.audits), store, backend, cost)


def _carried(todo: list[Work], store: Store, backend: Backend, cost: Cost) -> Iterator[tuple[Work, list[str]]]:
    """Carry out jobs of which none depends on another."""
    sent = [job for job in todo if _can_be_sent(job)] if backend.sends(len(todo)) else []
    if not backend.sends(len(sent)):
        sent = []
    for done in backend.results(_carry, sent, store) if sent else ():
        cost.add_worker(done.worker, done.cpu_s)
        yield sent[done.index], done.failed
    # A part of the user's own that cannot be pickled, such as one that holds a lock, runs in this process.
    for job in todo:
        if not any(job is one for one in sent):
            yield job, _carry(job, store)


def _carry(job: Work, store: Store) -> list[str]:
    """Do one job but for those of its cells that are finished: an earlier session, or a worker that died, may have
    stored some of them.
    """
    return _do(job, store, frozenset(cell.cell_id for cell in job.cells if store.is_finished(cell.cell_id)))


def _do(job: Work, store: Store, finished: frozenset[str]) -> list[str]:
    """Do one job; returns the titles of its failed cells with their reasons."""
    match job:
        case TrialJob():
            return run_trial(job, store, finished)
        case ShadowJob():
            return run_shadows(job, store, finished)
        case BlockJob():
            return run_block(job, store, finished)
        case MutantJob():
            return run_mutant(job, store, finished)
        case VerticalTrialJob():
            return run_vertical_trial(job, store, finished)
        case VerticalAuditJob():
            return audit_vertical(job, store, finished)
        case TransferTrialJob():
            return run_transfer_trial(job, store, finished)
        case TransferAuditJob():
            return audit_transfer(job, store, finished)
        case PlannedAudit():
            return audit_claim(job, store)
        case _:
            raise TypeError(f"no worker does a job of class {type(job).__name__}")


def _can_be_sent(job: Work) -> bool:
    # The functions with which joblib sends jobs; lazy, because a run in one process does not need them.
    from joblib.externals.loky.backend.reduction import dumps, loads

    try:
        loads(dumps(job))
    except Exception:  # A part's own methods of pickling may raise anything.
        return False
    return True
