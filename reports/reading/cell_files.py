"""The data files of a run's cells, as the press reads them: what cannot be read is told and left out."""

import csv
import math
import struct
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

from ...suites.results.record import NUMBERS, ROUNDS, Record
from .cell_arrays import check_arrays

if TYPE_CHECKING:
    import numpy as np

MOST_ROUNDS = 2**31
_DAMAGE = (
    *(BadZipFile, EOFError, MemoryError, OSError, struct.error, zlib.error),
    *(KeyError, NotImplementedError, TypeError, ValueError),
)
"""What numpy and the zip archive below it say of a file that is none of theirs."""


@dataclass(frozen=True, kw_only=True)
class SkippedFile:
    """A data file that was left out. ``place``: its path below the run's folder."""

    place: str
    cell_id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class CellFiles:
    """Arrays and tables that cells left below the run's folder ``path``. A file that is not there was not copied along:
    nobody misses it.
    """

    path: Path
    _looked_into: set[str] = field(default_factory=set)
    _left_out: dict[str, SkippedFile] = field(default_factory=dict)

    @cached_property
    def _root(self) -> Path:
        return self.path.resolve()

    def unread(self, records: Iterable[Record]) -> tuple[SkippedFile, ...]:
        """Files of these records that cannot be read, in the order of the records; each is looked into once.

        A damage inside an array, which only who reads all of it sees, is told once somebody has asked for the array.
        """
        places = {place: record.cell_id for record in records for place in _places(record)}
        for place, cell_id in places.items():
            if place in self._looked_into:
                continue
            self._looked_into.add(place)
            if place.endswith(".npz"):
                self._arrays(place, cell_id, names=())
            else:
                self._table(place, cell_id)
        return tuple(self._left_out[place] for place in places if place in self._left_out)

    def arrays(self, record: Record, without: Collection[str] = ()) -> "dict[str, np.ndarray] | None":
        """The arrays of a record's npz artifact, but for those that are named; None where it has none to read."""
        if not record.artifact.endswith(".npz"):
            return None
        return self._arrays(record.artifact, record.cell_id, without=without)

    def rounds(self, record: Record) -> list[dict[str, float]]:
        """What its cell measured round by round, a row a round and a name a column; empty where it left nothing to
        read.
        """
        return self._table(_beside(record, ROUNDS), record.cell_id)

    def numbers(self, record: Record) -> list[dict[str, float]]:
        """What the protection of its cell made public round by round; as ``rounds``."""
        return self._table(_beside(record, NUMBERS), record.cell_id)

    def _arrays(
        self, place: str, cell_id: str, without: Collection[str] = (), names: Collection[str] | None = None
    ) -> "dict[str, np.ndarray] | None":
        import numpy as np

        path = self._find(place, cell_id)
        if path is None:
            return None
        try:
            with np.load(path, allow_pickle=False) as stored:
                wanted = stored.files if names is None else names
                found = {name: stored[name] for name in wanted if name not in without}
            check_arrays(found)
        except _DAMAGE as error:
            self._leave_out(place, cell_id, f"holds no such arrays: {error}")
            return None
        self._looked_into.add(place)
        return found

    def _table(self, place: str, cell_id: str) -> list[dict[str, float]]:
        path = self._find(place, cell_id)
        if path is None:
            return []
        try:
            return [_numbers(row) for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())]
        except (OSError, TypeError, ValueError, csv.Error) as error:
            self._leave_out(place, cell_id, f"is no table of numbers: {error}")
            return []

    def _find(self, place: str, cell_id: str) -> Path | None:
        """The file, unless it is not there, was left out before, or lies outside the run's folder."""
        if place in self._left_out:
            return None
        try:
            path = self._root / place
            # Only what is there is worth resolving; a path without a step upwards lies outside by a link alone.
            if not path.is_file():
                return None
            if path.resolve().is_relative_to(self._root):
                return path
        except (OSError, RuntimeError, ValueError) as error:  # A name no file can have, a circle of links.
            self._leave_out(place, cell_id, str(error))
            return None
        self._leave_out(place, cell_id, "lies outside the run's folder")
        return None

    def _leave_out(self, place: str, cell_id: str, reason: str) -> None:
        self._left_out[place] = SkippedFile(place=place, cell_id=cell_id, reason=reason)


def _places(record: Record) -> list[str]:
    """Where the record's cell may have left something to read."""
    arrays = [record.artifact] if record.artifact.endswith(".npz") else []
    return [*arrays, _beside(record, ROUNDS), _beside(record, NUMBERS)]


def _beside(record: Record, name: str) -> str:
    """A table of the record's cell, which stands beside its artifact or in the folder of its number."""
    beside = record.artifact.endswith(f"/{ROUNDS}")
    folder = record.artifact.removesuffix(f"/{ROUNDS}") if beside else f"cells/{record.cell_id}"
    return f"{folder}/{name}"


def _numbers(row: dict[str, str]) -> dict[str, float]:
    """One line of a table, without its empty places. Raises TypeError or ValueError for one that holds no numbers."""
    found = {name: float(text) for name, text in row.items() if text}
    for name, value in found.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} must be a number, got {row[name]}")
    number = found.get("round", math.nan)
    if not (number.is_integer() and 0 <= number < MOST_ROUNDS):
        raise ValueError(f"round must be a whole number, got {row.get('round')}")
    return found
