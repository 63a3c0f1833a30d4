"""Carry out jobs on a Dask cluster: one that runs already, or one of this machine that ends with the run."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from ..config.source import ConfigError
from ..results.store import Store
from .backend import Carry, ClusterError, Done, Work
from .cluster_job import do, packed
from .ctrl_c import ctrl_c_blocked


class DaskBackend:
    """The workers of a Dask cluster.

    A job whose worker dies is run again on another one; after three deaths more it counts as lost.

    Args:
        address: of the scheduler, such as ``tcp://10.0.0.1:8786``; None starts workers on this machine.
        processes: number of these workers.
    """

    name = "dask"

    def __init__(self, address: str | None, processes: int) -> None:
        self._address, self._processes = address, processes

    @property
    def at_once(self) -> int:
        # A worker of more threads computes one cell at a time.
        return max(1, len(self._client.nthreads()))

    def sends(self, jobs: int) -> bool:
        return jobs > 0

    def __enter__(self) -> Self:
        from distributed import Client
        from distributed.comm import parse_address
        from distributed.comm.registry import get_backend

        with ExitStack() as opened:
            where = self._address or opened.enter_context(self._workers_here())
            try:
                if self._address is not None:
                    # The client notices an unknown scheme too late to be closed.
                    get_backend(parse_address(self._address)[0])
                self._client = opened.enter_context(Client(where, set_as_default=False))
            except (OSError, ValueError) as error:
                raise ConfigError(f"no Dask scheduler answers at {where}: {error}") from error
            self._opened = opened.pop_all()
        return self

    def _workers_here(self) -> Any:
        from distributed import LocalCluster

        with ctrl_c_blocked():
            # Without limits of memory, which would end workers that a run without Dask lets go on.
            return LocalCluster(
                n_workers=self._processes,
                threads_per_worker=1,
                memory_limit=0,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def results(self, carry: Carry, jobs: Sequence[Work], store: Store) -> Iterator[Done]:
        from distributed import as_completed

        # pure=False: Dask would otherwise take equal jobs of an earlier session for this one.
        futures = [self._client.submit(do, sent, pure=False) for sent in packed(carry, jobs, store)]
        lost = []
        try:
            for future in as_completed(futures, loop=self._client.loop):
                if future.status != "finished":
                    lost.append(_reason(future))
                    continue
                done = future.result()
                if isinstance(done, Exception):
                    raise done
                yield done
        finally:
            # Those that run go on, but can no longer write: their session has ended.
            self._client.cancel(futures)
        if lost:
            raise ClusterError(lost[0])


def _reason(future: Any) -> str:
    from distributed.scheduler import KilledWorker

    error = future.exception() if future.status == "error" else None
    if isinstance(error, KilledWorker):
        return "every worker that tried a cell died, perhaps for lack of memory"
    return f"the Dask cluster lost a cell ({future.status}): {error or 'the scheduler no longer answers'}"
