"""Memory: what a worker process frees it keeps for the next step of a search."""

import ctypes
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 * 2**20
_NEVER = 2**31 - 1


@cache
def keep_freed_memory() -> None:
    """Tell glibc, once a process, to keep freed blocks; nothing where the C library is another.

    By default it hands large ones back to the system, and each step of a search takes them again page by page: that
    is a tenth of its time. The process stays as large as it once was.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        mallopt(_TRIM_THRESHOLD, _NEVER)
