"""Send a job to a worker of a cluster: what is sent, what the worker checks first, and what comes back.

A worker of a cluster writes cells into the run's folder, as a process of this machine does. So the folder must lie on a
file system that all machines share; a worker that does not see it refuses.
"""

import hashlib
import os
import platform
import socket
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..results.environment import versions
from ..results.store import Store
from .backend import Carry, ClusterError, Done, Work

_ONE_AT_A_TIME = threading.Lock()
"""A worker of several threads does one job at a time: torch's number of threads belongs to the whole process."""
_LOADED: dict[str, str] = {}
"""Digest of the file of each module that this worker has loaded, as it was then; installed packages are left out."""
_INSTALLED = {"site-packages", "dist-packages"}
_PROGRAMS = {"__main__", "__mp_main__"}
"""Modules that differ between a run and its workers: each is the program that its own process was started with."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A job on its way to a worker.

    Args:
        job: pickled with the function that does it, because its parts can be imported only from the folders
            ``imports``.
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


def packed(carry: Carry, jobs: Sequence[Work], store: Store) -> list[Sent]:
    """Return the jobs as they are sent, in their order; ``store`` is that of the session."""
    from joblib.externals.loky.backend.reduction import dumps  # Lazy: a run in one process does not need it.

    # Relative folders would be others on the worker.
    imports = tuple(str(Path(place).absolute()) for place in sys.path)
    store = Store(store.folder.absolute(), identifier=store.identifier)
    version, code = _versions(), _code()
    return [
        Sent(index=index, job=bytes(dumps((carry, job))), store=store, imports=imports, versions=version, code=code)
        for index, job in enumerate(jobs)
    ]


def do(sent: Sent) -> Done | Exception:
    """Do a job in this process, a worker of a cluster; return what it did, or the error that stops the run."""
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
    carry, job = loads(sent.job)
    _check_code(sent.code)
    failed = carry(job, sent.store)
    _note_loaded()
    return Done(index=sent.index, failed=failed, worker=_name(), cpu_s=time.process_time() - began)


def _check_worker(sent: Sent) -> None:
    if not sent.store.in_session():
        raise ClusterError(
            f"the worker {_name()} does not see the run's folder {sent.store.folder}: all workers of a cluster need "
            "a folder that their machines share, under one path"
        )
    here = _versions()
    if other := [
        f"{name} {here.get(name)}, not {then}" for name, then in sent.versions.items() if here.get(name) != then
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
