"""Define the interface of a backend, which carries out the jobs of a run, and the backend that uses processes of this
machine.
"""

import ctypes
import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import Pipe, current_process, get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol, Self

import torch

from ..attacking.finished_cells import Job
from ..results.store import Store


def run_job(job: Job, store: Store) -> list[str]:
    """Do one job except for its cells that are already finished: an earlier session, or a worker that died, may have
    stored some of them. Return the titles of failed cells with their reasons.
    """
    return job.run(store, frozenset(cell.cell_id for cell in job.cells if store.is_finished(cell.cell_id)))


@dataclass(frozen=True, kw_only=True)
class Done:
    """The result of a job that a worker has finished.

    Args:
        index: its place among the jobs that were sent.
        failed: titles of failed cells with their reasons.
        worker: names the process among all workers of the run.
        cpu_s: CPU seconds that this worker has used for the run so far.
    """

    index: int
    failed: list[str]
    worker: str
    cpu_s: float


class ClusterError(RuntimeError):
    """The error for a job that a cluster could not do, because its workers died again and again, do not see the run's
    folder, or differ from the process that started the run. Finished cells (units of work) are kept, and the run can be
    resumed.
    """


class Backend(Protocol):
    """The interface of a place where the jobs of a run are carried out. A backend is entered, as a context, once per
    run, before any job is sent.
    """

    name: str

    @property
    def at_once(self) -> int:
        """The number of jobs that the present workers do at the same time, at least 1; known after the backend is
        entered.
        """
        ...

    def sends(self, jobs: int) -> bool:
        """Return whether it is worth sending so many jobs to workers, instead of doing them in this process."""
        ...

    def results(self, jobs: Sequence[Job], store: Store) -> Iterator[Done]:
        """Let workers do the jobs, each with ``run_job``; yield each result as soon as the job ends.

        Raises:
            ClusterError: after all other jobs, if some could not be done.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class LocalBackend:
    """A backend of worker processes on this machine, or of this process alone if ``processes`` is 1."""

    name = "local"

    def __init__(self, processes: int) -> None:
        self._processes = processes
        self._copies: _Copies | None = None

    @property
    def at_once(self) -> int:
        return self._processes

    def sends(self, jobs: int) -> bool:
        return self._processes > 1 and jobs > 1

    def __enter__(self) -> Self:
        # Workers outlive a run: those of an earlier run in this session would still have that run's version of a part.
        if self._processes > 1 and (loky := sys.modules.get("joblib.externals.loky")):
            loky.get_reusable_executor().shutdown(wait=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._copies is not None:
            self._copies.end()
            self._copies = None

    def results(self, jobs: Sequence[Job], store: Store) -> Iterator[Done]:
        if self._copies is not None and self._copies.ended:
            self._copies = None
        if self._copies is None and _can_be_copied():
            self._copies = _Copies(self._processes)
        yield from (partial(_by_loky, self._processes) if self._copies is None else self._copies.results)(jobs, store)


def _can_be_copied() -> bool:
    """Whether copies of this process can go on: it has one thread, and no GPU, whose state would be lost."""
    threads = Path("/proc/self/task")
    alone = sys.platform == "linux" and threads.is_dir() and len(list(threads.iterdir())) == 1
    # A worker of multiprocessing may have no children of its own.
    return alone and not current_process().daemon and not torch.accelerator.is_available()


class _Copies:
    """Workers that begin as copies of this process: each saves the four CPU seconds that imports take."""

    def __init__(self, processes: int) -> None:
        self._workers: dict[Connection, BaseProcess] = {}
        self.ended = False
        with ctrl_c_blocked():
            for _ in range(processes):
                ours, theirs = Pipe()
                worker = get_context("fork").Process(target=_serve, args=(theirs, [*self._workers, ours]))
                self._workers[ours] = worker
                worker.start()
                theirs.close()

    def results(self, jobs: Sequence[Job], store: Store) -> Iterator[Done]:
        from joblib.externals.loky.backend.reduction import dumps

        run, left, busy = os.getpid(), list(enumerate(jobs))[::-1], set[Connection]()

        def give(worker: Connection) -> None:
            busy.discard(worker)
            if left:
                worker.send_bytes(dumps((*left.pop(), store, run)))
                busy.add(worker)

        try:
            for worker in self._workers:
                give(worker)
            while busy:
                ready = wait(busy)
                for worker in [one for one in self._workers if one in ready]:
                    with _dead_workers_reported():
                        done = worker.recv()
                        give(worker)
                    if isinstance(done, Exception):
                        raise done
                    yield done
        finally:
            if busy:
                self.end()

    def end(self) -> None:
        """End the workers, whatever they do."""
        self.ended = True
        for worker in self._workers.values():
            worker.kill()
            worker.join()


@contextmanager
def _dead_workers_reported() -> Iterator[None]:
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    try:
        yield
    except (EOFError, ConnectionError):
        # A signal to the whole group ends the workers a moment before it reaches this process, which it should stop.
        time.sleep(0.1)
        raise TerminatedWorkerError("a worker process died") from None


def _serve(wanted: Connection, others: Sequence[Connection]) -> None:
    """Do the jobs that a run sends until it ends; ``others``: its ends of the pipes, which stay open in no copy."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()
    while True:
        try:
            wanted.send(_numbered(*wanted.recv()))
        except EOFError:
            return
        except Exception as error:
            try:
                wanted.send(error)
            except Exception:  # It cannot be sent; its words can.
                wanted.send(RuntimeError(f"{type(error).__name__}: {error}"))


def _by_loky(processes: int, jobs: Sequence[Job], store: Store) -> Iterator[Done]:
    """Have the jobs done by processes that joblib starts and that import everything anew."""
    from joblib import Parallel, delayed  # Lazy: a run in one process does not need it.

    workers = min(processes, len(jobs))
    # batch_size=1: joblib would otherwise group short jobs and report their cells late.
    parallel = Parallel(n_jobs=workers, backend="loky", return_as="generator_unordered", batch_size=1)
    numbered = delayed(_numbered)
    run = os.getpid()
    with ctrl_c_blocked():
        results = parallel(numbered(index, job, store, run) for index, job in enumerate(jobs))
    complete = False
    try:
        # "yield from" would close the results itself, outside of the filter below.
        for done in results:  # noqa: UP028
            yield done
        complete = True
    except Exception:
        # A signal to the whole group ends the workers a moment before it reaches this process, which it should
        # stop.
        time.sleep(0.1)
        raise
    finally:
        with warnings.catch_warnings():
            # When a run is interrupted, joblib warns with advice for programmers; the command line explains it
            # itself.
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


def _numbered(index: int, job: Job, store: Store, run: int) -> Done:
    _end_with(run)
    keep_freed_memory()
    leave_imports_out_of_collections()
    failed = run_job(job, store)
    # The CPU time of the whole process, its imports included.
    return Done(index=index, failed=failed, worker=str(os.getpid()), cpu_s=time.process_time())


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


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 * 2**20
_NEVER = 2**31 - 1


@cache
def keep_freed_memory() -> None:
    """Make the C library glibc keep freed memory in this process; with another C library, do nothing.

    By default glibc returns large blocks to the system, and each step of a search requests them again page by page,
    which takes a tenth of its time. In return the process never shrinks.
    """
    # Other systems have no mallopt, or one with other constants.
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        # Both are needed: blocks above the first threshold bypass the heap, which the second one keeps from shrinking.
        mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_TRIM_THRESHOLD, _NEVER)


@cache
def leave_imports_out_of_collections() -> None:
    """Exclude all present objects from later garbage collections in this process; at a worker's first job these are
    mostly modules.

    loky searches once a second, which took a twentieth of a worker's time.
    """
    gc.freeze()


@contextmanager
def ctrl_c_blocked() -> Iterator[None]:
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
