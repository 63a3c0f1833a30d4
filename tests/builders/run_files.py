"""The files of a run that was made by hand."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fedassay.api import Silent
from fedassay.audit.claim import Claim
from fedassay.audit.output_file import with_checksum
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.execution.backend import LocalBackend
from fedassay.suites.execution.run import carry_out, launch
from fedassay.suites.results.rows import read_rows
from fedassay.suites.results.store import digests


@dataclass
class RunFiles:
    """Collects what a run would write, then writes it."""

    path: Path
    manifest: dict[str, Any]
    lines: list[dict[str, Any]] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)
    gate: dict[str, Any] | None = None

    def state(self, claim: Claim, **facts: Any) -> None:
        self.claims.append({"claim_id": claim.claim_id, "federation": "main", **facts, "claim": claim.to_dict()})

    def save(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "manifest.json").write_text(json.dumps(self.manifest))
        (self.path / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        (self.path / "claims.json").write_text(json.dumps({"schema": "claims-1", "claims": self.claims}))
        if self.gate is not None:
            finish(self.path, **self.gate)


def finish(folder, **gate):
    """Writes gate.json and the manifest with the checksums of what the folder holds, as a run does last."""
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(with_checksum(json.loads(manifest.read_text()))))
    found = {"verdict_line": "OK", "exit_code": 0} | gate | digests(folder, read_rows(folder / "results.jsonl"))
    (folder / "gate.json").write_text(json.dumps(found))


def contents(folder):
    """Path below the run's folder -> bytes, of every file of its cells."""
    cells = (folder / "cells").rglob("*")
    return {str(path.relative_to(folder)): path.read_bytes() for path in cells if path.is_file()}


def results(folder):
    """(cell, metric) of every line of results.jsonl; fails where one is torn."""
    rows = map(json.loads, (folder / "results.jsonl").read_text().splitlines())
    return [(row["cell_id"], row["metric"]) for row in rows]


class Stopped(Exception):
    """What a kill is, in this process."""


class StopsAfterOne(Silent):
    """A progress display that ends the run after its first job."""

    def advance(self, titles, failed):
        raise Stopped


def begun_and_stopped(suite, folder):
    """Begins a run, which stops after its first job."""
    spec, source = load_suite(suite)
    begun = launch(spec, source, folder=folder)
    with pytest.raises(Stopped):
        carry_out(begun, StopsAfterOne(), LocalBackend(1))
    return begun


def is_running(pid):
    # A dead process that nobody has waited for is still there, as a zombie.
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
