"""Store the compared values of a run, one per metric and seed, in a small file with which later runs are compared.

It holds the settings of the measurement, too, and a digest over everything, so that an edited number is detected. The
folder of a run can be used as a baseline too.
"""

import hashlib
import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...audit.curve import Curve, GaussianCurve
from ...audit.output_file import digest_of
from ...suites.config.source import ConfigError
from ...suites.results.claims_file import StatedClaim
from ...suites.results.record import Record
from ...suites.results.rows import first_mistake
from ...suites.results.store import read_json
from ..formats.write import write_whole
from ..reading.run_folder import RunFolder
from ..tables.summary import unread_rows

PRIMARY = (
    "exposure",
    "auc",
    "psnr",
    "source_advantage",
    "attribute_over_imputation",
    "property_gain",
    "label_over_chance",
    "label_accuracy",
    "label_exact_rate",
    "token_over_chance",
    "accuracy",
    "iou",
    "r2",
    "macro_f1",
)
"""The first of these that an attack measures represents it: the exposure of secrets, AUC for membership, PSNR for
reconstruction, the advantage over chance for source inference, that
over imputation for attributes, the removed part of the public share's error
for properties, the accuracy over chance for labels where lots allow it
and else the accuracy, and the accuracy over chance for tokens. Of training it is the accuracy, IoU for segmentation, R2
for regression, and macro F1 for several labels per sample. The choice depends on what was measured and not on the
values, because choosing the best of several metrics would inflate the false positive rate.
"""


class CellKey(NamedTuple):
    """The fields that identify a compared metric in both runs, so that its values can be paired by seed."""

    federation: str
    defense: str
    attack: str
    observer: str
    metric: str

    def __str__(self) -> str:
        observer = f" ({self.observer})" if self.observer else ""
        return f"{self.federation}/{self.defense}/{self.attack}{observer} {self.metric}"


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class StoredCell(_Stored):
    """A metric of one attack or model as a baseline stores it; ``values`` are keyed by seed.

    ``identity``: digest of the records' ``cell_id``s, which cover the configuration and code that determine the values.
    """

    federation: str
    defense: str
    attack: str
    observer: str
    metric: str
    direction: Literal["higher_leaks", "lower_leaks", "higher_better"]
    attack_version: str
    identity: str
    values: dict[int, float] = Field(min_length=1)

    @property
    def key(self) -> CellKey:
        return CellKey(self.federation, self.defense, self.attack, self.observer, self.metric)

    @property
    def sign(self) -> int:
        """The direction of the metric: 1 if a higher value is worse, -1 if a lower value is worse."""
        return 1 if self.direction == "higher_leaks" else -1


def family(records: Iterable[Record]) -> dict[CellKey, StoredCell]:
    """Return the metrics by which a run is compared, in a fixed order: all utility metrics, and each attack's primary
    metric.

    Left out are null attacks, which no change of a defense can affect and which would only use up a share of alpha;
    controls, whose leakage is intended and whose audits are judged as claims; and rows that were pooled over seeds,
    which cannot be paired.

    Several rows of a seed (one per image) become one value, their median. Images of a seed share its training and its
    noise, so only seeds are independent, and a mean would depend on single images with an extreme PSNR.
    """
    measured: dict[CellKey, dict[int, list[Record]]] = {}
    for row in records:
        if row.role not in ("attack", "utility") or row.control or row.seed is None:
            continue
        # A failed or skipped row has no value to pair: its seed then shows up as missing, not as a change.
        if row.status == "ok" and row.value is not None and row.metric in PRIMARY:
            key = CellKey(row.federation, row.defense, row.attack, row.observer, row.metric)
            measured.setdefault(key, {}).setdefault(row.seed, []).append(row)
    # Without the defense in the key: one metric must represent the attack on all defenses.
    first: dict[tuple[str, str, str], str] = {}
    for key in sorted(measured, key=lambda key: PRIMARY.index(key.metric)):
        first.setdefault((key.federation, key.attack, key.observer), key.metric)
    return {
        key: _cell(key, measured[key])
        for key in sorted(measured)
        if first[key.federation, key.attack, key.observer] == key.metric
    }


def _cell(key: CellKey, by_seed: dict[int, list[Record]]) -> StoredCell:
    one = next(iter(by_seed.values()))[0]
    if not one.direction:
        raise ValueError(
            f"{key}: a compared result row must have a direction, which states whether higher or "
            f"lower is worse, got none"
        )
    # All seeds enter the digest: a seed whose cell has another identity was computed by other code.
    ids = {row.cell_id for rows in by_seed.values() for row in rows}
    content = {
        "attack_version": one.attack_version,
        "direction": one.direction,
        "identity": hashlib.sha256(" ".join(sorted(ids)).encode()).hexdigest()[:16],
        "values": {
            seed: float(statistics.median(row.value for row in by_seed[seed] if row.value is not None))
            for seed in sorted(by_seed)
        },
    }
    return StoredCell.model_validate(key._asdict() | content)


SCHEMA = "baseline-1"
_CURVE_AT = (0.01, 0.1, 0.5)

_AGAIN = "restore the file, or write it again with fedassay gate RUN --baseline FILE --accept"


class Origin(_Stored):
    """The run from which a baseline was made."""

    name: str
    run_id: str
    command: str
    commit: str = ""


class Instrument(_Stored):
    """The settings of the measurement; two runs that differ in any of them cannot be compared. Defenses are not
    included, because they are what is measured and may change.
    """

    fedassay: str
    suite: str
    suite_version: str
    device: str
    seeds: tuple[int, ...]
    data: dict[str, str]
    federations: dict[str, dict[str, Any]]
    attacks: dict[str, dict[str, Any]]
    margins: dict[str, float]
    """The margins that the suite sets: a wider margin would let a worse defense pass."""
    audit: dict[str, Any]
    """The suite's audit table and alpha: an audit with less power would let a false claim pass."""


class StoredDefense(_Stored):
    """A defense in the form in which a baseline stores it.

    ``version``: of its code. ``table``: its table in the suite. ``claims``, ``audited``: its claims and those that were
    audited, in words; a claim that is weakened, dropped or no longer audited has to be accepted. ``terms``: by claim,
    the properties that its words leave out.
    """

    version: str
    table: dict[str, Any]
    claims: tuple[str, ...]
    audited: tuple[str, ...]
    terms: dict[str, dict[str, tuple[str, ...]]]


class Baseline(_Stored):
    """A run reduced to what is needed to compare it with a later run."""

    schema_: Literal["baseline-1"] = Field(default="baseline-1", alias="schema")
    run: Origin
    instrument: Instrument
    packages: dict[str, str]
    """For information only: another version of torch may change a last digit, which the tests treat as noise."""
    defenses: dict[str, StoredDefense]
    cells: tuple[StoredCell, ...]

    @classmethod
    def of(cls, folder: RunFolder) -> Self:
        """Return the baseline made from this run; raise ValueError if the run's manifest holds values that no suite can
        have.
        """
        try:
            return cls._of(folder)
        except ValidationError as error:
            raise ValueError(f"{folder.path / 'manifest.json'}: {first_mistake(error)}") from error

    @classmethod
    def _of(cls, folder: RunFolder) -> Self:
        manifest, suite = folder.manifest, folder.manifest.suite
        # A copy, because fedassay is taken out: it belongs to the instrument, all other packages are only noted.
        packages = dict(manifest.versions)
        return cls(
            run=Origin(
                name=manifest.name,
                run_id=manifest.run_id,
                command=manifest.command,
                commit=manifest.git.commit if manifest.git else "",
            ),
            instrument=Instrument(
                fedassay=packages.pop("fedassay", ""),
                suite=str(suite.get("name", "")),
                suite_version=str(suite.get("version", "")),
                device=str(suite.get("device", "cpu")),
                seeds=tuple(manifest.seeds),
                data=manifest.data,
                federations=_tables(suite, "federations"),
                attacks=_tables(suite, "attacks"),
                margins=folder.margins,
                audit=_audit(suite),
            ),
            packages=packages,
            defenses=_defenses(folder),
            cells=tuple(family(folder.records).values()),
        )

    @classmethod
    def read(cls, place: str | Path) -> Self:
        """Read a baseline file (``.json`` may be left out) or a run's folder.

        Raises:
            FileNotFoundError: neither exists.
            ConfigError: another schema, invalid JSON, a file that was edited by hand, an unreadable run.
        """
        folder = Path(place)
        # The manifest decides: a run's folder may have the name that a baseline file would have without its ending.
        if not (folder / "manifest.json").is_file():
            if baseline_file(folder).is_file():
                return cls._parsed(baseline_file(folder))
            raise FileNotFoundError(f"no baseline {place}: it is neither a baseline file nor a run's folder")
        try:
            run = RunFolder.read(place)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if run.skipped:
            # Unreadable rows may belong to any cell, so the readable ones must not be compared as if they were all.
            raise ConfigError(f"{place}: {'; '.join(unread_rows(run.skipped))}")
        if run.without_gate:
            raise ConfigError(f"{place}: {run.without_gate}")
        # Edited rows must not become a standard that later runs are measured by.
        if run.changed:
            raise ConfigError(f"{place}: these files changed since the run was finished: {', '.join(run.changed)}")
        return cls.of(run)

    @classmethod
    def _parsed(cls, path: Path) -> Self:
        content = _content(path)
        if content.get("schema") != SCHEMA:
            raise ConfigError(
                f"{path}: the schema must be {SCHEMA!r}, which this version of fedassay reads, "
                f"got {content.get('schema')!r}"
            )
        # Taken out first: the digest covers everything except itself, and the model allows no further field.
        digest = content.pop("sha256", None)
        try:
            found = cls.model_validate(content)
        except ValidationError as error:
            raise ConfigError(f"{path}: {first_mistake(error)}") from error
        if digest is None:
            raise ConfigError(f"{path} has no checksum (key sha256), so that a change cannot be detected: {_AGAIN}")
        if digest != found.digest:
            raise ConfigError(f"{path} was changed since it was written (its sha256 differs): {_AGAIN}")
        return found

    @property
    def digest(self) -> str:
        """The SHA-256 digest of the whole baseline in canonical JSON."""
        return digest_of(self.model_dump(mode="json", by_alias=True))

    def series(self) -> dict[CellKey, StoredCell]:
        """Return the metrics to be compared by their keys."""
        return {cell.key: cell for cell in self.cells}

    def write(self, place: str | Path) -> Path:
        """Write the baseline file atomically, with one metric per line so that a review can show what changed.

        Raises:
            ConfigError: the path holds a folder, or a file that is not a baseline of this version.
        """
        path = baseline_file(place)
        # `--baseline results.csv` would otherwise write results.csv.json next to the file that was named.
        if path != Path(place) and Path(place).is_file():
            raise ConfigError(
                f"{place} is not a baseline and is not overwritten: name another file, such as baselines/main.json"
            )
        if path.is_dir() or Path(place).is_dir():
            raise ConfigError(f"{place} is a folder: name a file for the baseline, such as baselines/main.json")
        # A mistyped path must not overwrite other JSON data, or the baseline of another version.
        if path.exists() and (found := _content(path).get("schema")) != SCHEMA:
            raise ConfigError(
                f"{path} is not overwritten, because it has schema {found!r} and not {SCHEMA!r}: name another file"
            )
        # The digest does not cover itself, so it is added last.
        content = self.model_dump(mode="json", by_alias=True) | {"sha256": self.digest}
        cells = ",\n".join(f"  {json.dumps(cell)}" for cell in content.pop("cells"))
        head = json.dumps(content, indent=1)
        return write_whole(path, f'{head[:-2]},\n "cells": [\n{cells}\n ]\n}}\n')


def baseline_file(place: str | Path) -> Path:
    """Return the path of a baseline file: ``baselines/main`` means ``baselines/main.json``."""
    path = Path(place)
    return path if path.suffix == ".json" else path.parent / f"{path.name}.json"


def _content(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except ValueError as error:
        raise ConfigError(f"{path} is not a baseline: the file cannot be read ({error})") from error


def _tables(suite: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    found = suite.get(name)
    return (
        {label: table for label, table in found.items() if isinstance(table, dict)} if isinstance(found, dict) else {}
    )


def _audit(suite: dict[str, Any]) -> dict[str, Any]:
    """The audit settings; empty where the suite audits nothing."""
    table = suite.get("audit")
    return {**table, "alpha": suite.get("alpha")} if isinstance(table, dict) else {}


def _terms(one: StatedClaim) -> dict[str, str]:
    claim = one.claim
    return {
        "rounds": str(claim.rounds),
        "curve": _curve_words(claim.curve),
        "model": claim.dp_model,
        "trust": claim.trust,
        "sampling": claim.sampling,
        "standing": "control" if one.control else one.variant.replace("_", " ") or "honest",
    }


def _curve_words(curve: Curve | None) -> str:
    if curve is None:
        return "none"
    if isinstance(curve, GaussianCurve):
        return f"mu {curve.mu:.4g}"
    # A curve without a parameter is compared at three points: close enough to show that its claim became weaker.
    return "; ".join(f"FNR {float(curve.fnr(rate)):.3f} at FPR {rate:g}" for rate in _CURVE_AT)


def _all_terms(stated: list[StatedClaim]) -> dict[str, dict[str, tuple[str, ...]]]:
    """The terms by claim. A claim may be stated on several federations with different terms."""
    found: dict[str, dict[str, set[str]]] = {}
    for one in stated:
        for name, words in _terms(one).items():
            # Sets, because two federations of one defense mostly repeat the same terms.
            found.setdefault(one.claim.describe(), {}).setdefault(name, set()).add(words)
    return {text: {name: tuple(sorted(words)) for name, words in terms.items()} for text, terms in found.items()}


def _defenses(folder: RunFolder) -> dict[str, StoredDefense]:
    # From attacks and utility only: these are the rows that are compared.
    versions = {row.defense: row.defense_version for row in folder.rows("attack", "utility")}
    stated = {(one.defense, one.claim.describe()) for one in folder.claims}
    audited = {
        (row.defense, claim.claim.describe())
        for row in folder.rows("audit", status="ok")
        if (claim := folder.claim_of(row)) is not None
    }
    return {
        label: StoredDefense(
            version=versions[label],
            table=folder.defense_fields(label),
            claims=tuple(sorted(text for name, text in stated if name == label)),
            audited=tuple(sorted(text for name, text in audited if name == label)),
            terms=_all_terms([one for one in folder.claims if one.defense == label]),
        )
        for label in sorted(versions)
    }
