"""Read a run's stored arrays and tables on demand; leave out and list a file that cannot be read."""

import csv
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...suites.results.record import NUMBERS, ROUNDS, Record
from ...suites.results.store import RECOMPUTE, read_arrays

if TYPE_CHECKING:
    import numpy as np

MOST_ROUNDS = 2**31


@dataclass(frozen=True, kw_only=True)
class SkippedFile:
    """A data file that is missing or cannot be read; ``place`` is its path relative to the run's folder."""

    place: str
    cell_id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class CellFiles:
    """A reader of the arrays and tables stored below the run's folder ``path``. A missing file is no error, but is
    listed. If a copy of a run lacks the whole folder ``cells``, no file is listed as missing.
    """

    path: Path
    _checked: set[str] = field(default_factory=set)
    _left_out: dict[str, SkippedFile] = field(default_factory=dict)

    @cached_property
    def _root(self) -> Path:
        return self.path.resolve()

    @cached_property
    def has_cells(self) -> bool:
        """Whether the run's folder has its folder ``cells``, which a copy of the records alone lacks."""
        return (self.path / "cells").is_dir()

    def unread(self, records: Iterable[Record]) -> tuple[SkippedFile, ...]:
        """Return the files belonging to these result rows that are missing or cannot be read, in the order of the rows;
        each file is opened once.

        Damage inside an array only shows when the array is read. So the list is complete after the rest of the report
        has been made.
        """
        rows = list(records)
        places = {place: record.cell_id for record in rows for place in _places(record)}
        for place, cell_id in places.items():
            if place in self._checked:
                continue
            self._checked.add(place)
            if place.endswith(".npz"):
                self._arrays(place, cell_id, names=())
            elif place.endswith(".csv"):
                self._table(place, cell_id)
        # Only files that a row names: the other tables exist for some cells only.
        for record in rows if self.has_cells else ():
            place = record.artifact
            if place and place not in self._left_out and not (self._root / place).is_file():
                self._leave_out(place, record.cell_id, f"missing; {RECOMPUTE}")
        return tuple(self._left_out[place] for place in places if place in self._left_out)

    def arrays(self, record: Record, without: Collection[str] = ()) -> "dict[str, np.ndarray] | None":
        """Return the arrays stored with a result row, except those named in ``without``; None if there is no file to
        read.
        """
        if not record.artifact.endswith(".npz"):
            return None
        return self._arrays(record.artifact, record.cell_id, without=without)

    def rounds(self, record: Record) -> list[dict[str, float]]:
        """Return what was measured round by round for the defense of a result row, one dictionary per round; empty if
        no table was stored.
        """
        return self._table(_table_path(record, ROUNDS), record.cell_id)

    def _arrays(
        self, place: str, cell_id: str, without: Collection[str] = (), names: Collection[str] | None = None
    ) -> "dict[str, np.ndarray] | None":
        path = self._find(place, cell_id)
        if path is None:
            return None
        try:
            found = read_arrays(path, only=names, without=without)
        except ValueError as error:
            self._leave_out(place, cell_id, f"cannot be read as arrays: {error}; {RECOMPUTE}")
            return None
        self._checked.add(place)
        return found

    def _table(self, place: str, cell_id: str) -> list[dict[str, float]]:
        path = self._find(place, cell_id)
        if path is None:
            return []
        try:
            return [_numbers(row) for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())]
        except (OSError, TypeError, ValueError, csv.Error) as error:
            self._leave_out(place, cell_id, f"cannot be read as a table of numbers: {error}")
            return []

    def _find(self, place: str, cell_id: str) -> Path | None:
        """The file; None if it does not exist, was left out before, or lies outside the run's folder."""
        if place in self._left_out:
            return None
        try:
            path = self._root / place
            # Resolving is slow, so it comes last. Records refuse "..", so only a link can lead outside the folder.
            if not path.is_file():
                return None
            if path.resolve().is_relative_to(self._root):
                return path
        except (OSError, RuntimeError, ValueError) as error:  # An impossible file name, or a circle of links.
            self._leave_out(place, cell_id, str(error))
            return None
        self._leave_out(place, cell_id, "lies outside the run's folder")
        return None

    def _leave_out(self, place: str, cell_id: str, reason: str) -> None:
        self._left_out[place] = SkippedFile(place=place, cell_id=cell_id, reason=reason)


def _places(record: Record) -> list[str]:
    """Paths below the run's folder at which the record's cell may have stored a file."""
    named = [record.artifact] if record.artifact else []
    return [*named, _table_path(record, ROUNDS), _table_path(record, NUMBERS)]


def _table_path(record: Record, name: str) -> str:
    """Cells that share one training share its folder, which the artifact then names; else it is the cell's own."""
    shared = record.artifact.endswith(f"/{ROUNDS}")
    folder = record.artifact.removesuffix(f"/{ROUNDS}") if shared else f"cells/{record.cell_id}"
    return f"{folder}/{name}"


def _numbers(row: dict[str, str]) -> dict[str, float]:
    """One line of a table without its empty cells. Raises TypeError or ValueError for cells that are not numbers."""
    found = {name: float(text) for name, text in row.items() if text}
    for name, value in found.items():
        if not math.isfinite(value):
            raise ValueError(f"the column {name} must hold numbers, got {row[name]}")
    number = found.get("round", math.nan)
    if not (number.is_integer() and 0 <= number < MOST_ROUNDS):
        raise ValueError(f"the column round must hold whole numbers, got {row.get('round')}")
    return found
