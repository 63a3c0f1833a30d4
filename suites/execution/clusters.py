"""Carry out jobs on a Dask or Ray cluster. Defines what is sent to a worker, what a worker checks first, and what comes
back.

A worker of a cluster writes cells into the run's folder, as a process of this machine does. So the folder must lie on a
file system that all machines share; a worker that does not see it refuses.
"""

import hashlib
import logging
import os
import platform
import signal
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from ...audit.wording import nearest
from ..attacking.finished_cells import Job
from ..config.source import ConfigError
from ..results.environment import cores, versions
from ..results.store import Store
from .backend import Backend, ClusterError, Done, LocalBackend, ctrl_c_blocked, run_job

_ONE_AT_A_TIME = threading.Lock()
"""A worker of several threads does one job at a time: torch's number of threads belongs to the whole process."""
_LOADED: dict[str, str] = {}
"""Digest of the file of each module that this worker has loaded, as it was then; installed packages are left out."""
_INSTALLED = {"site-packages", "dist-packages"}
_PROGRAMS = {"__main__", "__mp_main__"}
"""Modules that differ between a run and its workers: each is the program that its own process was started with."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A job in the form in which it is sent to a worker.

    Args:
        job: pickled, because its parts can be imported only from the folders ``imports``.
        imports: the folders where the sender finds modules.
        versions: of Python and of the packages that can change a result.
        code: digest of the file of each module that the sender has loaded; installed packages are left out.
    """

    index: int
    job: bytes
    store: Store
    imports: tuple[str, ...]
    versions: Mapping[str, str]
    code: Mapping[str, str]


def packed(jobs: Sequence[Job], store: Store) -> list[Sent]:
    """Return the jobs in the form in which they are sent, in their order; ``store``: the store of the session."""
    from joblib.externals.loky.backend.reduction import dumps  # Lazy: a run in one process does not need it.

    # Relative folders would be others on the worker.
    imports = tuple(str(Path(place).absolute()) for place in sys.path)
    store = Store(store.folder.absolute(), identifier=store.identifier)
    version, code = _versions(), _code()
    return [
        Sent(index=index, job=bytes(dumps(job)), store=store, imports=imports, versions=version, code=code)
        for index, job in enumerate(jobs)
    ]


def do(sent: Sent) -> Done | Exception:
    """Do a job in this process, which is a worker of a cluster; return its result, or the error that stops the run."""
    # Errors are results: a cluster would wrap those that a job raises, each in its own way.
    try:
        with _ONE_AT_A_TIME:
            return _done(sent)
    except Exception as error:
        return error


def _done(sent: Sent) -> Done:
    from joblib.externals.loky.backend.reduction import loads

    _check_worker(sent)
    began = _begun(sent.store.identifier)
    sys.path[:] = [*sent.imports, *(place for place in sys.path if place not in sent.imports)]
    job = loads(sent.job)
    _check_code(sent.code)
    failed = run_job(job, sent.store)
    _note_loaded()
    return Done(index=sent.index, failed=failed, worker=_name(), cpu_s=time.process_time() - began)


def _check_worker(sent: Sent) -> None:
    if not sent.store.in_session():
        raise ClusterError(
            f"the worker {_name()} does not see the run's folder {sent.store.folder}: all workers of a cluster need "
            "a folder that their machines share, at the same path"
        )
    here = _versions()
    if other := [
        f"{name} {here.get(name)} instead of {then}" for name, then in sent.versions.items() if here.get(name) != then
    ]:
        raise ClusterError(f"the worker {_name()} has other versions than the run: {'; '.join(other)}")


def _check_code(code: Mapping[str, str]) -> None:
    """Raise ClusterError where this worker has loaded other code than the sender.

    A worker may serve many runs, and would do a job of the next one with the code that it loaded for this one.
    """
    _note_loaded()
    if other := sorted(name for name in code.keys() & _LOADED.keys() if code[name] != _LOADED[name]):
        raise ClusterError(
            f"the worker {_name()} has loaded other code than the run: {', '.join(other[:3])}; restart the workers of "
            "the cluster, and see that all its machines have the same files"
        )


@cache
def _begun(session: str) -> float:
    """Return the CPU seconds that this worker had used before its first job of a session; they belong to other runs.

    Raises:
        ClusterError: if a module that it loaded for one of these has changed since.
    """
    for name, place in _own_modules():
        # A part may import it when it runs, so the sender of the next run does not know it.
        if name in _LOADED and _LOADED[name] != _digest(place):
            raise ClusterError(f"the worker {_name()} has loaded {name}, which has changed since; restart the workers")
    return time.process_time()


def _code() -> dict[str, str]:
    return {name: _digest(place) for name, place in _own_modules()}


def _note_loaded() -> None:
    for name, place in _own_modules():
        if name not in _LOADED:
            _LOADED[name] = _digest(place)


def _own_modules() -> Iterator[tuple[str, str]]:
    """Name and file of each loaded module, but for those of Python and of installed packages."""
    python = sysconfig.get_path("stdlib")
    for name, module in list(sys.modules.items()):
        place = getattr(module, "__file__", None)
        if not isinstance(place, str) or place.startswith(python) or name in _PROGRAMS:
            continue
        if not _INSTALLED.intersection(Path(place).parts):
            yield name, place


def _digest(place: str) -> str:
    try:
        return hashlib.sha256(Path(place).read_bytes()).hexdigest()
    except OSError:
        return ""


def _versions() -> dict[str, str]:
    return versions() | {"Python": platform.python_version()}


def _name() -> str:
    return f"{os.getpid()} on {socket.gethostname()}"


class _Cluster:
    """A cluster at an address, or workers that are started on this machine."""

    def __init__(self, address: str | None, processes: int) -> None:
        self._address, self._processes = address, processes

    def sends(self, jobs: int) -> bool:
        return jobs > 0


class DaskBackend(_Cluster):
    """A backend that uses the workers of a Dask cluster.

    A job whose worker dies is run again on another one; after three deaths more it counts as lost.

    Args:
        address: of the scheduler, such as ``tcp://10.0.0.1:8786``; None starts workers on this machine.
        processes: number of these workers.
    """

    name = "dask"

    @property
    def at_once(self) -> int:
        # A worker of more threads computes one cell at a time.
        return max(1, len(self._client.nthreads()))

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

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def results(self, jobs: Sequence[Job], store: Store) -> Iterator[Done]:
        from distributed import as_completed

        # pure=False: Dask would otherwise take equal jobs of an earlier session for this one.
        futures = [self._client.submit(do, sent, pure=False) for sent in packed(jobs, store)]
        lost = []
        try:
            for future in as_completed(futures, loop=self._client.loop):
                if future.status != "finished":
                    lost.append(_dask_reason(future))
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


def _dask_reason(future: Any) -> str:
    from distributed.scheduler import KilledWorker

    error = future.exception() if future.status == "error" else None
    if isinstance(error, KilledWorker):
        return "every worker that tried a cell died, perhaps for lack of memory"
    return f"the Dask cluster lost a cell ({future.status}): {error or 'the scheduler no longer answers'}"


_DEATHS = 3
"""How often a job is run again after the death of its worker, as in a Dask cluster."""
_PATIENCE_S = 30.0
"""How long a cluster's head may take to answer, as a Dask scheduler."""
_STORE_BYTES = 100 * 2**20
"""Memory for objects that Ray's workers share; jobs and their results are small."""


class RayBackend(_Cluster):
    """A backend that uses the workers of a Ray cluster.

    A job whose worker dies is run again in another one; after three deaths more it counts as lost.

    Args:
        address: ``auto``, ``host:port`` or ``ray://host:port``; None starts workers on this machine.
        processes: number of these workers.
    """

    name = "ray"

    @property
    def at_once(self) -> int:
        import ray

        return max(1, int(ray.cluster_resources().get("CPU", 0)))

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

    def __exit__(self, *_: object) -> None:
        import ray

        if self._ours:
            ray.shutdown()

    def results(self, jobs: Sequence[Job], store: Store) -> Iterator[Done]:
        import ray

        remote = ray.remote(num_cpus=1, max_retries=_DEATHS)(do)
        tasks = [remote.remote(sent) for sent in packed(jobs, store)]
        lost = []
        try:
            # Python's own futures: ray.wait would turn whatever a handler of signals raises into KeyboardInterrupt.
            for future in futures.as_completed([task.future() for task in tasks]):
                try:
                    done = future.result()
                except ray.exceptions.RayError as error:
                    lost.append(_ray_reason(error))
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


def _ray_reason(error: Exception) -> str:
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


BACKENDS = {"local": "processes of this machine", "dask": "a Dask cluster", "ray": "a Ray cluster"}
_MODULES = {"dask": "distributed", "ray": "ray"}


def chosen_backend(name: str, *, address: str | None = None, jobs: int | None = None) -> Backend:
    """Return the backend with this name; the caller has yet to enter its context.

    Args:
        address: of a cluster that runs already; None starts workers on this machine.
        jobs: number of processes on this machine; by default one per core.

    Raises:
        ConfigError: an unknown name, an address or a number of processes that does not apply, or a library that is not
            installed.
    """
    if not isinstance(name, str) or name not in BACKENDS:
        raise ConfigError(f"unknown backend {name!r}; known: {nearest(str(name), BACKENDS)}")
    if address is not None and (name == "local" or not isinstance(address, str) or not address):
        raise ConfigError(f"address must be that of a running cluster, for the backends dask and ray, got {address!r}")
    if address is not None and jobs is not None:
        raise ConfigError(
            "jobs sets the number of processes on this machine; leave it out with the address of a cluster, which "
            "has its own"
        )
    if name == "local":
        return LocalBackend(jobs or cores())
    if find_spec(_MODULES[name]) is None:
        raise ConfigError(f'the backend {name} is not installed: pip install "fedassay[{name}]"')
    cluster = DaskBackend if name == "dask" else RayBackend
    return cluster(address, jobs or cores())
