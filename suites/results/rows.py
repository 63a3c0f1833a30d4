"""Read a file of result rows line by line; report lines that cannot be read and keep all others."""

import hashlib
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypedDict

from pydantic import ValidationError

from ...audit.output_file import parsed_json
from ..config.source import mistake_text
from .record import SCHEMA, Record

_START = re.compile(rb'(?=\{"schema":)')
TORN = "the row was cut off while it was written"
REPEATED = "the row repeats an earlier row"
CONTRADICTED = "the row measures what an earlier row measured already; the earlier row is kept"


@dataclass(frozen=True, kw_only=True)
class SkippedRow:
    """A line of a results file that could not be read or repeats an earlier row.

    ``line`` is its number from 1, and ``cell_id`` is empty if not known.
    """

    line: int
    cell_id: str
    reason: str


class SkippedCounts(TypedDict):
    """The number of lines that could not be read, and of those that repeat an earlier row."""

    unread: int
    repeated: int


def skipped_counts(skipped: Iterable[SkippedRow]) -> SkippedCounts:
    """Count the skipped lines of a results file by whether they can be read."""
    repeated = [row.reason in (REPEATED, CONTRADICTED) for row in skipped]
    return {"unread": repeated.count(False), "repeated": repeated.count(True)}


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The content of a results file: its rows in the order of the file, and the lines that could not be read."""

    records: tuple[Record, ...]
    skipped: tuple[SkippedRow, ...]
    digest: str
    """SHA-256 of the lines, independent of their order and line ends; gate.json keeps it to detect changes."""


def read_rows(path: Path) -> Rows:
    """Read every readable row of a results file; a missing file has no rows. If a measurement is stored more than once,
    only its first row counts.
    """
    digest = ""
    if path.exists():
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    return _rows_of(path, digest)


# Cached: a run's end, its report and the terminal each read the same file.
@lru_cache(maxsize=1)
def _rows_of(path: Path, content: str) -> Rows:
    reader = _Reader()
    lines: set[bytes] = set()
    # Bytes, because a text file would also break a line inside a reason, at U+2028; one by one, because of the memory.
    with path.open("rb") if path.exists() else io.BytesIO() as file:
        for number, line in enumerate(file, start=1):
            reader.read(number, line)
            if line.strip():
                lines.add(hashlib.sha256(line.strip()).digest())
    # Sorted: workers finish in any order, and a resumed run appends its cells in another one.
    digest = hashlib.sha256(b"".join(sorted(lines))).hexdigest()
    return Rows(records=tuple(reader.records.values()), skipped=tuple(reader.skipped), digest=digest)


class _Reader:
    def __init__(self) -> None:
        self.records: dict[tuple[object, ...], Record] = {}
        self.skipped: list[SkippedRow] = []
        self.known: dict[object, Any] = {}

    def read(self, number: int, line: bytes) -> None:
        """Read the rows of one line: more than one where a row was appended to the rest of an interrupted write.

        Quotes inside a row are escaped, so that no row can contain the beginning of another.
        """
        try:
            content = parsed_json(line)
        except ValueError:
            for part in filter(bytes.strip, _START.split(line)):
                self._read(number, partial(_parsed, part))
        else:
            self._read(number, lambda: content)

    def _read(self, number: int, parsed: Callable[[], Any]) -> None:
        content: Any = None
        try:
            content = parsed()
            self._keep(self._shared(read_record(content)))
        except ValueError as error:
            found = content.get("cell_id") if isinstance(content, dict) else None
            cell_id = found if isinstance(found, str) else ""
            self.skipped.append(SkippedRow(line=number, cell_id=cell_id, reason=str(error)))

    def _shared(self, record: Record) -> Record:
        """The record, with the texts that it has in common with earlier ones: they are half of the memory."""
        for name, value in vars(record).items():
            if type(value) is str:
                vars(record)[name] = self.known.setdefault(value, value)
        stated = record.model_fields_set
        object.__setattr__(record, "__pydantic_fields_set__", self.known.setdefault(frozenset(stated), stated))
        return record

    def _keep(self, record: Record) -> None:
        earlier = self.records.setdefault(_measurement(record), record)
        if earlier is not record:
            raise ValueError(REPEATED if earlier == record else CONTRADICTED)


def _parsed(text: bytes) -> Any:
    try:
        return parsed_json(text)
    except ValueError as error:
        torn = text.lstrip().startswith(b"{") and not text.rstrip().endswith(b"}")
        raise ValueError(TORN if torn else f"the line is not JSON: {error}") from None


def read_record(content: Any) -> Record:
    """Convert parsed JSON to a result row; raise ValueError for the first mistake."""
    if not isinstance(content, dict):
        raise ValueError(f"a row must be a JSON object, got {type(content).__name__}")
    if (schema := content.get("schema")) != SCHEMA:
        raise ValueError(f"a row must have schema {SCHEMA!r}, which this version of fedassay reads, got {schema!r}")
    try:
        # Strict: fedassay never writes a number as text, so such a row was edited by hand.
        return Record.model_validate(content, strict=True)
    except ValidationError as error:
        raise ValueError(f"the line is not a valid result row: {first_mistake(error)}") from None


def first_mistake(error: ValidationError) -> str:
    """Describe the first validation error, and state how many more there are."""
    found = error.errors()
    place, more = ".".join(str(part) for part in found[0]["loc"]), len(found) - 1
    return mistake_text(place, found[0]) + (f", and {more} more" if more else "")


def _measurement(record: Record) -> tuple[object, ...]:
    """The fields that identify a measurement: no finished cell has two rows that agree in all of them."""
    return (
        record.cell_id,
        record.role,
        record.attack,
        record.metric,
        record.scope,
        record.round,
        record.client,
        record.record,
        record.seed,
    )
