"""A file written whole or not at all."""

import os
import tempfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

_DATA = ("results.jsonl", "manifest.json", "claims.json", "gate.json")


def write_whole(path: Path, text: str) -> Path:
    """Atomic: a reader sees the old file or the new one, never half of one. Returns ``path``; an OSError names it.

    A pipe or a device is written into; one whose reader has seen enough is no failure.
    """
    if path.exists() and not path.is_file():  # Asked of the path itself: /dev/stdout may lead to no name at all.
        with suppress(BrokenPipeError):
            path.write_text(text, encoding="utf-8")  # A folder refuses.
        return path
    place = path.resolve()  # Behind a link stands the file that is meant.
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name[:100]}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.chmod(0o644)
        temporary.replace(place)
    except OSError as error:  # A full disk does not say which file it was.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def check_targets(targets: Collection[Path], runs: Iterable[Path], read: Iterable[Path] = ()) -> None:
    """Raise ValueError unless each of the files to write is one of its own: no folder, none twice, none that the runs
    keep (their pages apart), none that was read.
    """
    places, folders = [path.resolve() for path in targets], [run.resolve() for run in runs]
    data = {folder / name for folder in folders for name in _DATA} | {path.resolve() for path in read}
    cells = {folder / "cells" for folder in folders}
    spoils = any(place in data or place.is_dir() or cells & {place, *place.parents} for place in places)
    if spoils or len(set(places)) < len(places):
        named = " and ".join(repr(str(path)) for path in targets)
        raise ValueError(f"what is written needs a file of its own, no folder and none of a run's data, got {named}")
