"""Define a row of results.jsonl, one per measurement, from which every report is built (schema result-2)."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticSerializationError

from ...audit.observer import Observer

SCHEMA = "result-2"
ROUNDS = "rounds.csv"
"""File in a cell's folder with its measurements by round, one column per metric."""
NUMBERS = "numbers.csv"
"""File in a cell's folder with the numbers that a protection made public by round, such as its clip norms."""
Status = Literal["ok", "failed", "unavailable", "skipped"]
Judged = Literal["", "REFUTED", "NOT_REFUTED", "UNDERPOWERED", "OUT_OF_SCOPE", "NO_CLAIM", "PASSED", "FAILED"]
Scope = Literal["run", "round", "client", "record"]


# A larger value is an error of a part, never a measurement.
_IMPOSSIBLE = 1e100
_LONGEST_NAME = 255
"""Largest number of bytes in a file's name."""


def _below(place: str) -> str:
    """Check a path below the run's folder: a row from elsewhere must not make a report read other files."""
    parts = place.split("/")
    if "\0" in place or place.startswith("/") or ".." in parts:
        raise ValueError(f"the path must lie below the run's folder, got {place!r}")
    if len(place) > _LONGEST_NAME // 4 and any(len(part.encode()) > _LONGEST_NAME for part in parts):
        raise ValueError(f"the path must have file names of at most {_LONGEST_NAME} bytes each, got {place!r:.80}")
    return place


def _plausible(value: float) -> float:
    if abs(value) >= _IMPOSSIBLE:
        raise ValueError(f"the measured number must be between {-_IMPOSSIBLE:g} and {_IMPOSSIBLE:g}, got {value:g}")
    return value


def _empty(items: list[str]) -> bool:
    return not items


def _one_name(cell_id: str) -> str:
    if cell_id in ("", ".") or "/" in cell_id:
        raise ValueError(f"the cell's id must be the name of a single folder, got {cell_id!r}")
    return _below(cell_id)


def _known_observer(observer: str) -> str:
    if observer:
        Observer.parse(observer)
    return observer


def _in_schema(**words: Any) -> Any:
    """The JSON Schema of a check that a function makes; only the length of a name has none."""
    return Field(json_schema_extra=words)


Measured = Annotated[
    float, AfterValidator(_plausible), _in_schema(exclusiveMinimum=-_IMPOSSIBLE, exclusiveMaximum=_IMPOSSIBLE)
]


class Record(BaseModel):
    """A result row: a measurement, or one that was omitted or failed, with its ``status`` and ``reason``.

    ``cell_id`` is the hash of everything that determines the value, ``run_id`` the hash of the whole resolved suite.
    Two runs of the same suite and seed have equal rows, apart from the time and memory fields.
    """

    # A missing measurement is not a number: NaN and infinity are refused here, because JSON would turn them into null.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    schema_: Literal["result-2"] = Field(default="result-2", alias="schema")
    run_id: str
    cell_id: Annotated[str, AfterValidator(_one_name), _in_schema(pattern=r"^(?!\.{1,2}$)[^/\x00]+$")]
    suite: str
    suite_version: str
    federation: str
    """Name of the federation in the suite file, such as ``main``."""
    dataset: str
    dataset_sha256: str
    model: str
    defense: str
    """Label of the defense in the suite; unique within a run."""
    defense_version: str
    variant: str = ""
    control: bool = False
    """True for a control, which breaks its claim on purpose: the expected verdict is REFUTED."""
    role: Literal["utility", "attack", "null", "audit", "evidence", "check", "replicas"]
    """``evidence``: an audit of a claim by attacks on final models, which may be too weak to reach a verdict."""
    attack: str
    """Attack or estimator; ``training`` for utility rows."""
    attack_version: str
    claim_id: str = ""
    """Hash of the claim that the row is about, or empty."""
    observer: Annotated[str, AfterValidator(_known_observer), _in_schema(pattern=f"^({Observer.pattern()})?$")] = ""
    """The observer whose view was used, in the words of the claims file, or empty."""
    scope: Scope = "run"
    round: int | None = None
    client: int | None = None
    record: int | None = None
    seed: int | None = None
    """None for rows pooled over seeds."""
    metric: str
    value: Measured | None = None
    """None where nothing was measured, for the reason in ``reason``; never replaced by zero."""
    ci_low: Measured | None = None
    ci_high: Measured | None = None
    ci_level: float | None = None
    ci_method: str = ""
    ceiling: float | None = None
    """Largest epsilon that this sample size can certify: the bound of an attack that makes no error."""
    detectable: float | None = None
    """Minimum detectable epsilon: the smallest true epsilon that this design refutes with power .9 by its route."""
    verdict: Judged = ""
    """REFUTED, NOT_REFUTED, UNDERPOWERED, OUT_OF_SCOPE or NO_CLAIM of a claim; PASSED or FAILED of an implementation
    check; else empty."""
    route: str = ""
    """The test that decided the verdict: ``curve``, ``eps_low``, or ``check`` for a mutant that only an implementation
    check could refute."""
    n: int | None = None
    """Number of trials, candidates or samples behind the value."""
    unit: str = ""
    direction: Literal["", "higher_leaks", "lower_leaks", "higher_better", "lower_better"] = ""
    status: Status = "ok"
    """``failed``: an error; ``unavailable``: needs something that this machine lacks; ``skipped``: not defined here."""
    reason: str = ""
    looked_at: list[str] = Field(default_factory=list, exclude_if=_empty)
    """Of an audited claim: implementation checks that were made, and parts of messages that they compared."""
    not_looked_at: list[str] = Field(default_factory=list, exclude_if=_empty)
    """Of an audited claim: what was not looked at, each with the reason."""
    weak: bool = Field(default=False, exclude_if=lambda weak: not weak)
    """Of an audited claim: whether it is UNDERPOWERED only because its minimum detectable epsilon is too large; with
    the verdict NOT_REFUTED, the user has accepted that."""
    limit: str = Field(default="", exclude_if=lambda words: not words)
    """Of an audited claim: for whom alone it holds, and why, where NaN or infinity is let through."""
    stopped: str = Field(default="", exclude_if=lambda words: not words)
    """Of a sequential audit: at which look it stopped, after how many runs, and why."""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_mem_mb: float = 0.0
    artifact: Annotated[
        str, AfterValidator(_below), _in_schema(pattern=r"^(?!/)(?!([^\x00]*/)?\.\.(/|$))[^\x00]*$")
    ] = ""
    """Path of a data file below the run's folder, or empty."""

    def to_line(self) -> str:
        """Return this row as one line of JSON, newline included."""
        try:
            return self.model_dump_json(by_alias=True) + "\n"
        except PydanticSerializationError:  # Half of a surrogate pair: UTF-8 holds it only as an escape of JSON.
            return json.dumps(self.model_dump(mode="json", by_alias=True), separators=(",", ":")) + "\n"


CORRECT = " (correct version)"
"""Suffix of the label of the correct version of a mutant."""
