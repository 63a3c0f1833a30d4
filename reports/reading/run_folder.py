"""Read a run's manifest, result rows, claims and outcome as data, with its federations and the order of its labels;
write nothing.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ...audit.wording import counted
from ...suites.results.claims_file import SCHEMA as CLAIMS_SCHEMA
from ...suites.results.claims_file import StatedClaim, stated_claims
from ...suites.results.outcome import Outcome, accepting_weak, judge_run
from ...suites.results.record import Record
from ...suites.results.rows import SkippedRow, first_mistake, read_rows, skipped_counts
from ...suites.results.store import changed_files, no_run, read_json
from .cell_files import CellFiles
from .printable import printable_content, printable_record


@dataclass(frozen=True, kw_only=True, eq=False)
class FederationWords:
    """The words that reports use for one kind of federation: for its participants, runs and arms.

    Args:
        table: its table of a suite file.
        rounds: the key that holds the number of its rounds; empty likewise.
        round_word: one round; empty where all is released at once.
        sizes: the whole numbers that describe its size, by key, each with its word.
        audit: what an audit of its claims does, in a sentence.
        arms: the two arms of its audits.
    """

    table: str
    rounds: str
    round_word: str
    sizes: Mapping[str, str]
    audit: str
    arms: str

    def span(self, rounds: int) -> str:
        """Return the period over which a claim about this kind of federation holds, given its number of rounds."""
        return f"over {counted(rounds, self.round_word)}" if self.round_word else "over all queries together"


HORIZONTAL = FederationWords(
    table="federations",
    rounds="rounds",
    round_word="round",
    sizes={"clients": "client", "rounds": "round"},
    audit="An audit runs the federation many times with and many times without a planted unit (the canary), and an "
    "attack guesses which runs contained it.",
    arms="the number of runs with the canary, and as many without",
)
VERTICAL = FederationWords(
    table="vertical",
    rounds="epochs",
    round_word="epoch",
    sizes={"people": "person", "epochs": "epoch"},
    audit="An audit of a vertical federation trains a small one many times with either of two labels, or of two rows, "
    "of one person, and a score guesses which it was; or it guesses the labels of one training.",
    arms="the number of runs with one of the two labels or rows, and as many with the other",
)
TRANSFER = FederationWords(
    table="transfer",
    rounds="",
    round_word="",
    sizes={"teachers": "teacher", "queries": "query", "students": "student per seed"},
    audit="An audit of a transfer runs the mechanism of the votes many times on either of two neighbouring inputs, and "
    "a score guesses which it was.",
    arms="the number of runs on one of the two neighbouring inputs, and as many on the other",
)
KINDS = (HORIZONTAL, VERTICAL, TRANSFER)
_PLURALS = {"person": "people", "query": "queries", "student per seed": "students per seed"}


def federation_tables(suite: Mapping[str, Any]) -> dict[str, tuple[FederationWords, Mapping[str, Any]]]:
    """Return the kind and the settings of each federation in a manifest's suite, keyed by name, in the suite's
    order.
    """
    found: dict[str, tuple[FederationWords, Mapping[str, Any]]] = {}
    for kind in KINDS:
        tables = suite.get(kind.table)
        # A folder of another version may list the names alone.
        named = tables.items() if isinstance(tables, Mapping) else ()
        found |= {name: (kind, table) for name, table in named if isinstance(table, Mapping)}
    return found


def whole_number(table: Mapping[str, Any], key: str) -> int | None:
    """Return a whole number from a table of settings; None if the table has no such number."""
    found = table.get(key)
    # Not isinstance: True is an int in Python, and a hand-edited manifest may hold it.
    return found if type(found) is int else None


def size_words(kind: FederationWords, table: Mapping[str, Any]) -> list[str]:
    """Return the number of participants of a federation and the length of its training, such as ``25 teachers``; what
    the table does not state is left out.
    """
    sizes = [(whole_number(table, key), word) for key, word in kind.sizes.items()]
    parties = [_parties(table)] if kind is VERTICAL else []
    return [*filter(None, parties), *(_size_word(number, word) for number, word in sizes if number is not None)]


def _size_word(number: int, word: str) -> str:
    return f"{number:,} {_PLURALS[word]}" if word in _PLURALS and number != 1 else counted(number, word)


def _parties(table: Mapping[str, Any]) -> str:
    """The parties in words: how many there are, and how many of them hold columns."""
    columns = table.get("columns")
    holders = len(columns) if isinstance(columns, list | tuple) else whole_number(table, "columns")
    if holders is None:
        return ""
    held = f"{holders} {'party' if holders == 1 else 'parties'} with columns"
    return f"{held}, one of them with the labels" if table.get("active") is True else f"{held} and one with the labels"


T = TypeVar("T")
MANIFEST_SCHEMA = "manifest-1"


class Git(BaseModel):
    """The commit of the code that a run used; unknown fields are kept."""

    model_config = ConfigDict(extra="allow", frozen=True)

    commit: str = ""
    dirty: bool = False


class Manifest(BaseModel):
    """The plan, software and hardware of a run, written before the first result; unknown fields are kept."""

    model_config = ConfigDict(extra="allow", frozen=True)

    run_id: str
    name: str
    suite: dict[str, Any]
    """The resolved suite. Reports read a few of its keys and tolerate that any of them is missing."""
    seeds: list[int]
    command: str
    started: str | None = None
    finished: str | None = None
    versions: dict[str, str] = {}
    python: str = ""
    git: Git | None = None
    hardware: dict[str, Any] = {}
    backends: list[str] = []
    data: dict[str, str] = {}
    planned_cells: int


class OfDefense(Protocol):
    """The interface of a row that belongs to a defense on a federation; a control is a deliberately broken defense."""

    @property
    def federation(self) -> str: ...
    @property
    def defense(self) -> str: ...
    @property
    def control(self) -> bool: ...


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    """A run as read from its folder, with everything from which reports are built.

    ``gate``: the outcome; None for a run without gate.json, which has not finished. ``skipped``: rows that cannot be
    read, with the reason; all other rows are in ``records``.
    """

    path: Path
    manifest: Manifest
    records: tuple[Record, ...]
    claims: tuple[StatedClaim, ...]
    gate: Outcome | None
    skipped: tuple[SkippedRow, ...]
    missing: int
    """Number of planned cells without a row."""
    changed: tuple[str, ...]
    """Files that differ from the checksums in gate.json, and gate.json where it lacks one."""

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read the folder of a finished or unfinished run. Result rows that cannot be read are listed in ``skipped``.

        Raises:
            FileNotFoundError: ``path`` is not the folder of a run.
            ValueError: the manifest, the claims or gate.json cannot be read; without them no number can be interpreted.
        """
        folder = Path(path)
        if not (folder / "manifest.json").is_file():
            raise FileNotFoundError(no_run(folder))
        try:
            return cls._read(folder)
        except RecursionError:
            raise ValueError(f"{folder}: a JSON file of the run is nested too deeply") from None

    @classmethod
    def _read(cls, folder: Path) -> Self:
        rows = read_rows(folder / "results.jsonl")
        # At the entrance, so that no output format has to clean names and reasons again.
        records = tuple(printable_record(record) for record in rows.records)
        manifest, claims = _read_manifest(folder / "manifest.json"), _read_claims(folder / "claims.json")
        if _table(manifest.suite, "gate").get("accept_weak") is True:
            records = tuple(accepting_weak(records))
        stored = _read_gate(folder / "gate.json")
        changed = () if stored is None else changed_files(stored, folder, rows)
        # Never negative: a hand-edited manifest may plan fewer cells than the run holds.
        missing = max(0, manifest.planned_cells - len({record.cell_id for record in rows.records}))
        return cls(
            path=folder,
            manifest=manifest,
            records=records,
            claims=claims,
            gate=None if stored is None else _judged(stored, records, missing, rows.skipped, changed),
            skipped=rows.skipped,
            missing=missing,
            changed=changed,
        )

    @cached_property
    def files(self) -> CellFiles:
        """The data files that the run stored."""
        return CellFiles(path=self.path)

    @property
    def without_gate(self) -> str:
        """A sentence that says that gate.json is missing, and what to do; empty if the file exists."""
        if self.gate is not None:
            return ""
        return (
            "gate.json is missing, without which a change of the run's files cannot be detected: write it with "
            f"fedassay resume {shlex.quote(str(self.path))}"
        )

    def claim_of(self, record: Record) -> StatedClaim | None:
        """Return the claim that this result row is about; None if there is none."""
        return self._claims_by_key.get((record.federation, record.defense, record.claim_id))

    @cached_property
    def _known(self) -> dict[object, Any]:
        """The results that ``once_per_run`` keeps."""
        return {}

    @cached_property
    def order(self) -> "Order":
        """The suite's order of labels; labels that the suite does not name follow alphabetically."""
        return _order(self)

    def claims_on(self, federation: str, defense: str) -> list[StatedClaim]:
        """Return the claims that a defense states on a federation."""
        return [one for one in self.claims if (one.federation, one.defense) == (federation, defense)]

    @cached_property
    def _claims_by_key(self) -> dict[tuple[str, str, str], StatedClaim]:
        return {stated.key: stated for stated in self.claims}

    def rows(self, *roles: str, status: str | None = None) -> list[Record]:
        """Return the result rows with these roles (such as ``audit`` or ``attack``), in the order of the file; if no
        role is given, return all rows except those of role ``replicas``.
        """
        return [
            record
            for record in self.records
            # Rows of replicas repeat the audit of a mutant seed by seed; only the table of mutants needs them.
            if (record.role in roles if roles else record.role != "replicas")
            and (status is None or record.status == status)
        ]

    @cached_property
    def federations(self) -> dict[str, tuple[FederationWords, Mapping[str, Any]]]:
        """The kind and the settings of each federation of the suite, keyed by name."""
        return federation_tables(self.manifest.suite)

    @property
    def kinds(self) -> list[FederationWords]:
        """The kinds of the suite's federations; only the horizontal kind if the suite names none, as with mutants
        alone.
        """
        return list(dict.fromkeys(kind for kind, _ in self.federations.values())) or [HORIZONTAL]

    def rounds_of(self, federation: str) -> int | None:
        """Return the number of rounds of the federation, or the number of epochs of a vertical federation; None if the
        suite does not state it.
        """
        kind, table = self.federations.get(federation, (HORIZONTAL, {}))
        return whole_number(table, kind.rounds)

    @property
    def margins(self) -> dict[str, float]:
        """The regression margins (largest tolerated changes) that the suite sets for ``fedassay gate``; empty if it
        sets none.
        """
        return _margins(self.manifest)

    def size_of(self, federation: str) -> list[str]:
        """Return the number of participants of the federation and the length of its training, as the suite states them:
        ``10 clients``.
        """
        return size_words(*self.federations.get(federation, (HORIZONTAL, {})))

    def defense_fields(self, defense: str) -> dict[str, Any]:
        """Return the suite's settings of the defense with this label; empty if there is none."""
        fields = _table(self.manifest.suite, "defenses").get(defense)
        return fields if isinstance(fields, dict) else {}

    def line_of(self, defense: str) -> str:
        """Return the sweep to which a defense belongs, which figures draw as one line; a defense outside all sweeps has
        its own label as its line.
        """
        return str(self.defense_fields(defense).get("sweep") or defense)


def once_per_run(compute: Callable[[RunFolder], T]) -> Callable[[RunFolder], T]:
    """Decorate a function of a run so that its result is computed once per folder. Every call returns the same object,
    which callers must not change.

    Several tables and figures of one page need the same pooled values, whose files are slow to read.
    """

    @wraps(compute)
    def remembered(folder: RunFolder) -> T:
        if compute not in folder._known:
            folder._known[compute] = compute(folder)
        known: T = folder._known[compute]
        return known

    return remembered


def margins_of(place: str | Path) -> dict[str, float]:
    """Return the regression margins that the suite of the run in ``place`` sets; a baseline file has none."""
    path = Path(place) / "manifest.json"
    return _margins(_read_manifest(path)) if path.is_file() else {}


def _margins(manifest: Manifest) -> dict[str, float]:
    return dict(_table(_table(manifest.suite, "gate"), "margins"))


def _table(suite: dict[str, Any], name: str) -> dict[str, Any]:
    """A table of the resolved suite; empty if there is no table of that name."""
    found = suite.get(name)
    return found if isinstance(found, dict) else {}


def _validated(path: Path, schema: str, build: Callable[[dict[str, Any]], T], what: str) -> T:
    """The content of a JSON file of this schema."""
    content = printable_content(read_json(path))
    found = content.get("schema")
    if found != schema:
        raise ValueError(f"{path}: the schema must be {schema!r}, which this version of fedassay reads, got {found!r}")
    try:
        return build(content)
    except ValidationError as error:
        raise ValueError(f"{path} is not a valid {what}: {first_mistake(error)}") from error


def _read_manifest(path: Path) -> Manifest:
    return _validated(path, MANIFEST_SCHEMA, Manifest.model_validate, "run manifest")


def _read_claims(path: Path) -> tuple[StatedClaim, ...]:
    return _validated(path, CLAIMS_SCHEMA, stated_claims, "claims file") if path.is_file() else ()


def _judged(
    stored: Mapping[str, Any],
    records: Sequence[Record],
    missing: int,
    skipped: Sequence[SkippedRow],
    changed: Sequence[str],
) -> Outcome:
    """The outcome computed from the records; the line in gate.json is appended where its exit code differs."""
    # Computed again: rows may have been added, lost or edited after gate.json was written.
    gate = judge_run(records, missing=missing, changed=changed, **skipped_counts(skipped))
    line, before = gate.verdict_line, stored["verdict_line"]
    if gate.exit_code != stored["exit_code"]:
        line = f"{line} (the outcome when the run finished: {before})"
    return Outcome(verdict_line=line, exit_code=gate.exit_code)


def _read_gate(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    content: dict[str, Any] = printable_content(read_json(path))
    line, code = content.get("verdict_line"), content.get("exit_code")
    if not isinstance(line, str) or type(code) is not int:
        raise ValueError(
            f"{path} must hold the fields verdict_line (text) and exit_code (whole number), got {line!r} and {code!r}"
        )
    return content


@dataclass(frozen=True, kw_only=True)
class Order:
    """A sort order of labels, needed because a parallel run writes its result rows in no fixed order."""

    federations: tuple[str, ...]
    defenses: tuple[str, ...]
    attacks: tuple[str, ...]

    def federation(self, label: str) -> int:
        return self.federations.index(label)

    def defense(self, label: str) -> int:
        return self.defenses.index(label)

    def attack(self, label: str) -> int:
        return self.attacks.index(label)

    def place(self, row: OfDefense) -> tuple[int, int]:
        """Return the sort key of a row about a federation and a defense."""
        return self.federation(row.federation), self.defense(row.defense)


def _order(folder: RunFolder) -> Order:
    suite, records = folder.manifest.suite, folder.rows()
    # A federation may have the name of a defense, so the table of the label's own kind comes first.
    texts = list(_texts(suite))
    federations, defenses, attacks = (
        [*_labels(suite.get(kind)), *texts] for kind in ("federations", "defenses", "attacks")
    )
    return Order(
        federations=_ranked(federations, (r.federation for r in records), (c.federation for c in folder.claims)),
        defenses=_ranked(defenses, (r.defense for r in records), (c.defense for c in folder.claims)),
        attacks=_ranked(attacks, (r.attack for r in records)),
    )


def _labels(table: Any) -> list[str]:
    return list(table) if isinstance(table, dict) else []


def _texts(node: Any) -> Iterator[str]:
    """Every key and text of a nested suite in reading order, whatever its schema."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for key, child in node.items():
            yield str(key)
            yield from _texts(child)
    elif isinstance(node, list | tuple):
        for child in node:
            yield from _texts(child)


def _ranked(named: Sequence[str], *labels: Iterable[str]) -> tuple[str, ...]:
    present = {label for group in labels for label in group}
    # Reversed, so that the first occurrence of a repeated label gives its position.
    positions = {label: place for place, label in reversed(list(enumerate(named)))}
    return tuple(sorted(present, key=lambda label: (positions.get(label, len(named)), label)))
