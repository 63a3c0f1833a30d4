"""Carry out jobs in worker processes of this machine, which end with the run."""

import os
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from types import TracebackType
from typing import Self

from ..results.store import Store
from .backend import Carry, Done, Work
from .ctrl_c import ctrl_c_blocked
from .memory import keep_freed_memory, leave_imports_out_of_collections


class LocalBackend:
    """Worker processes of this machine, or this process alone where ``processes`` is 1."""

    name = "local"

    def __init__(self, processes: int) -> None:
        self._processes = processes

    @property
    def at_once(self) -> int:
        return self._processes

    def sends(self, jobs: int) -> bool:
        return self._processes > 1 and jobs > 1

    def __enter__(self) -> Self:
        if self._processes > 1:
            from joblib.externals.loky import get_reusable_executor  # Lazy: a run in one process does not need it.

            # Workers outlive a run: those of an earlier run in this session would still have that run's version of a
            # part.
            get_reusable_executor().shutdown(wait=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def results(self, carry: Carry, jobs: Sequence[Work], store: Store) -> Iterator[Done]:
        from joblib import Parallel, delayed  # Lazy: a run in one process does not need it.

        workers = min(self._processes, len(jobs))
        # batch_size=1: joblib would otherwise group short jobs and report their cells late.
        parallel = Parallel(n_jobs=workers, backend="loky", return_as="generator_unordered", batch_size=1)
        numbered = delayed(_numbered)
        run = os.getpid()
        with ctrl_c_blocked():
            results = parallel(numbered(index, carry, job, store, run) for index, job in enumerate(jobs))
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


def _numbered(index: int, carry: Carry, job: Work, store: Store, run: int) -> Done:
    _end_with(run)
    keep_freed_memory()
    leave_imports_out_of_collections()
    failed = carry(job, store)
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
