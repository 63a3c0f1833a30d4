"""Carry out the jobs of a run, in this process or in worker processes that end with it."""

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import resource_tracker
from pathlib import Path

from ..attacking.shadows import run_shadows
from ..attacking.trial import run_trial
from ..audits.audit_claim import audit_claim, run_block
from ..jobs.block_job import BlockJob
from ..jobs.mutant_job import MutantJob
from ..jobs.planned_audit import PlannedAudit
from ..jobs.transfer_job import TransferAuditJob, TransferTrialJob
from ..jobs.trial_job import ShadowJob, TrialJob
from ..jobs.vertical_job import VerticalAuditJob, VerticalTrialJob
from ..mutation.mutants import run_mutant
from ..planning.run_plan import Job, RunPlan
from ..results.cost import Cost
from ..results.store import Store
from ..transfer.audit import audit_transfer
from ..transfer.trial import run_transfer_trial
from ..vertical.audit import audit_vertical
from ..vertical.trial import run_vertical_trial
from .memory import keep_freed_memory, leave_imports_out_of_collections

Work = Job | PlannedAudit


def _do(job: Work, folder: Path, finished: frozenset[str]) -> list[str]:
    """Do one job; returns the titles of its failed cells with their reasons."""
    store = Store(folder)
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


def finished_jobs(
    plan: RunPlan, store: Store, finished: frozenset[str], processes: int, cost: Cost
) -> Iterable[tuple[Work, list[str]]]:
    """Carry out the unfinished jobs, then the audits; yield each with its failures as soon as it ends.

    The CPU time of worker processes is added to ``cost``.
    """
    if processes > 1:
        from joblib.externals.loky import get_reusable_executor  # Lazy: a run in one process does not need it.

        # Workers outlive a run: those of an earlier run in this session would still have that run's version of a part.
        get_reusable_executor().shutdown(wait=True)
    # An audit pools what several jobs have written.
    for stage in (plan.jobs, plan.audits):
        todo = [job for job in stage if not finished.issuperset(cell.cell_id for cell in job.cells)]
        sent = [job for job in todo if _can_be_sent(job)] if processes > 1 else []
        if len(sent) < 2:
            sent = []
        yield from _by_workers(sent, store.folder, processes, finished, cost)
        # A part of the user's own that cannot be pickled, such as one that holds a lock, runs in this process.
        for job in todo:
            if not any(job is one for one in sent):
                yield job, _do(job, store.folder, finished)


def _can_be_sent(job: Work) -> bool:
    # The functions with which joblib sends jobs; lazy, because a run in one process does not need them.
    from joblib.externals.loky.backend.reduction import dumps, loads

    try:
        loads(dumps(job))
    except Exception:  # A part's own methods of pickling may raise anything.
        return False
    return True


def _by_workers(
    todo: Sequence[Work], folder: Path, processes: int, finished: frozenset[str], cost: Cost
) -> Iterable[tuple[Work, list[str]]]:
    if not todo:
        return
    from joblib import Parallel, delayed  # Lazy: a run in one process does not need it.

    # batch_size=1: joblib would otherwise group short jobs and report their cells late.
    parallel = Parallel(n_jobs=min(processes, len(todo)), backend="loky", return_as="generator_unordered", batch_size=1)
    numbered = delayed(_numbered)
    run = os.getpid()
    with _ctrl_c_blocked():
        results = parallel(numbered(index, job, folder, finished, run) for index, job in enumerate(todo))
    complete = False
    try:
        for done in results:
            cost.add_worker(done.worker, done.cpu_s)
            yield todo[done.index], done.failed
        complete = True
    except Exception:
        # A signal to the whole group ends the workers a moment before it reaches this process, which it should stop.
        time.sleep(0.1)
        raise
    finally:
        with warnings.catch_warnings():
            # When a run is interrupted, joblib warns with advice for programmers; the command line explains it itself.
            warnings.filterwarnings("ignore", r"\d+ tasks (which were|have been)", UserWarning)
            results.close()
        if not complete:  # Otherwise the workers wait for the next stage.
            _end_feeders()


def _end_feeders() -> None:
    """Wait for the threads that fed jobs to workers: ended with Python in the middle of freeing the semaphore of their
    queue, they would leave a warning about it.
    """
    for thread in threading.enumerate():
        if thread.name == "QueueFeederThread":
            thread.join(timeout=1)


@dataclass(frozen=True, kw_only=True)
class _Done:
    """A job that a worker has done. ``cpu_s``: CPU seconds of this worker since its start, its imports included."""

    index: int
    failed: list[str]
    worker: int
    cpu_s: float


def _numbered(index: int, job: Work, folder: Path, finished: frozenset[str], run: int) -> _Done:
    _end_with(run)
    keep_freed_memory()
    leave_imports_out_of_collections()
    failed = _do(job, folder, finished)
    return _Done(index=index, failed=failed, worker=os.getpid(), cpu_s=time.process_time())


@cache
def _end_with(run: int) -> None:
    """End this worker when its parent, the process ``run``, has ended; started once per process.

    A worker that outlived an interrupted run would compute at the same time as the resumed one. The parent is compared
    by id, because it may have ended while this process was still starting.
    """

    def watch() -> None:
        while os.getppid() == run:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Processes that start inside this context never receive Ctrl-C; this process receives it afterwards.

    A terminal sends the signal to the run and to its workers, but only the run must react and end them: a worker that
    reacted would report a failure and take the next job, or print a traceback of its imports.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows has none; there every process handles Ctrl-C by itself.
        yield
        return
    # If Python started its resource tracker inside the context, that would unblock the signal again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
