"""Seal: a finished run whose rows or claims are not what they were is INCOMPLETE, and says which file it is."""

import json
import shutil

import fedassay
import pytest
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.regression.gated_run import judge_folder
from fedassay.suites.config.source import ConfigError
from suite_text import suite_text, tables

TABLES = tables(defenses={"none": {}}, attacks={name: {"count": 3} for name in ("loss", "random_scores")})


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    place = tmp_path_factory.mktemp("sealed") / "run"
    suite = place.with_suffix(".toml")
    suite.write_text(suite_text(TABLES, clients=3, samples=30))
    return fedassay.run(str(suite), jobs=1, folder=place, report=False).folder


@pytest.fixture
def copy(sealed, tmp_path):
    return shutil.copytree(sealed, tmp_path / "copy")


def verdicts(folder):
    """Lines and exit codes of the report and of the gate."""
    run = RunFolder.read(folder)
    judged = judge_folder(run).outcome
    return {run.gate.verdict_line, judged.verdict_line}, {run.gate.exit_code, judged.exit_code}


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_an_untouched_run_is_fine(copy):
    assert verdicts(copy) == ({"OK: no claim was audited"}, {0})


def test_line_ends_and_order_are_no_change(copy):
    lines = (copy / "results.jsonl").read_bytes().splitlines()
    (copy / "results.jsonl").write_bytes(b"\r\n".join(reversed(lines)) + b"\r\n\r\n")
    assert verdicts(copy)[1] == {0}


@pytest.mark.parametrize("cut", [1, 3])
def test_a_row_lost_at_a_line_end_is_reported(copy, cut):
    lines = (copy / "results.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "results.jsonl").write_bytes(b"".join(lines[:-cut]))
    said, codes = verdicts(copy)
    assert codes == {12}
    assert all("changed since the run was finished: results.jsonl" in line for line in said)


def test_claims_that_are_gone_are_reported_and_another_layout_of_them_is_none(copy):
    edit(copy / "claims.json")
    assert verdicts(copy)[1] == {0}
    (copy / "claims.json").unlink()
    said, codes = verdicts(copy)
    assert codes == {12}
    assert "INCOMPLETE: changed since the run was finished: claims.json" in said


def test_a_changed_run_is_no_baseline(copy, sealed):
    (copy / "claims.json").unlink()
    with pytest.raises(ConfigError, match=r"copy: these files changed since the run was finished: claims\.json"):
        judge_folder(RunFolder.read(sealed), copy)


def test_a_resumed_run_is_mended_and_sealed_anew(copy):
    (copy / "claims.json").write_text("{")
    lines = (copy / "results.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "results.jsonl").write_bytes(b"".join(lines[:-1]))
    emptied = next((copy / "cells").glob("*/records.jsonl"))
    emptied.write_bytes(b"")
    fedassay.resume(copy, jobs=1)
    assert verdicts(copy) == ({"OK: no claim was audited"}, {0})
    assert len((copy / "results.jsonl").read_bytes().splitlines()) == len(lines)


def test_a_gate_that_its_rows_do_not_bear_is_not_repeated(copy):
    edit(copy / "gate.json", verdict_line="FAIL: all is lost", exit_code=10)
    line = "OK: no claim was audited (the outcome when the run finished: FAIL: all is lost)"
    assert RunFolder.read(copy).gate.verdict_line == line
    edit(copy / "gate.json", exit_code=True)
    with pytest.raises(ValueError, match=r"gate\.json must hold the fields verdict_line \(text\) and exit_code"):
        RunFolder.read(copy)


@pytest.mark.parametrize("change", [{"seed": "x"}, {"suite": [1]}, {"run_id": 3}])
def test_a_manifest_of_other_things_is_not_resumed(copy, change):
    edit(copy / "manifest.json", **change)
    with pytest.raises(ConfigError, match=f"lacks {next(iter(change))}, or has values of a wrong type for them"):
        fedassay.resume(copy, jobs=1)
