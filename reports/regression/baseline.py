"""Baseline: what a run has to be compared with later, as a small file to commit. No raw scores.

One value a cell and seed, what they were measured with, and a digest over all of it, so that a number that was changed
by hand is told. A run's folder serves as well.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...audit.curve import Curve, GaussianCurve
from ...suites.config.source import ConfigError
from ...suites.results.claims_file import StatedClaim
from ...suites.results.rows import first_mistake
from ..formats.atomic_write import write_whole
from ..reading.json_file import read_json
from ..reading.run_folder import RunFolder
from ..tables.unread import unread_rows
from .cells import CellKey, Series, family

SCHEMA = "baseline-1"
_CURVE_AT = (0.01, 0.1, 0.5)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Origin(_Table):
    """The run that a baseline was made from."""

    name: str
    run_id: str
    command: str
    commit: str = ""


class Instrument(_Table):
    """What measures: anything of it that changes makes two runs incomparable. The defense is not of it: it is what is
    measured, and is meant to change.
    """

    fedassay: str
    suite: str
    suite_version: str
    device: str
    seeds: tuple[int, ...]
    data: dict[str, str]
    federations: dict[str, dict[str, Any]]
    attacks: dict[str, dict[str, Any]]
    margins: dict[str, float] = Field(default_factory=dict)
    """What the suite sets: a wider one would let a worse defense pass."""
    audit: dict[str, Any] = Field(default_factory=dict)
    """The suite's table and alpha: an audit of less power would let a broken claim pass."""


class StoredDefense(_Table):
    """A defense as it was. Its code (``version``) and its ``table`` in the suite are what is compared; a claim
    that is weakened, dropped or no longer audited has to be accepted. ``terms``: by claim, what its one line leaves
    out.
    """

    version: str
    table: dict[str, Any]
    claims: tuple[str, ...]
    audited: tuple[str, ...]
    terms: dict[str, dict[str, tuple[str, ...]]] = Field(default_factory=dict)


class StoredCell(_Table):
    """A cell of the family; ``values`` by seed."""

    federation: str
    defense: str
    attack: str
    observer: str
    metric: str
    direction: Literal["higher_leaks", "lower_leaks", "higher_better"]
    attack_version: str
    identity: str
    values: dict[int, float] = Field(min_length=1)


class Baseline(_Table):
    """A run as the gate compares it."""

    schema_: Literal["baseline-1"] = Field(default="baseline-1", alias="schema")
    run: Origin
    instrument: Instrument
    packages: dict[str, str]
    """For information: another torch may move a last digit, and the statistics take that for the noise that it is."""
    defenses: dict[str, StoredDefense]
    cells: tuple[StoredCell, ...]

    @classmethod
    def of(cls, folder: RunFolder) -> Self:
        """What this run would leave as a baseline. Raises ValueError where its manifest holds what no suite says."""
        try:
            return cls._of(folder)
        except ValidationError as error:
            raise ValueError(f"{folder.path / 'manifest.json'}: {first_mistake(error)}") from error

    @classmethod
    def _of(cls, folder: RunFolder) -> Self:
        manifest, suite = folder.manifest, folder.manifest.suite
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
            cells=tuple(StoredCell(**vars(key), **vars(series)) for key, series in family(folder.records).items()),
        )

    @classmethod
    def read(cls, place: str | Path) -> Self:
        """A baseline file (``.json`` may be left out) or a run's folder.

        Raises:
            FileNotFoundError: neither is there.
            ConfigError: another schema, broken JSON, a file that was changed by hand, an unreadable run.
        """
        folder = Path(place)
        if not (folder / "manifest.json").is_file():
            if baseline_file(folder).is_file():
                return cls._parsed(baseline_file(folder))
            raise FileNotFoundError(f"no baseline {place}: it is neither a baseline file nor a run's folder")
        try:
            run = RunFolder.read(place)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if run.skipped:
            # What they held is not known: nothing may be held against the rest as if it were all.
            raise ConfigError(f"{place}: {'; '.join(unread_rows(run.skipped))}")
        if run.changed:
            raise ConfigError(f"{place}: changed since the run was finished: {', '.join(run.changed)}")
        return cls.of(run)

    @classmethod
    def _parsed(cls, path: Path) -> Self:
        content = _content(path)
        if content.get("schema") != SCHEMA:
            raise ConfigError(f"{path}: schema {SCHEMA!r} is what this version reads, got {content.get('schema')!r}")
        told = content.pop("sha256", None)
        try:
            found = cls.model_validate(content)
        except ValidationError as error:
            raise ConfigError(f"{path}: {first_mistake(error)}") from error
        if told != found.digest:
            raise ConfigError(f"{path} is not as it was written (its sha256 differs): write it again with --accept")
        return found

    @property
    def digest(self) -> str:
        """SHA-256 over all that it holds, in canonical JSON."""
        text = json.dumps(self._content(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def _content(self) -> dict[str, Any]:
        """As JSON; without what is empty that baselines of before did not know."""
        content = self.model_dump(mode="json", by_alias=True)
        _drop_empty(content["instrument"], "margins", "audit")
        for part in content["defenses"].values():
            _drop_empty(part, "terms")
        return content

    def series(self) -> dict[CellKey, Series]:
        """Its cells, as ``family`` gives them."""
        return {
            CellKey(**{name: getattr(cell, name) for name in CellKey.__dataclass_fields__}): Series(
                **{name: getattr(cell, name) for name in Series.__dataclass_fields__}
            )
            for cell in self.cells
        }

    def write(self, place: str | Path) -> Path:
        """Writes it whole or not at all, a cell a line, so that a change of it can be read in review.

        Raises:
            ConfigError: where something else stands: a folder, or a file that is no baseline of this version.
        """
        path = baseline_file(place)
        if path != Path(place) and Path(place).is_file():
            raise ConfigError(f"{place} is no baseline: name another file, such as baselines/main.json")
        if path.is_dir() or Path(place).is_dir():
            raise ConfigError(f"{place} is a folder: name a file for the baseline, such as baselines/main.json")
        if path.exists() and (found := _content(path).get("schema")) != SCHEMA:
            raise ConfigError(f"{path} is no baseline of this version (schema {found!r}): it is left as it is")
        content = self._content() | {"sha256": self.digest}
        cells = ",\n".join(f"  {json.dumps(cell)}" for cell in content.pop("cells"))
        head = json.dumps(content, indent=1)
        return write_whole(path, f'{head[:-2]},\n "cells": [\n{cells}\n ]\n}}\n')


def baseline_file(place: str | Path) -> Path:
    """``baselines/main`` means ``baselines/main.json``."""
    path = Path(place)
    return path if path.suffix == ".json" else path.parent / f"{path.name}.json"


def _content(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except ValueError as error:
        raise ConfigError(f"{path} is no baseline: {error}") from error


def _tables(suite: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    found = suite.get(name)
    return (
        {label: table for label, table in found.items() if isinstance(table, dict)} if isinstance(found, dict) else {}
    )


def _audit(suite: dict[str, Any]) -> dict[str, Any]:
    """Nothing where the suite audits nothing."""
    table = suite.get("audit")
    return {**table, "alpha": suite.get("alpha")} if isinstance(table, dict) else {}


def _drop_empty(table: dict[str, Any], *names: str) -> None:
    for name in names:
        if not table[name]:
            del table[name]


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
    return "; ".join(f"FNR {float(curve.fnr(rate)):.3f} at FPR {rate:g}" for rate in _CURVE_AT)


def _all_terms(signed: list[StatedClaim]) -> dict[str, dict[str, tuple[str, ...]]]:
    """By claim; it may be signed on several federations, on other terms."""
    found: dict[str, dict[str, set[str]]] = {}
    for one in signed:
        for name, words in _terms(one).items():
            found.setdefault(one.claim.describe(), {}).setdefault(name, set()).add(words)
    return {text: {name: tuple(sorted(words)) for name, words in terms.items()} for text, terms in found.items()}


def _defenses(folder: RunFolder) -> dict[str, StoredDefense]:
    versions = {row.defense: row.defense_version for row in folder.rows("attack", "utility")}
    signed = {(one.defense, one.claim.describe()) for one in folder.claims}
    judged = {
        (row.defense, claim.claim.describe())
        for row in folder.rows("audit", status="ok")
        if (claim := folder.claim_of(row)) is not None
    }
    return {
        label: StoredDefense(
            version=versions[label],
            table=folder.defense_fields(label),
            claims=tuple(sorted(text for name, text in signed if name == label)),
            audited=tuple(sorted(text for name, text in judged if name == label)),
            terms=_all_terms([one for one in folder.claims if one.defense == label]),
        )
        for label in sorted(versions)
    }
