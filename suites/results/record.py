"""Record: one row per measurement, in results.jsonl; every report is built from them (schema result-1)."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ...audit.observer import Observer

SCHEMA = "result-1"
ROUNDS = "rounds.csv"
"""Beside a cell's records: what it measured round by round, a column a name."""
NUMBERS = "numbers.csv"
"""The same of what a protection made public, such as its clip norms."""
Status = Literal["ok", "failed", "unavailable", "skipped"]
Scope = Literal["run", "round", "client", "record"]


_IMPOSSIBLE = 1e100
_LONGEST_NAME = 255
"""Bytes that a file's name may have."""


def _below(place: str) -> str:
    """A path below the run's folder, or none at all."""
    parts = place.split("/")
    if "\0" in place or place.startswith("/") or ".." in parts:
        raise ValueError(f"must be a path below the run's folder, got {place!r}")
    if len(place) > _LONGEST_NAME // 4 and any(len(part.encode()) > _LONGEST_NAME for part in parts):
        raise ValueError(f"has a name of more than {_LONGEST_NAME} bytes")
    return place


def _measured(value: float) -> float:
    if abs(value) >= _IMPOSSIBLE:
        raise ValueError(f"must be a measurement, below {_IMPOSSIBLE:g}, got {value:g}")
    return value


def _one_name(cell_id: str) -> str:
    if cell_id in ("", ".") or "/" in cell_id:
        raise ValueError(f"must be a folder's name, got {cell_id!r}")
    return _below(cell_id)


def _somebody(observer: str) -> str:
    if observer:
        Observer.parse(observer)
    return observer


def _in_schema(**words: Any) -> Any:
    """What a schema says of what a function checks: all of it but how long a name may be."""
    return Field(json_schema_extra=words)


Measured = Annotated[
    float, AfterValidator(_measured), _in_schema(exclusiveMinimum=-_IMPOSSIBLE, exclusiveMaximum=_IMPOSSIBLE)
]


class Record(BaseModel):
    """A measurement, an omission or a failure. Errors and omissions are rows too: ``status`` and ``reason`` say which.

    ``cell_id`` is the hash of everything that determines the value; ``run_id`` that of the whole resolved suite (so
    two runs of the same suite and seed carry equal rows, apart from the time and memory fields).
    """

    # Cannot measure is not a number: NaN and infinity are refused where the row is made (JSON would make them null).
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    schema_: Literal["result-1"] = Field(default="result-1", alias="schema")
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
    """True for a broken twin: a REFUTED claim is what must come out."""
    role: Literal["utility", "attack", "null", "audit", "evidence", "probe", "replicas"]
    """``evidence``: what attacks on final models say of a claim; it judges like an audit and need not be able to."""
    attack: str
    """Attack or estimator; ``training`` for utility rows."""
    attack_version: str
    claim_id: str = ""
    """The claim that the row judges, by its hash, or empty."""
    observer: Annotated[str, AfterValidator(_somebody), _in_schema(pattern=f"^({Observer.pattern()})?$")] = ""
    """From whose seat it was measured, as in the claims file, or empty."""
    scope: Scope = "run"
    round: int | None = None
    client: int | None = None
    record: int | None = None
    seed: int | None = None
    """None for rows pooled over seeds."""
    metric: str
    value: Measured | None = None
    """None where nothing was measured: ``status`` and ``reason`` say why. Never a zero in its place."""
    ci_low: Measured | None = None
    ci_high: Measured | None = None
    ci_level: float | None = None
    ci_method: str = ""
    ceiling: float | None = None
    """What a perfect attack could have shown with these n."""
    detectable: float | None = None
    """Smallest true epsilon that this design refutes with power .9 by the route used."""
    verdict: str = ""
    """REFUTED, NOT_REFUTED, UNDERPOWERED, OUT_OF_SCOPE, NO_CLAIM or FAILED; of a probe KEPT or BROKEN; else empty."""
    route: str = ""
    """What decided the verdict: ``curve``, ``eps_low``, or ``probe`` for a mutant that only a probe could refute."""
    n: int | None = None
    """How many trials, candidates or samples the value rests on."""
    unit: str = ""
    direction: Literal["", "higher_leaks", "lower_leaks", "higher_better"] = ""
    status: Status = "ok"
    """``failed``: an error; ``unavailable``: wants what the machine has not; ``skipped``: not defined here."""
    reason: str = ""
    wall_s: float = 0.0
    cpu_s: float = 0.0
    peak_mem_mb: float = 0.0
    artifact: Annotated[
        str, AfterValidator(_below), _in_schema(pattern=r"^(?!/)(?!([^\x00]*/)?\.\.(/|$))[^\x00]*$")
    ] = ""
    """Path of a data file below the run's folder, or empty."""

    def to_line(self) -> str:
        """This row as one line of JSON, newline included."""
        return self.model_dump_json(by_alias=True) + "\n"


TIME_FIELDS = ("wall_s", "cpu_s", "peak_mem_mb")
"""Fields that may differ between two runs of the same suite and seed."""
