"""Write a file completely or not at all, and refuse output paths that would replace a run's data."""

import os
import tempfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_DATA = ("results.jsonl", "manifest.json", "claims.json", "gate.json")


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a text (as UTF-8) or bytes atomically, so that a reader finds either the old file or the new one; return
    ``path``.

    A pipe or a device is written directly; a reader that closes the pipe early is not an error. Raises OSError, which
    names ``path``.
    """
    data = content.encode() if isinstance(content, str) else content
    with naming(path):
        # Before resolving, because /dev/stdout may resolve to a name that does not exist.
        if path.exists() and not path.is_file():
            with suppress(BrokenPipeError):
                path.write_bytes(data)
        else:
            # Replacing a link itself would leave the file that it points to unchanged.
            _replace(path.resolve(), data)
    return path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raise an OSError of the ``with`` block again with the file name ``path``, because the original error may name no
    file, a folder or a temporary file.
    """
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _replace(place: Path, data: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    # In the target folder, because a rename across file systems is not atomic.
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name[:100]}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp makes files that only their owner can read.
        temporary.chmod(0o644)
        temporary.replace(place)
    finally:
        temporary.unlink(missing_ok=True)


def check_targets(targets: Collection[Path], runs: Iterable[Path], read: Iterable[Path] = ()) -> None:
    """Raise ValueError if an output path is a folder, occurs twice, belongs to the data of ``runs``, or is one of the
    input files ``read``.
    """
    places, folders = [path.resolve() for path in targets], [run.resolve() for run in runs]
    data = {folder / name for folder in folders for name in _DATA} | {path.resolve() for path in read}
    cells = {folder / "cells" for folder in folders}
    overwrites = any(place in data or place.is_dir() or cells & {place, *place.parents} for place in places)
    if overwrites or len(set(places)) < len(places):
        named = " and ".join(repr(str(path)) for path in targets)
        raise ValueError(f"each output must be a separate file, neither a folder nor part of a run's data, got {named}")
