"""Make a worker process keep freed memory for the next step of an attack, and search less of it for garbage."""

import ctypes
import gc
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 * 2**20
_NEVER = 2**31 - 1


@cache
def keep_freed_memory() -> None:
    """Make the C library glibc keep freed memory in this process; with another C library nothing happens.

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
    """Take all objects that exist now out of all later searches for garbage in this process: at the first job of a
    worker these are mostly modules.

    loky searches once a second, which took a twentieth of a worker's time.
    """
    gc.freeze()
