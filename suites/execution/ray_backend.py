"""Carry out jobs on a Ray cluster: one that runs already, or one of this machine that ends with the run."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from ..config.source import ConfigError
from ..results.store import Store
from .backend import Carry, ClusterError, Done, Work
from .cluster_job import do, packed

_DEATHS = 3
"""How often a job is run again after the death of its worker, as in a Dask cluster."""
_PATIENCE_S = 30.0
"""How long a cluster's head may take to answer, as a Dask scheduler."""
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

    @property
    def at_once(self) -> int:
        import ray

        return max(1, int(ray.cluster_resources().get("CPU", 0)))

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
            _check_answer(self._address)
            ray.init(address=self._address, **quiet)
        except (OSError, ValueError, RuntimeError) as error:
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
        tasks = [remote.remote(sent) for sent in packed(carry, jobs, store)]
        lost = []
        try:
            # Python's own futures: ray.wait would turn whatever a handler of signals raises into KeyboardInterrupt.
            for future in as_completed([task.future() for task in tasks]):
                try:
                    done = future.result()
                except ray.exceptions.RayError as error:
                    lost.append(_reason(error))
                    continue
                if isinstance(done, Exception):
                    raise done
                yield done
        finally:
            for task in tasks:  # Those that are done stay done.
                ray.cancel(task, force=True)
        if lost:
            raise ClusterError(lost[0])


def _check_answer(address: str) -> None:
    """Raise OSError where no process listens at ``host:port``: Ray itself would go on trying for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S).close()


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
