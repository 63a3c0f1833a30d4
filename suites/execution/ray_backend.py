"""Carry out jobs on a Ray cluster: one that runs already, or one of this machine that ends with the run."""

import logging
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from ..config.source import ConfigError
from ..results.store import Store
from .backend import Carry, ClusterError, Done, Work
from .cluster_job import do, packed

_DEATHS = 3
"""How often a job is run again after the death of its worker, as in a Dask cluster."""
_STORE_BYTES = 100 * 2**20
"""Memory for objects that Ray's workers share; jobs and their results are small."""


class RayBackend:
    """The workers of a Ray cluster.

    A job whose worker dies is run again in another one; after three deaths more it counts as lost.

    Args:
        address: ``auto``, ``host:port`` or ``ray://host:port``; None starts workers on this machine.
        processes: number of these workers.
    """

    name = "ray"

    def __init__(self, address: str | None, processes: int) -> None:
        self._address, self._processes = address, processes

    def sends(self, jobs: int) -> bool:
        return jobs > 0

    def __enter__(self) -> Self:
        import ray

        # A program may have connected to its cluster before.
        self._ours = not ray.is_initialized()
        if self._ours:
            with _signals_kept():
                self._connect()
        return self

    def _connect(self) -> None:
        import ray

        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is None:
            # A cluster that this run starts reports nothing about its use.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            size = {"num_cpus": self._processes, "object_store_memory": _STORE_BYTES}
            ray.init(address="local", include_dashboard=False, **size, **quiet)
            return
        try:
            ray.init(address=self._address, **quiet)
        except (OSError, ValueError) as error:
            raise ConfigError(f"no Ray cluster answers at {self._address}: {error}") from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import ray

        if self._ours:
            ray.shutdown()

    def results(self, carry: Carry, jobs: Sequence[Work], store: Store) -> Iterator[Done]:
        import ray

        remote = ray.remote(num_cpus=1, max_retries=_DEATHS)(do)
        waiting = [remote.remote(sent) for sent in packed(carry, jobs, store)]
        lost = []
        try:
            while waiting:
                ready, waiting = ray.wait(waiting, num_returns=1)
                try:
                    done = ray.get(ready[0])
                except ray.exceptions.RayError as error:
                    lost.append(_reason(error))
                    continue
                if isinstance(done, Exception):
                    raise done
                yield done
        finally:
            for one in waiting:
                ray.cancel(one, force=True)
        if lost:
            raise ClusterError(lost[0])


def _reason(error: Exception) -> str:
    from ray.exceptions import NodeDiedError, OutOfMemoryError, WorkerCrashedError

    if isinstance(error, NodeDiedError | OutOfMemoryError | WorkerCrashedError):
        return "every worker that tried a cell died, perhaps for lack of memory"
    return f"the Ray cluster lost a cell: {type(error).__name__}: {error}"


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Restore the program's handler of SIGTERM, which Ray replaces when it starts."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
