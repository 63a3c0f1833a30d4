"""The command line: what each command prints, and the exit code that it ends with."""

import errno
import json
import os
import shutil
import subprocess
import sys

import pytest
from fedassay import __version__
from fedassay.cli import app
from fedassay.suites import run as run_module
from fedassay.suites import store as store_module
from fedassay.suites.store import Store
from typer.testing import CliRunner


@pytest.fixture
def say(tmp_path, monkeypatch):
    """(words) -> the result of the command, given in an empty folder; nothing but an exit may come out of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # The command looks for modules where it stands.

    def invoke(*words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


def lines(result, first):
    return [line for line in result.stdout.splitlines() if line.startswith(first)]


# run, resume, report


def test_a_run_prints_plan_progress_claims_tables_gate_and_the_report(say, suite_file, tmp_path):
    result = say("run", suite_file(), "-j", 1, "-o", "out")
    assert result.exit_code == 0
    assert lines(result, "plan") == [
        "plan   2 defenses x 2 attacks, 1 seeds: 2 federations; 1 audits on 80 replicas; 8 cells"
    ]
    progress = lines(result, "run")
    assert progress[0] == "run    8 cells, cached 0"
    assert [line.split()[1] for line in progress[1:]] == [f"{number}/8" for number in range(1, 9)]
    assert any("ldp_gaussian" in line and line.endswith(": NOT REFUTED") for line in lines(result, "claim"))
    assert "Attacks on federation main" in result.stdout
    assert lines(result, "gate") == [
        "gate   OK: 1 claims NOT REFUTED, 0 controls REFUTED as they must be (exit code 0)"
    ]
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


def test_a_run_goes_below_runs_unless_told(say, suite_file, tmp_path):
    assert say("run", suite_file(), "-j", 1).exit_code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert "_tiny_" in folder.name


def test_a_run_takes_seed_seeds_and_changes(say, suite_file, tmp_path):
    result = say("run", suite_file(), "-j", 1, "-o", "out", "--seed", 2, "--seeds", 2, "--set", "audit.replicas=60")
    assert result.exit_code == 0
    manifest = Store(tmp_path / "out").manifest()
    assert manifest["seeds"] == [4, 5]
    assert manifest["suite"]["audit"]["replicas"] == 60


MINE = """\
from dataclasses import dataclass

from fedassay import Prepared
from fedassay.defenses.ldp_gaussian import LDPGaussian


@dataclass(frozen=True, kw_only=True)
class MyDefense(LDPGaussian):
    epsilon: float = 3.0
"""


def test_a_defense_in_a_file_of_ones_own_runs_by_its_path_and_stands_in_the_report(suite_file, tmp_path):
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "mod.py").write_text(MINE)
    words = ["run", str(suite_file()), "-j", "1", "-o", "out", "-d", "mypkg.mod:MyDefense", "-d", "none"]
    done = subprocess.run(
        [sys.executable, "-m", "fedassay", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    claims = json.loads((tmp_path / "out" / "claims.json").read_text())["claims"]
    assert [(claim["defense"], claim["claim"]["epsilon"]) for claim in claims] == [
        ("ldp_gaussian", 4.0),
        ("MyDefense", 3.0),
    ]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("MyDefense") > 3
    assert "none_2" in page
    assert f"fedassay {' '.join(words)}" in page
    rows = Store(tmp_path / "out").records()
    assert {row.status for row in rows if row.defense == "MyDefense"} == {"ok"}
    assert any("MyDefense" in line and "NOT REFUTED" in line for line in done.stdout.splitlines())


def test_a_resumed_run_prints_what_a_whole_one_does(say, suite_file, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(run_module, "hold_court", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        stopped = say("run", suite_file(), "-j", 1, "-o", "my run")
    assert stopped.exit_code == 130
    assert stopped.stderr == ("interrupted. Finished cells are kept; go on with: fedassay resume 'my run'\n")
    resumed = say("resume", "my run", "-j", 1)
    assert resumed.exit_code == 0
    assert lines(resumed, "run") == ["run    8 cells, cached 7", "run    8/8 main ldp_gaussian likelihood_ratio pooled"]
    whole = say("run", suite_file(), "-j", 1, "-o", "other")
    assert lines(resumed, "claim") == lines(whole, "claim")
    assert lines(resumed, "gate") == lines(whole, "gate")


def test_a_full_disk_is_incomplete_and_resuming_completes_it(say, suite_file, monkeypatch):
    real, left = store_module._write_whole, iter(range(12))

    def full(path, content):
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(store_module, "_write_whole", full)
        stopped = say("run", suite_file(), "-j", 1, "-o", "out")
    assert stopped.exit_code == 12
    assert stopped.stderr.startswith("INCOMPLETE: the run stopped, out cannot be written: [Errno 28] No space left")
    assert stopped.stderr.endswith("Finished cells are kept; go on with: fedassay resume out\n")
    assert not lines(stopped, "gate")
    assert say("resume", "out", "-j", 1).exit_code == 0


def test_a_disk_that_is_full_from_the_start_is_incomplete(say, suite_file, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module, "_write_whole", full)
    result = say("run", suite_file(), "-j", 1, "-o", "out")
    assert (result.exit_code, result.stderr) == (12, "INCOMPLETE: [Errno 28] No space left on device\n")


def test_a_failing_defense_is_incomplete_and_told_on_the_way(say, suite_file, own_module):
    broken = MINE + "    def prepare(self, plan):\n        honest = super().prepare(plan)\n"
    broken += "        return Prepared(protection=Broken(), claims=())\n\n\nfrom fedassay import Protection\n\n\n"
    broken += "class Broken(Protection):\n    def report(self, *rest):\n        raise RuntimeError('out of budget')\n"
    result = say("run", suite_file(), "-j", 1, "-o", "out", "-d", f"{own_module(broken)}:MyDefense")
    assert result.exit_code == 12
    assert len(lines(result, "FAILED main MyDefense")) == 3
    assert lines(result, "gate") == ["gate   INCOMPLETE: 3 cells FAILED (MyDefense) (exit code 12)"]


def test_an_honest_claim_that_is_refuted_fails_and_a_control_must_be(say, suite_file):
    changes = ["--set", "audit.replicas=600", "--set", "audit.batch=600", "--set", "defenses.ldp_gaussian.epsilon=1"]
    control = ("[defenses.none]", "[defenses.control_noise_halved]\nepsilon = 4.0\n\n[defenses.none]")
    result = say("run", suite_file(*control), "-j", 1, "-o", "out", *changes)
    assert result.exit_code == 0
    assert lines(result, "gate") == [
        "gate   OK: 1 claims NOT REFUTED, 1 controls REFUTED as they must be (exit code 0)"
    ]
    assert any(line.endswith("REFUTED (a control: it must be)") for line in lines(result, "claim"))


def test_a_report_is_written_again_from_the_records_alone(say, finished, tmp_path):
    folder = shutil.copytree(finished.folder, tmp_path / "copy")
    shutil.rmtree(folder / "cells")
    (folder / "report.html").unlink()
    result = say("report", folder)
    assert (result.exit_code, result.stdout) == (0, f"open   {folder / 'report.html'}\n")
    assert "ldp_gaussian" in (folder / "report.html").read_text(encoding="utf-8")
    assert say("report", folder, "--html", "page.html", "--md", "page.md").exit_code == 0
    assert (tmp_path / "page.html").is_file()
    assert (tmp_path / "page.md").is_file()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "has no manifest.json"),
        (lambda folder: (folder / "results.jsonl").write_text("{}\n"), "results.jsonl:1"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "is not JSON"),
    ],
)
def test_a_folder_that_cannot_be_reported_is_told_in_one_line(say, finished, tmp_path, spoil, says):
    folder = shutil.copytree(finished.folder, tmp_path / "copy")
    spoil(folder)
    result = say("report", folder)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_report_is_not_written_over_a_folder(say, finished, tmp_path):
    (tmp_path / "page").mkdir()
    assert say("report", finished.folder, "--html", "page").exit_code == 2


# What is wrong before anything runs


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "no suite 'nothing': it is neither a file nor a bundled suite"),
        (["{suite}", "--set", "seeds=0"], "--set seeds: seeds: Input should be greater than or equal to 1"),
        (["{suite}", "--seeds", "0"], "seeds: Input should be greater than or equal to 1"),
        (["{suite}", "--set", "seeds"], "--set takes key.sub=value, got 'seeds'"),
        (["{suite}", "-d", "dp_sdg"], "unknown defense 'dp_sdg'; known: dp_sgd"),
        (["{suite}", "-d", "no.such:Thing"], "cannot import no.such: ModuleNotFoundError"),
        (["{suite}", "-d", "loss"], "unknown defense 'loss'"),
        (["{suite}", "--set", "defenses.ldp_gaussian.epsilon=-1"], "epsilon must be a number > 0, got -1"),
        (
            ["{suite}", "--set", "federations.main.samples=1"],
            "federation main cannot be set up: samples must be in 2..",
        ),
        (["{suite}", "--set", "federations.main.clients=100"], "federation main cannot be set up"),
    ],
)
def test_what_is_wrong_before_anything_runs_is_usage_and_leaves_nothing(
    say, suite_file, tmp_path, command, words, says
):
    path = suite_file()
    before = set(tmp_path.iterdir())
    result = say(command, *[word.format(suite=path) for word in words])
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "quick", "-j", "0"],
        ["run", "quick", "--seed", "-1"],
        ["run", "quick", "--sed", "1"],
        ["fly"],
        [],
    ],
)
def test_wrong_usage_is_exit_code_2(say, tmp_path, words):
    assert say(*words).exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_a_run_is_not_written_to(say, finished, suite_file):
    before = sorted((finished.folder).rglob("*"))
    result = say("run", suite_file(), "-o", finished.folder)
    assert result.exit_code == 2
    assert "already holds a run; resume it, or name another folder" in result.stderr
    assert sorted((finished.folder).rglob("*")) == before


@pytest.mark.parametrize("place", ["empty", "absent", "file"])
def test_a_folder_that_is_no_run_is_not_resumed(say, tmp_path, place):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    result = say("resume", place)
    assert result.exit_code == 2
    assert result.stderr == f"{place} holds no run: there is no manifest.json in it\n"


def test_a_run_of_other_code_is_not_resumed(say, finished, monkeypatch):
    from fedassay.defenses.ldp_gaussian import LDPGaussian

    monkeypatch.setattr(LDPGaussian, "version", "2")
    result = say("resume", finished.folder)
    assert result.exit_code == 2
    assert "cannot be resumed: a part's code, a data set or the suite changed since it began" in result.stderr


def test_a_crash_is_no_usage_error(suite_file, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "judge_run", lambda *arguments, **options: 1 / 0)
    result = CliRunner().invoke(app, ["run", str(suite_file()), "-j", "1", "-o", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert isinstance(result.exception, ZeroDivisionError)


# plan, list, doctor


def test_a_plan_says_what_would_run_and_writes_nothing(say, suite_file, tmp_path):
    path = suite_file()
    before = set(tmp_path.iterdir())
    result = say("plan", path, "--seeds", 2, "-d", "none")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:2] == [
        "plan   3 defenses x 2 attacks, 2 seeds: 6 federations; 1 audits on 80 replicas; 21 cells",
        "train  main: digits, logistic, 2 clients, 2 rounds, 6 federations",
    ]
    assert len(lines(result, "audit  ldp_gaussian")) == 1
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("kind", "some"),
    [
        ("defenses", {"none", "dp_sgd", "control_no_clip"}),
        ("attacks", {"loss", "idlg", "inversion", "random_scores"}),
        ("estimators", {"clopper_pearson", "likelihood_ratio"}),
        ("suites", {"quick", "standard"}),
        ("datasets", {"digits", "mnist", "fashion_mnist"}),
        ("metrics", {"accuracy", "auc", "psnr", "epsilon_low"}),
    ],
)
def test_a_list_names_every_part_with_words_and_is_the_same_as_json(say, kind, some):
    plain, as_json = say("list", kind), say("list", kind, "--json")
    assert plain.exit_code == as_json.exit_code == 0
    listed = json.loads(as_json.stdout)
    assert some <= set(listed)
    assert all(words.strip() for words in listed.values())
    width = max(map(len, listed))
    assert plain.stdout.splitlines() == [f"{name:{width}}  {words}" for name, words in listed.items()]


def test_an_unknown_kind_is_told_with_the_nearest_one(say):
    result = say("list", "defences")
    assert result.exit_code == 2
    assert result.stderr.startswith("cannot list 'defences'; known: defenses, ")


def test_the_doctor_says_what_the_machine_has(say):
    result = say("doctor")
    assert result.exit_code == 0
    said = result.stdout.splitlines()
    assert said[0].startswith("cores     ")
    assert f"version   fedassay {__version__}" in said
    assert "data set  digits: bundled" in said
    assert len([line for line in said if line.startswith("data set  ")]) == 3
    assert said[-1].startswith("lpips     ")


def test_the_version_is_told(say):
    result = say("--version")
    assert (result.exit_code, result.stdout) == (0, f"fedassay {__version__}\n")
