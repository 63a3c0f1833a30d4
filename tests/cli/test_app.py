"""The commands run, resume and report: what they print, and the exit code that they end with."""

import errno
import json
import sys

import pytest
from fedassay.suites.audits.audit_method import PlannedAudit
from fedassay.suites.results import store as store_module
from fedassay.suites.results.store import Store


def lines(result, first):
    return [line for line in result.stdout.splitlines() if line.startswith(first)]


def test_a_file_of_the_working_directory_takes_the_place_of_no_module(python_m, tmp_path):
    for name in ("filelock", "pydantic", "secrets"):
        (tmp_path / f"{name}.py").write_text("import os\nos._exit(77)\n")
    code, said = python_m(tmp_path, "fedassay", "gate", "none")
    assert (code, said) == (2, "none holds no run: the file manifest.json is missing\n")


@pytest.mark.simulations
def test_a_run_prints_plan_progress_claims_tables_gate_and_the_report(say, suite_file, tmp_path):
    result = say("run", suite_file(), "-j", 1, "-o", "out")
    assert result.exit_code == 0
    assert lines(result, "plan") == [
        "plan   2 defenses x 2 attacks, 1 seed: 2 federations; 1 audit on 80 replicas; 8 cells"
    ]
    # Said before anything is run.
    assert result.stdout.index("weak   loss, random_scores on main: 8 + 8 candidates") < result.stdout.index("run    8")
    progress = lines(result, "run")
    assert progress[0] == "run    8 cells, cached 0"
    assert [line.split()[1] for line in progress[1:]] == [f"{number}/8" for number in range(1, 9)]
    assert any("ldp_gaussian" in line and ": NOT REFUTED" in line for line in lines(result, "claim"))
    assert "Attacks on federation main" in result.stdout
    (gate,) = lines(result, "gate")
    assert gate.startswith("gate   OK: 1 claim NOT REFUTED")
    assert "no control ran" in gate
    assert gate.endswith("(exit code 0)")
    assert lines(result, "open") == ["open   out/report.html"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "cells",
        "claims.json",
        "gate.json",
        "manifest.json",
        "report.html",
        "report.md",
        "results.jsonl",
    }


@pytest.mark.simulations
def test_a_run_takes_seed_seeds_and_changes(say, suite_file, tmp_path):
    result = say("run", suite_file(), "-j", 1, "-o", "out", "--seed", 2, "--seeds", 2, "--set", "audit.replicas=60")
    assert result.exit_code == 0
    manifest = Store(tmp_path / "out").manifest()
    assert manifest["seeds"] == [4, 5]
    assert manifest["suite"]["audit"]["replicas"] == 60


MINE = """\
from dataclasses import dataclass

from fedassay import Prepared
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian


@dataclass(frozen=True, kw_only=True)
class MyDefense(LDPGaussian):
    epsilon: float = 3.0
"""


@pytest.mark.simulations
def test_a_defense_in_a_file_of_ones_own_runs_by_its_path_and_stands_in_the_report(
    say, suite_file, tmp_path, monkeypatch
):
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "mod.py").write_text(MINE)
    words = ["run", str(suite_file()), "-j", "1", "-o", "out", "-d", "mypkg.mod:MyDefense", "-d", "none"]
    monkeypatch.setattr(sys, "argv", ["fedassay", *words])  # The report shows the command as it was given.
    done = say(*words)
    for name in ("mypkg.mod", "mypkg"):
        sys.modules.pop(name)
    assert done.exit_code == 0, done.stderr
    claims = json.loads((tmp_path / "out" / "claims.json").read_text())["claims"]
    assert [(claim["defense"], claim["claim"]["epsilon"]) for claim in claims] == [
        ("ldp_gaussian", 4.0),
        ("MyDefense", 3.0),
    ]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("MyDefense") > 3
    assert "none_2" in page
    assert f"fedassay {' '.join(words).replace(' -o out', '')}" in page
    rows = Store(tmp_path / "out").records()
    assert "failed" not in {row.status for row in rows if row.defense == "MyDefense"}
    assert any("MyDefense" in line and "NOT REFUTED" in line for line in done.stdout.splitlines())


@pytest.mark.simulations
def test_a_resumed_run_prints_what_a_whole_one_does(say, suite_file, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(PlannedAudit, "run", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        stopped = say("run", suite_file(), "-j", 1, "-o", "my run")
    assert stopped.exit_code == 130
    assert stopped.stderr == ("interrupted. Finished cells are kept; go on with: fedassay resume 'my run'\n")
    resumed = say("resume", "my run", "-j", 1)
    assert resumed.exit_code == 0
    assert lines(resumed, "run") == ["run    8 cells, cached 7", "run    8/8 main ldp_gaussian likelihood_ratio pooled"]
    whole = say("run", suite_file(), "-j", 1, "-o", "other")
    assert lines(resumed, "claim") == lines(whole, "claim")
    assert lines(resumed, "gate") == lines(whole, "gate")


@pytest.mark.simulations
def test_a_full_disk_is_incomplete_and_resuming_completes_it(say, suite_file, monkeypatch):
    real, left = store_module.write_atomically, iter(range(12))

    def full(path, content):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(store_module, "write_atomically", full)
        stopped = say("run", suite_file(), "-j", 1, "-o", "out")
    assert stopped.exit_code == 12
    assert stopped.stderr.startswith("INCOMPLETE: the run stopped, because out/")
    assert "cannot be read or written: no space left on device. " in stopped.stderr
    assert stopped.stderr.endswith("Finished cells are kept; go on with: fedassay resume out\n")
    assert not lines(stopped, "gate")
    assert say("resume", "out", "-j", 1).exit_code == 0


def test_a_disk_that_is_full_from_the_start_is_named_and_left_as_it_was(say, suite_file, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module, "write_atomically", full)
    result = say("run", suite_file(), "-j", 1, "-o", "deep/out")
    told = "INCOMPLETE: deep/out/claims.json cannot be read or written: no space left on device\n"
    assert (result.exit_code, result.stderr) == (12, told)
    assert not (tmp_path / "deep").exists()


@pytest.mark.simulations
def test_a_failing_defense_is_incomplete_and_reported_on_the_way(say, suite_file, own_module):
    broken = MINE + "    def prepare(self, plan):\n        honest = super().prepare(plan)\n"
    broken += "        return Prepared(protection=Broken(), claims=())\n\n\nfrom fedassay import Protection\n\n\n"
    broken += "class Broken(Protection):\n    def report(self, *rest):\n        raise RuntimeError('out of budget')\n"
    result = say("run", suite_file(), "-j", 1, "-o", "out", "-d", f"{own_module(broken)}:MyDefense")
    assert result.exit_code == 12
    assert len(lines(result, "FAILED main MyDefense")) == 3
    assert lines(result, "gate") == ["gate   INCOMPLETE: 3 cells FAILED (MyDefense) (exit code 12)"]


@pytest.mark.simulations
def test_a_correct_claim_that_is_refuted_fails_and_a_control_must_be(say, suite_file):
    changes = ["--set", "audit.replicas=600", "--set", "audit.batch=600", "--set", "defenses.ldp_gaussian.epsilon=1"]
    control = ("[defenses.none]", "[defenses.control_noise_halved]\nepsilon = 4.0\n\n[defenses.none]")
    result = say("run", suite_file(*control), "-j", 1, "-o", "out", *changes)
    assert result.exit_code == 0
    (gate,) = lines(result, "gate")
    assert gate.startswith("gate   OK: 1 claim NOT REFUTED, 1 control REFUTED as intended")
    assert any("REFUTED (control, as intended)" in line for line in lines(result, "claim"))


@pytest.mark.simulations
@pytest.mark.skipif(sys.platform != "linux", reason="only here may a file's name be no text")
def test_a_folder_whose_name_is_not_utf_8_holds_a_run_and_its_report(say, suite_file, tmp_path):
    folder = f"{tmp_path}/run\udcff"
    made = say("run", suite_file(), "-j", 1, "-o", folder)
    assert made.exit_code == 0, made.output
    assert "run\\udcff" in made.stdout
    assert say("report", folder, "--latex", tmp_path / "t.tex", "--csv", tmp_path / "t.csv").exit_code == 0
    assert say("gate", folder, "--junit", tmp_path / "j.xml", "--summary", tmp_path / "s.md").exit_code == 0
    assert say("gate", folder, "--baseline", tmp_path / "b.json", "--accept").exit_code == 0
    # One seed shows no difference; what counts is that both are read.
    assert say("gate", folder, "--baseline", tmp_path / "b.json").exit_code == 11
