"""The lock of a folder that one process at a time writes."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..audit.output_file import check_inside

LOCK = ".lock"
"""Name of a folder's lock."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder while writing to it, because two processes would otherwise do and store the same work
    twice.

    Raises ValueError if another process holds it, and OSError where the folder cannot be written.
    """
    check_inside(folder / LOCK, folder)
    # The system releases the lock of a process that dies, so a file left by a crash locks no process out.
    lock = FileLock(folder / LOCK, blocking=False, thread_local=False)
    try:
        lock.acquire()
    except Timeout:
        words = f"another process is writing {folder} (its lock: {LOCK}); wait until it ends, or stop it first"
        raise ValueError(words) from None
    try:
        yield
    finally:
        # While the lock is held; a process that opened the file before notices that it is gone and is refused (of
        # filelock 3.29.7 and later; under earlier ones two processes could hold it).
        # Windows does not remove an open file, but removes this one on release.
        with suppress(OSError):
            (folder / LOCK).unlink(missing_ok=True)
        lock.release()
