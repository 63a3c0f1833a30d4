"""Read and write the folder of a run, its arrays, and the digests that show later changes.

A cell is finished by one atomic rename, so that a run killed at any moment leaves no half-written rows.
"""

import errno
import io
import json
import os
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ...audit.output_file import (
    SUM,
    check_inside,
    digest_of,
    is_changed,
    parsed_json,
    with_checksum,
    write_atomically,
)
from ...fl.data.files.readers import arrays_of
from ...fl.folder_lock import LOCK, locked
from ..config.source import ConfigError, config_errors
from .record import Record
from .rows import Rows, read_rows

RESULTS, MANIFEST, CLAIMS, GATE = "results.jsonl", "manifest.json", "claims.json", "gate.json"
SESSION = ".session"
_AUDITS = ("training.json", "replicas.jsonl")
"""A file of which kept runs of a function, or of a system, consist."""
RECOMPUTE = "resume the run with --retry-failed to compute the data again"
_RECORDS = "records.jsonl"
_TEMPORARY = re.compile(r"\..+\.(jsonl?|npz|csv|txt)\.\w+\.part")
"""Name of a file while ``write_atomically`` writes it."""
_WRITTEN = (RESULTS, MANIFEST, CLAIMS, GATE, LOCK, SESSION, "cells", "report.html", "report.md")
_OF_THE_DISK = (errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC)
"""Errors that pass, after which the same call may succeed."""


class UnwritableRunFolder(OSError):
    """An error that means that the run's folder cannot be written. The run stops, and can be resumed when the folder is
    writable again.

    It differs from other OSErrors, which a part's own code may raise and which become failed rows.
    """


def no_run(folder: Path) -> str:
    """Return the error message for a folder that holds no run."""
    if any((folder / name).is_file() for name in _AUDITS):
        return f"{folder} holds runs of `fedassay audit`, not of a suite: repeat that command to continue them"
    return f"{folder} holds no run: the file {MANIFEST} is missing"


class Store:
    """A run's folder. Worker processes write their own results into it; a single process writes all other files.

    ``identifier``: that of the session which gives this store to its workers, see ``session``; such a store refuses to
    write once the session has ended. Empty for other stores.
    """

    def __init__(self, folder: Path, *, identifier: str = "") -> None:
        self.folder = folder
        self.identifier = identifier

    @classmethod
    def create(cls, folder: Path, manifest: Mapping[str, Any], claims: list[dict[str, Any]]) -> "Store":
        """Create the folder of a new run and write its manifest before anything runs.

        Raises:
            ConfigError: if the folder holds a run or the rest of one, if it cannot be made or written, or if another
                process is writing there.
            UnwritableRunFolder: if the disk is full or fails.
        """
        with _mistakes_of(folder):
            return cls._created(folder, manifest, claims)

    @classmethod
    def _created(cls, folder: Path, manifest: Mapping[str, Any], claims: list[dict[str, Any]]) -> "Store":
        existing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if not existing.is_dir():
            raise ConfigError(f"{existing} is a file: name a folder for the run")
        made = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        store = cls(folder)
        # The check and the first write happen under one lock: of two runs started here at once, one must be refused.
        with store.locked():
            store._refuse_another()
            try:
                store.write_claims(claims)
                store.write_manifest(manifest)
            except BaseException:
                store._take_back(made)
                raise
        return store

    def _take_back(self, made: Iterable[Path]) -> None:
        """Remove the files of a run that could not be started; ``made``: the folders that it created, inner first."""
        # A folder that is not empty holds files of another process: it stays, with its parents.
        with suppress(OSError):
            (self.folder / MANIFEST).unlink(missing_ok=True)
            (self.folder / CLAIMS).unlink(missing_ok=True)
            (self.folder / LOCK).unlink(missing_ok=True)
            for place in made:
                place.rmdir()

    def _refuse_another(self) -> None:
        if (self.folder / MANIFEST).exists():
            raise ConfigError(f"{self.folder} already holds a run; resume it, or name another folder")
        # Cells left from an old run would count as finished ones of this run.
        if left := [name for name in (RESULTS, "cells") if (self.folder / name).exists()]:
            raise ConfigError(
                f"{self.folder} holds files left over from a run ({', '.join(left)}); name another folder"
            )

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """Open the folder of an existing run.

        Raises:
            ConfigError: if the folder holds none.
        """
        if not (folder / MANIFEST).is_file():
            raise ConfigError(no_run(folder))
        return cls(folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the run's folder while it is written, because two processes on one run would append its rows twice.

        Raises:
            ConfigError: if another process holds the lock, the folder cannot be written, or a link leads out of it.
        """
        with config_errors():
            for name in _WRITTEN:
                check_inside(self.folder / name, self.folder)
            for place in filter(Path.is_symlink, (self.folder / "cells").glob("*")):
                check_inside(place, self.folder)
        with ExitStack() as held:
            with _mistakes_of(self.folder), _naming(self.folder), config_errors():
                held.enter_context(locked(self.folder))
            yield

    @contextmanager
    def session(self) -> Iterator["Store"]:
        """Begin a session, in which the cells of the locked run are computed; yield the store to be given to workers.

        A worker of a cluster may outlive the session that sent its job. It must not write over the rows of a later one,
        so every session has an identifier of its own, which is kept in the folder until the session ends.
        """
        path, identifier = self.folder / SESSION, secrets.token_hex(8)
        with _naming(path):
            path.write_text(identifier, encoding="utf-8")
        try:
            yield Store(self.folder, identifier=identifier)
        finally:
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def in_session(self) -> bool:
        """Return whether this process sees the run's folder, and the session for which this store was made has not
        ended.
        """
        try:
            return not self.identifier or (self.folder / SESSION).read_text(encoding="utf-8") == self.identifier
        except OSError:
            return False

    def _check_session(self) -> None:
        if not self.in_session():
            raise UnwritableRunFolder(errno.ESTALE, "the run that sent this job has ended", str(self.folder))

    def manifest(self) -> dict[str, Any]:
        """Return the run's manifest; raise ConfigError if it is not a JSON object."""
        with config_errors():
            return read_json(self.folder / MANIFEST)

    def write_manifest(self, content: Mapping[str, Any]) -> None:
        """Write the run's manifest with its checksum."""
        self.write_json(MANIFEST, with_checksum(content))

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write one JSON file atomically, that is, completely or not at all."""
        with _naming(self.folder / name):
            write_atomically(self.folder / name, json.dumps(content, indent=1, allow_nan=False).encode())

    def write_claims(self, claims: list[dict[str, Any]]) -> None:
        """Write the claims that the run's defenses state."""
        self.write_json(CLAIMS, {"schema": "claims-1", "claims": claims})

    def cell_folder(self, cell_id: str) -> Path:
        """Return the folder with the files of one cell, the smallest unit of work that is stored."""
        return self.folder / "cells" / cell_id

    def save_arrays(self, cell_id: str, name: str, arrays: Mapping[str, np.ndarray]) -> str:
        """Save numeric arrays in the folder of a cell (unit of work); return the file's path relative to the run's
        folder.

        Raises:
            ValueError: for an array of objects, which only pickle could hold.
        """
        for key, array in arrays.items():
            if np.asarray(array).dtype.hasobject:
                raise ValueError(f"array {key!r} of {name} must hold plain numbers, got Python objects")
        # Compressed in memory first, so that the file itself appears in one atomic rename.
        content = io.BytesIO()
        np.savez_compressed(content, **{key: np.asarray(array) for key, array in arrays.items()})  # type: ignore[arg-type]
        return self._save(cell_id, f"{name}.npz", content.getvalue())

    def save_text(self, cell_id: str, name: str, text: str) -> str:
        """Save a text file in the folder of a cell (unit of work); return its path relative to the run's folder."""
        return self._save(cell_id, name, text.encode(errors="backslashreplace"))

    def _save(self, cell_id: str, name: str, content: bytes) -> str:
        self._check_session()
        place = self.cell_folder(cell_id)
        with _naming(place / name):
            place.mkdir(parents=True, exist_ok=True)
            write_atomically(place / name, content)
        return f"cells/{cell_id}/{name}"

    def discard(self, cell_id: str, name: str) -> None:
        """Delete a file, if it exists, that a finished cell (unit of work) no longer needs."""
        self._check_session()
        place = self.cell_folder(cell_id) / name
        with _naming(place):
            place.unlink(missing_ok=True)

    def load_arrays(self, path: str) -> dict[str, np.ndarray]:
        """Load arrays that ``save_arrays`` saved; raise ValueError if the file is missing or damaged."""
        try:
            return read_arrays(self.folder / path)
        except ValueError as error:
            raise ValueError(f"{path} cannot be read ({error}); {RECOMPUTE}") from error

    def finish(self, cell_id: str, records: Iterable[Record]) -> None:
        """Mark a cell (unit of work) as finished by writing all its rows at once; it is never computed again."""
        self._save(cell_id, _RECORDS, "".join(record.to_line() for record in records).encode())

    def finished(self) -> set[str]:
        """Return the ids of the cells (units of work) whose own folder holds all their rows, whether results.jsonl has
        them yet or not.
        """
        places = (self.folder / "cells").glob(f"*/{_RECORDS}")
        return {path.parent.name for path in places if self.is_finished(path.parent.name)}

    def is_finished(self, cell_id: str) -> bool:
        """Return whether the folder of a cell (unit of work) holds all its rows."""
        # A file that was emptied or damaged since does not count: its cell is computed again.
        try:
            return _is_complete(cell_id, (self.cell_folder(cell_id) / _RECORDS).read_bytes())
        except FileNotFoundError:
            return False

    def forget_failed(self) -> int:
        """Reopen every cell (unit of work) that failed, or whose rows or data file are missing or unreadable, so that
        it is run again.

        Returns their number. The old rows stay in the cell's folder, in a file of their own.
        """
        finished = {cell: self._cell_rows(cell) for cell in self.finished()}
        failed = [cell for cell, rows in finished.items() if _failed(rows) or not self._has_files(rows)]
        self._set_aside(failed, f"failed-{_RECORDS}")
        return len(failed)

    def forget_others(self, planned: Collection[str]) -> None:
        """Take every finished cell (unit of work) that is no longer ``planned`` out of the run's results; its rows stay
        in the cell's folder, in a separate file.
        """
        self._set_aside([cell for cell in self.finished() if cell not in planned], f"former-{_RECORDS}")

    def _set_aside(self, cells: Iterable[str], name: str) -> None:
        with _naming(self.folder / "cells"):
            for cell_id in cells:
                place = self.cell_folder(cell_id)
                (place / _RECORDS).replace(place / name)

    def _has_files(self, rows: Rows) -> bool:
        """Whether every data file that these rows name exists and, if it holds arrays, can be read."""
        for path in {row.artifact for row in rows.records} - {""}:
            try:
                if path.endswith(".npz"):
                    self.load_arrays(path)
                elif not (self.folder / path).is_file():
                    return False
            except ValueError:
                return False
        return True

    def cell_records(self, cell_id: str) -> list[Record]:
        """Return the result rows of one finished cell (unit of work); raise ValueError if one of them cannot be
        read.
        """
        rows = self._cell_rows(cell_id)
        for skipped in rows.skipped:
            raise ValueError(f"cells/{cell_id}/{_RECORDS}:{skipped.line}: {skipped.reason}")
        return list(rows.records)

    def _cell_rows(self, cell_id: str) -> Rows:
        return read_rows(self.cell_folder(cell_id) / _RECORDS)

    def collect(self) -> set[str]:
        """Repair results.jsonl, append every finished cell (unit of work) that it lacks, and return the ids of all
        cells in it. Files that a killed process left half written are removed.
        """
        self._remove_temporary()
        present = self._repair()
        missing = sorted(self.finished() - present)
        for cell_id in missing:
            self.append(cell_id)
        return present | set(missing)

    def _remove_temporary(self) -> None:
        for pattern in (".*", "cells/*/.*"):
            for path in self.folder.glob(pattern):
                if _TEMPORARY.fullmatch(path.name):
                    with _naming(path):
                        path.unlink(missing_ok=True)

    def append(self, cell_id: str) -> None:
        """Append the rows of one finished cell (unit of work) to results.jsonl in one write, and flush them to the
        disk.
        """
        lines = (self.cell_folder(cell_id) / _RECORDS).read_bytes()
        with _naming(self.folder / RESULTS), (self.folder / RESULTS).open("ab") as results:
            results.write(lines)
            results.flush()
            os.fsync(results.fileno())

    def records(self) -> list[Record]:
        """Return all readable rows of results.jsonl; none before the first unit of work is finished."""
        return list(self.rows().records)

    def rows(self) -> Rows:
        """Return the rows of results.jsonl, together with the lines that cannot be read."""
        return read_rows(self.folder / RESULTS)

    def _repair(self) -> set[str]:
        """Remove all rows from results.jsonl that differ from a finished cell's own file; returns the other cells.

        An interrupted write leaves such rows: half a line, or only some rows of a cell.
        """
        path = self.folder / RESULTS
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        found: dict[str, list[bytes]] = {}
        for line in lines:
            if (cell_id := _cell_of(line)) is not None:
                found.setdefault(cell_id, []).append(line)
        complete = {
            cell_id
            for cell_id in found.keys() & self.finished()
            if b"".join(found[cell_id]) == (self.cell_folder(cell_id) / _RECORDS).read_bytes()
        }
        kept = b"".join(line for line in lines if _cell_of(line) in complete)
        if kept != b"".join(lines):
            with _naming(path):
                write_atomically(path, kept)
        return complete


def _is_complete(cell_id: str, content: bytes) -> bool:
    return bool(content) and all(_cell_of(line) == cell_id for line in content.splitlines(keepends=True))


def _failed(rows: Rows) -> bool:
    return bool(rows.skipped) or any(row.status == "failed" for row in rows.records)


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; raise ValueError, with the file's name, for any other content."""
    try:
        content = parsed_json(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except ValueError as error:  # Invalid or too deeply nested JSON, or bytes that are not UTF-8.
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content


def _no_constant(word: str) -> None:
    # Python reads NaN and Infinity; written back as JSON, some of them become null and leave a checksum as it was.
    raise ValueError(f"{word} is not a JSON value")


@contextmanager
def _naming(place: Path) -> Iterator[None]:
    """Turn an OSError into one that names ``place``: that of a full disk names no file, or a temporary one."""
    try:
        yield
    except OSError as error:
        raise UnwritableRunFolder(error.errno, error.strerror or str(error), str(place)) from error


@contextmanager
def _mistakes_of(folder: Path) -> Iterator[None]:
    """Turn errors of a folder's name, place or rights into ConfigError; those of a full or broken disk pass."""
    try:
        yield
    except ConfigError:
        raise
    except OSError as error:
        if error.errno in _OF_THE_DISK:
            raise
        words = error.strerror or str(error)
        raise ConfigError(f"the folder {folder} cannot be made or written: {words[:1].lower()}{words[1:]}") from error
    except ValueError as error:  # The name holds a null character.
        raise ConfigError(f"folder must be the path of a run's folder, got {str(folder)!r}: {error}") from None


def _cell_of(line: bytes) -> str | None:
    """The cell of a line, or None for an incomplete line."""
    try:
        return str(parsed_json(line)["cell_id"]) if line.endswith(b"\n") else None
    except (ValueError, KeyError, TypeError):
        return None


ROWS_SHA, CLAIMS_SHA, MANIFEST_SHA = "rows_sha256", "claims_sha256", "manifest_sha256"
_FILES = {ROWS_SHA: RESULTS, CLAIMS_SHA: CLAIMS, MANIFEST_SHA: MANIFEST}
_LATER = ("finished", "cpu_s", SUM)
"""Keys of the manifest that are written after the digests; the manifest's own checksum covers them."""


def digests(folder: Path, rows: Rows) -> dict[str, str]:
    """Compute the SHA-256 digests of a run's result rows, claims and manifest; a missing file has an empty digest."""
    claims, manifest = folder / CLAIMS, folder / MANIFEST
    return {
        ROWS_SHA: rows.digest,
        CLAIMS_SHA: digest_of(read_json(claims)) if claims.is_file() else "",
        MANIFEST_SHA: digest_of(read_json(manifest), without=_LATER) if manifest.is_file() else "",
    }


def changed_files(gate: Mapping[str, Any], folder: Path, rows: Rows) -> tuple[str, ...]:
    """Return the names of the files that changed since the run's verdict ``gate`` was stored, including gate.json if it
    lacks a digest.
    """
    now, manifest = digests(folder, rows), read_json(folder / MANIFEST)
    changed = {name for key, name in _FILES.items() if key in gate and gate[key] != now[key]}
    changed |= {MANIFEST} if is_changed(manifest) else set()
    changed |= {GATE} if _FILES.keys() - gate.keys() else set()
    return tuple(name for name in (*_FILES.values(), GATE) if name in changed)


def read_arrays(
    path: Path, *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name: those named in ``only``, or all if it is None, except those in ``without``.

    Raises:
        ValueError: the file is missing, is damaged, lacks an array, or holds something other than arrays of numbers or
            texts.
    """
    if not path.is_file():
        raise ValueError("it is missing")
    found = arrays_of(path, lambda name: (only is None or name in only) and name not in without, more=0)
    if lacking := sorted(set(only or ()) - found.keys() - set(without)):
        raise ValueError(f"{path.name} holds no array {lacking[0]}")
    return {name: array for name, array in found.items() if array is not None}
