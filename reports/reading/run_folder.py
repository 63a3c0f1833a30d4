"""A run's folder as the press reads it: manifest, records, claims and gate. It reads data only and writes nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ...suites.results.checksums import changed_files
from ...suites.results.claims_file import SCHEMA as CLAIMS_SCHEMA
from ...suites.results.claims_file import StatedClaim, stated_claims
from ...suites.results.outcome import Outcome, judge_run
from ...suites.results.record import Record
from ...suites.results.rows import SkippedRow, first_mistake, read_rows
from .cell_files import CellFiles
from .json_file import read_json
from .printable import printable_content, printable_record

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
MANIFEST_SCHEMA = "manifest-1"


class Git(BaseModel):
    """The commit of the code that ran; further fields are let through."""

    model_config = ConfigDict(extra="allow", frozen=True)

    commit: str = ""
    dirty: bool = False


class Manifest(BaseModel):
    """What was planned, with what, on what: written before the first cell runs. Further fields are let through."""

    model_config = ConfigDict(extra="allow", frozen=True)

    run_id: str
    name: str
    suite: dict[str, Any]
    """The resolved suite; ``name``, ``version``, ``description`` and ``alpha`` are the keys that the press reads."""
    seeds: list[int]
    command: str
    started: str | None = None
    finished: str | None = None
    versions: dict[str, str] = {}
    python: str = ""
    git: Git | None = None
    hardware: dict[str, Any] = {}
    data: dict[str, str] = {}
    planned_cells: int


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """Everything that a report is built from. ``skipped``: rows that cannot be read, and why; the rest is all there."""

    path: Path
    manifest: Manifest
    records: tuple[Record, ...]
    claims: tuple[StatedClaim, ...]
    gate: Outcome | None
    skipped: tuple[SkippedRow, ...]
    missing: int
    """Planned cells without a row."""
    changed: tuple[str, ...]
    """Files that are not as they were when the run was finished."""

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Reads the folder of a finished or unfinished run.

        Raises FileNotFoundError where ``path`` is no run's folder, and ValueError where its manifest, claims or gate
        cannot be read: without them no number says what it is about. Rows that cannot be read are skipped and told.
        """
        folder = Path(path)
        if not (folder / "manifest.json").is_file():
            raise FileNotFoundError(f"{folder} is not a run's folder: it has no manifest.json")
        rows = read_rows(folder / "results.jsonl")
        records = tuple(printable_record(record) for record in rows.records)
        manifest, claims = _read_manifest(folder / "manifest.json"), _read_claims(folder / "claims.json")
        told = _read_gate(folder / "gate.json")
        changed = changed_files(told or {}, folder / "claims.json", rows)
        missing = max(0, manifest.planned_cells - len({record.cell_id for record in rows.records}))
        return cls(
            path=folder,
            manifest=manifest,
            records=records,
            claims=claims,
            gate=None if told is None else _judged(told, records, missing, len(rows.skipped), changed),
            skipped=rows.skipped,
            missing=missing,
            changed=changed,
        )

    @cached_property
    def files(self) -> CellFiles:
        """What the cells left beside their rows."""
        return CellFiles(path=self.path)

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """The records as a table: one row a record, one column a field. Imports pandas on first use."""
        import pandas as pd

        return pd.DataFrame([record.model_dump(by_alias=True) for record in self.records], columns=_record_columns())

    def claim_of(self, record: Record) -> StatedClaim | None:
        """The claim that this record judges, or None where it judges none."""
        return self._claims_by_key.get((record.federation, record.defense, record.claim_id))

    @cached_property
    def _known(self) -> dict[object, Any]:
        """What ``once_a_run`` keeps."""
        return {}

    @cached_property
    def _claims_by_key(self) -> dict[tuple[str, str, str], StatedClaim]:
        return {stated.key: stated for stated in self.claims}

    def rows(self, *roles: str, status: str | None = None) -> list[Record]:
        """Records of these roles (all but bookkeeping if none is named), in the order of the file."""
        return [
            record
            for record in self.records
            if (record.role in roles if roles else record.role != "replicas")
            and (status is None or record.status == status)
        ]

    def rounds_of(self, federation: str) -> int | None:
        """Rounds that the federation runs, where the suite tells."""
        return self._count(federation, "rounds")

    @property
    def margins(self) -> dict[str, float]:
        """What its suite says of the gate's margins; empty where it says nothing."""
        return _margins(self.manifest)

    def clients_of(self, federation: str) -> int | None:
        """Clients that take part in the federation, where the suite tells."""
        return self._count(federation, "clients")

    def _count(self, federation: str, name: str) -> int | None:
        spec = _table(self.manifest.suite, "federations").get(federation)
        found = spec.get(name) if isinstance(spec, dict) else None
        return found if type(found) is int else None

    def defense_fields(self, defense: str) -> dict[str, Any]:
        """What the suite says of the defense under this label; empty where it says nothing."""
        fields = _table(self.manifest.suite, "defenses").get(defense)
        return fields if isinstance(fields, dict) else {}


def once_a_run(compute: Callable[[RunFolder], T]) -> Callable[[RunFolder], T]:
    """Computed once for a run as it was read, for all who ask: nobody may change what comes back."""

    @wraps(compute)
    def remembered(folder: RunFolder) -> T:
        if compute not in folder._known:
            folder._known[compute] = compute(folder)
        known: T = folder._known[compute]
        return known

    return remembered


def margins_of(place: str | Path) -> dict[str, float]:
    """The gate's margins by the suite of the run in that folder; none of a baseline file, which knows no margins."""
    path = Path(place) / "manifest.json"
    return _margins(_read_manifest(path)) if path.is_file() else {}


def _margins(manifest: Manifest) -> dict[str, float]:
    return dict(_table(_table(manifest.suite, "gate"), "margins"))


def _table(suite: dict[str, Any], name: str) -> dict[str, Any]:
    """A table of the resolved suite; an empty one where it has none of that name."""
    found = suite.get(name)
    return found if isinstance(found, dict) else {}


def _record_columns() -> list[str]:
    return [field.alias or name for name, field in Record.model_fields.items()]


def _check_schema(content: Mapping[str, Any], expected: str, where: str) -> None:
    found = content.get("schema")
    if found != expected:
        raise ValueError(f"{where}: schema {expected!r} is what this version of fedassay reads, got {found!r}")


def _read_manifest(path: Path) -> Manifest:
    content = printable_content(read_json(path))
    _check_schema(content, MANIFEST_SCHEMA, str(path))
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{path} is not a manifest: {first_mistake(error)}") from error


def _read_claims(path: Path) -> tuple[StatedClaim, ...]:
    if not path.is_file():
        return ()
    content = printable_content(read_json(path))
    _check_schema(content, CLAIMS_SCHEMA, str(path))
    try:
        return stated_claims(content)
    except ValidationError as error:
        raise ValueError(f"{path} holds no claims: {first_mistake(error)}") from error


def _judged(
    told: Mapping[str, Any], records: Sequence[Record], missing: int, unread: int, changed: Sequence[str]
) -> Outcome:
    """What the records say, whatever stands in gate.json; which is repeated where it came to something else."""
    gate = judge_run(records, missing=missing, unread=unread, changed=changed)
    line, before = gate.verdict_line, told["verdict_line"]
    if gate.exit_code != told["exit_code"]:
        line = f"{line} (when it was finished the run said: {before})"
    return Outcome(verdict_line=line, exit_code=gate.exit_code)


def _read_gate(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    content: dict[str, Any] = printable_content(read_json(path))
    line, code = content.get("verdict_line"), content.get("exit_code")
    if not isinstance(line, str) or type(code) is not int:
        raise ValueError(f"{path} must hold a verdict_line and an exit_code, got {line!r} and {code!r}")
    return content
