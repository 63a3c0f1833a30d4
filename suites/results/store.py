"""Store: a run's folder.

A finished cell is one atomic rename: a run killed at any moment loses nothing and tears nothing.
"""

import fcntl
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, is_zipfile

import numpy as np

from ..config.source import ConfigError
from .record import Record
from .rows import Rows, read_rows

RESULTS, MANIFEST, CLAIMS, GATE = "results.jsonl", "manifest.json", "claims.json", "gate.json"
_RECORDS = "records.jsonl"


class UnwritableRunFolder(OSError):
    """The run's folder cannot be written: the run stops, and can go on when the folder can be written again.

    Apart from other OSErrors, which a part's own code may raise: those are the part's failures.
    """


class Store:
    """Writes and reads back the folder of one run. Workers write cells, one process writes the rest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, folder: Path, manifest: Mapping[str, Any], claims: list[dict[str, Any]]) -> "Store":
        """Start a run: the manifest is written before anything runs.

        Raises:
            FileExistsError: if the folder holds a run, or what is left of one.
            ConfigError: if another process is writing there.
        """
        standing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if not standing.is_dir():
            raise FileExistsError(f"{standing} is a file: name a folder for the run")
        made = [place for place in (folder, *folder.parents) if not place.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        store = cls(folder)
        # Looked at and begun in one breath: of two runs that start here at once, the second must see the first.
        with store.locked():
            store._refuse_another()
            try:
                store.write_claims(claims)
                store.write_json(MANIFEST, manifest)
            except BaseException:
                store._take_back(made)
                raise
        return store

    def _take_back(self, made: Iterable[Path]) -> None:
        """A run that could not be begun leaves nothing; ``made``: folders that it made, the inmost first."""
        with suppress(OSError):  # Stopped once: what stays then holds what another has put there.
            (self.folder / MANIFEST).unlink(missing_ok=True)
            (self.folder / CLAIMS).unlink(missing_ok=True)
            for place in made:
                place.rmdir()

    def _refuse_another(self) -> None:
        if (self.folder / MANIFEST).exists():
            raise FileExistsError(f"{self.folder} already holds a run; resume it, or name another folder")
        # Old cells would be taken for finished ones of this run.
        if left := [name for name in (RESULTS, "cells") if (self.folder / name).exists()]:
            raise FileExistsError(f"{self.folder} holds the rest of a run ({', '.join(left)}); name another folder")

    @classmethod
    def open(cls, folder: Path) -> "Store":
        """An existing run.

        Raises:
            ConfigError: if the folder holds none.
        """
        if not (folder / MANIFEST).is_file():
            raise ConfigError(f"{folder} holds no run: there is no {MANIFEST} in it")
        return cls(folder)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run's folder while writing: two processes on one run would append its rows twice.

        Raises:
            ConfigError: if another process holds it.
        """
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"another process is writing {self.folder}; wait for it, or stop it first") from None
            yield
        finally:
            os.close(folder)

    def manifest(self) -> dict[str, Any]:
        """What the run set out to do."""
        try:
            manifest = json.loads((self.folder / MANIFEST).read_text(encoding="utf-8"))
        except ValueError as error:  # No JSON, or no text.
            raise ConfigError(f"{self.folder / MANIFEST} is no JSON: {error}") from None
        if not isinstance(manifest, dict):
            raise ConfigError(f"{self.folder / MANIFEST} must hold a JSON object, got {type(manifest).__name__}")
        return manifest

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write one JSON file whole or not at all."""
        with _disk(self.folder / name):
            _write_whole(self.folder / name, json.dumps(content, indent=1, allow_nan=False).encode())

    def write_claims(self, claims: list[dict[str, Any]]) -> None:
        """Write what the run's defenses signed."""
        self.write_json(CLAIMS, {"schema": "claims-1", "claims": claims})

    def cell_folder(self, cell_id: str) -> Path:
        """Where a cell keeps its files."""
        return self.folder / "cells" / cell_id

    def save_arrays(self, cell_id: str, name: str, arrays: Mapping[str, np.ndarray]) -> str:
        """Save arrays of plain numbers beside a cell's records; returns the path below the run's folder.

        Raises:
            ValueError: for an array of objects, which only pickle could hold.
        """
        for key, array in arrays.items():
            if np.asarray(array).dtype.hasobject:
                raise ValueError(f"array {key!r} of {name} must hold plain numbers, got objects")
        content = io.BytesIO()
        np.savez_compressed(content, **{key: np.asarray(array) for key, array in arrays.items()})  # type: ignore[arg-type]
        return self._save(cell_id, f"{name}.npz", content.getvalue())

    def save_text(self, cell_id: str, name: str, text: str) -> str:
        """Save a text file beside a cell's records; returns the path below the run's folder."""
        return self._save(cell_id, name, text.encode(errors="backslashreplace"))

    def _save(self, cell_id: str, name: str, content: bytes) -> str:
        place = self.cell_folder(cell_id)
        with _disk(place / name):
            place.mkdir(parents=True, exist_ok=True)
            _write_whole(place / name, content)
        return f"cells/{cell_id}/{name}"

    def discard(self, cell_id: str, name: str) -> None:
        """Take a file away that a finished cell needs no more, if it is there."""
        place = self.cell_folder(cell_id) / name
        with _disk(place):
            place.unlink(missing_ok=True)

    def load_arrays(self, path: str) -> dict[str, np.ndarray]:
        """Arrays that ``save_arrays`` saved. Raises ValueError for a file that was damaged since."""
        try:
            with np.load(self.folder / path, allow_pickle=False) as stored:
                return dict(stored)
        except (BadZipFile, EOFError, ValueError) as error:
            raise ValueError(f"{path} cannot be read ({error}); resume with --retry-failed makes it again") from error

    def finish(self, cell_id: str, records: Iterable[Record]) -> None:
        """Finish a cell: its rows appear all at once. What is written here is never computed again."""
        self._save(cell_id, _RECORDS, "".join(record.to_line() for record in records).encode())

    def finished(self) -> set[str]:
        """Cells whose rows are whole on disk, in results.jsonl or not yet: none whose file was emptied or spoilt."""
        files = (self.folder / "cells").glob(f"*/{_RECORDS}")
        return {path.parent.name for path in files if _whole(path.parent.name, path.read_bytes())}

    def forget_failed(self) -> int:
        """Take back every cell that failed, or has rows or arrays that cannot be read, so that it is run again; its old
        rows stay beside it. Returns how many.
        """
        failed = [cell for cell in self.finished() if _failed(self._cell_rows(cell)) or self._damaged(cell)]
        with _disk(self.folder / "cells"):
            for cell_id in failed:
                place = self.cell_folder(cell_id)
                (place / _RECORDS).replace(place / f"failed-{_RECORDS}")
        return len(failed)

    def _damaged(self, cell_id: str) -> bool:
        return not all(is_zipfile(path) for path in self.cell_folder(cell_id).glob("*.npz"))

    def cell_records(self, cell_id: str) -> list[Record]:
        """The rows of one finished cell. Raises ValueError where one of them cannot be read."""
        rows = self._cell_rows(cell_id)
        for skipped in rows.skipped:
            raise ValueError(f"cells/{cell_id}/{_RECORDS}:{skipped.line}: {skipped.reason}")
        return list(rows.records)

    def _cell_rows(self, cell_id: str) -> Rows:
        return read_rows(self.cell_folder(cell_id) / _RECORDS)

    def collect(self) -> set[str]:
        """Append every finished cell that results.jsonl lacks; a torn tail is cut off first. Returns the cells it now
        holds.
        """
        kept = self._mend()
        missing = sorted(self.finished() - kept)
        for cell_id in missing:
            self.append(cell_id)
        return kept | set(missing)

    def append(self, cell_id: str) -> None:
        """Append one finished cell's rows to results.jsonl, in one write, and flush them to the disk."""
        lines = (self.cell_folder(cell_id) / _RECORDS).read_bytes()
        with _disk(self.folder / RESULTS), (self.folder / RESULTS).open("ab") as results:
            results.write(lines)
            results.flush()
            os.fsync(results.fileno())

    def records(self) -> list[Record]:
        """All rows in results.jsonl that can be read; none before the first cell is finished."""
        return list(self.rows().records)

    def rows(self) -> Rows:
        """What results.jsonl holds, and the lines in it that cannot be read."""
        return read_rows(self.folder / RESULTS)

    def _mend(self) -> set[str]:
        """Rewrite results.jsonl unless every row in it is one of a whole finished cell, as the cell's own file has it;
        returns those cells.
        """
        path = self.folder / RESULTS
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        found: dict[str, list[bytes]] = {}
        for line in lines:
            if (cell_id := _cell_of(line)) is not None:
                found.setdefault(cell_id, []).append(line)
        whole = {
            cell_id
            for cell_id in found.keys() & self.finished()
            if b"".join(found[cell_id]) == (self.cell_folder(cell_id) / _RECORDS).read_bytes()
        }
        kept = b"".join(line for line in lines if _cell_of(line) in whole)
        if kept != b"".join(lines):
            with _disk(path):
                _write_whole(path, kept)
        return whole


def _whole(cell_id: str, content: bytes) -> bool:
    return bool(content) and all(_cell_of(line) == cell_id for line in content.splitlines(keepends=True))


def _failed(rows: Rows) -> bool:
    return bool(rows.skipped) or any(row.status == "failed" for row in rows.records)


@contextmanager
def _disk(place: Path) -> Iterator[None]:
    """``place``: what is written. A full disk does not say which file it was, and a temporary one tells nobody."""
    try:
        yield
    except OSError as error:
        raise UnwritableRunFolder(error.errno, error.strerror or str(error), str(place)) from error


def _cell_of(line: bytes) -> str | None:
    """The cell of a line, or None for a torn one."""
    try:
        return str(json.loads(line)["cell_id"]) if line.endswith(b"\n") else None
    except (ValueError, KeyError, TypeError):
        return None


def _write_whole(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
