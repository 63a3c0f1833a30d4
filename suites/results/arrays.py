"""Read a file of numeric arrays (.npz) that a run stored; state in plain words why a file cannot be read."""

import struct
import zlib
from collections.abc import Collection
from pathlib import Path
from zipfile import BadZipFile, is_zipfile

import numpy as np

_NO_ARRAYS = "it is not an archive of numeric arrays (.npz)"
_DAMAGE = (
    *(BadZipFile, EOFError, MemoryError, OSError, struct.error, zlib.error),
    *(KeyError, NotImplementedError, TypeError, ValueError),
)
"""What numpy and its zip reader raise for a damaged file, or for one in another format."""


def read_arrays(
    path: Path, *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name: those named in ``only``, or all if it is None, except those in ``without``.

    Raises:
        ValueError: the file is missing, is damaged, or holds something other than numeric arrays.
    """
    if not path.is_file():
        raise ValueError("it is missing")
    try:
        if not is_zipfile(path):
            raise ValueError(_NO_ARRAYS)
        # Never pickle: a run may come from an untrusted source, and unpickling executes code.
        with np.load(path, allow_pickle=False) as stored:
            found = {name: stored[name] for name in (stored.files if only is None else only) if name not in without}
    except _DAMAGE as error:
        # For Python objects, numpy's own message advises to allow pickle.
        raise ValueError(_NO_ARRAYS if "pickle" in str(error) else str(error)) from error
    # The reader of numpy returns a member of the archive that is no array as bytes.
    if not all(isinstance(array, np.ndarray) for array in found.values()):
        raise ValueError(_NO_ARRAYS)
    return found
