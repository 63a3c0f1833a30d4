"""Workers: the jobs of a run, one after the other or in processes of their own that end with it."""

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import resource_tracker
from pathlib import Path

from ..attacking.shadows import run_shadows
from ..attacking.trial import run_trial
from ..audits.replicas import run_block
from ..jobs.cells import BlockJob, Job, MutantJob, ShadowJob, TrialJob
from ..mutation.mutants import run_mutant
from ..planning.run_plan import RunPlan
from ..results.cost import Cost
from ..results.store import Store
from .memory import keep_freed_memory


def work(job: Job, folder: Path, finished: frozenset[str]) -> list[str]:
    """One job in a process of its own; returns what failed."""
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


def finished_jobs(
    plan: RunPlan, store: Store, finished: frozenset[str], processes: int, cost: Cost
) -> Iterable[tuple[Job, list[str]]]:
    """Do the jobs that are not done; each with what failed in it, in the order in which they end. ``cost`` hears of
    what worker processes take.
    """
    todo = [job for job in plan.jobs if not finished.issuperset(cell.cell_id for cell in job.cells)]
    if processes == 1 or len(todo) < 2:
        for job in todo:
            yield job, work(job, store.folder, finished)
        return
    from joblib import Parallel, delayed  # Lazy: a run in one process needs none of it.
    from joblib.externals.loky import get_reusable_executor

    # Workers outlive a run; those of an earlier one in this session would hold a part's code as it was then.
    get_reusable_executor().shutdown(wait=True)
    parallel = Parallel(n_jobs=min(processes, len(todo)), backend="loky", return_as="generator_unordered", batch_size=1)
    numbered = delayed(_numbered)
    run = os.getpid()
    with _deaf_to_ctrl_c():
        results = parallel(numbered(index, job, store.folder, finished, run) for index, job in enumerate(todo))
    try:
        for done in results:
            cost.add_worker(done.worker, done.cpu_s)
            yield todo[done.index], done.failed
    finally:
        with warnings.catch_warnings():
            # Of a run that stops half way joblib has advice for its caller's code; the command tells what happened.
            warnings.filterwarnings("ignore", r"\d+ tasks (which were|have been)", UserWarning)
            results.close()


@dataclass(frozen=True, kw_only=True)
class _Done:
    """A job that a worker did. ``cpu_s``: what this worker has taken since it began, its imports included."""

    index: int
    failed: list[str]
    worker: int
    cpu_s: float


def _numbered(index: int, job: Job, folder: Path, finished: frozenset[str], run: int) -> _Done:
    _end_with(run)
    keep_freed_memory()
    failed = work(job, folder, finished)
    return _Done(index=index, failed=failed, worker=os.getpid(), cpu_s=time.process_time())


@cache
def _end_with(run: int) -> None:
    """Watch, once a process, for the death of the process ``run``, this one's parent: a worker that outlives it would
    compute beside the resumed run. The run may have died already, while this process loaded.
    """

    def watch() -> None:
        while os.getppid() == run:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes that start in here never add_worker Ctrl-C; this one hears it afterwards.

    A terminal sends it to the run and to its workers. The run alone answers and ends them: a worker that did so itself
    would report a failure and take the next job, or print where in its imports it was.
    """
    resource_tracker.ensure_running()  # Started in here, Python's would unblock the signal again.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
