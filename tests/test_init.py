"""``fedassay init``: a project whose own test passes at once, and fails with its reasons where the defense breaks."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import fedassay
import pytest
from fedassay import init_command

FILES = {
    "my_defense.py",
    "suite.toml",
    "test_my_defense.py",
    "pytest.ini",
    ".gitignore",
    "README.md",
    ".github/workflows/privacy.yml",
    "baselines/main.json",
}


def run(folder, *words):
    installed = any(point.value == "fedassay.pytest_plugin" for point in entry_points(group="pytest11"))
    plugin = [] if installed or words[0] != "pytest" else ["-p", "fedassay.pytest_plugin", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    environment |= {"PYTHONPATH": str(Path(fedassay.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-m", words[0], *plugin, *words[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    place = tmp_path_factory.mktemp("init")
    done = run(place, "fedassay", "init", "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    return place / "demo"


def test_it_writes_a_project_and_overwrites_nothing(demo):
    there = {str(path.relative_to(demo)) for path in demo.rglob("*") if path.is_file()}
    assert there >= FILES
    before = (demo / "my_defense.py").read_bytes()
    again = run(demo.parent, "fedassay", "init", "demo")
    assert again.returncode == 2
    assert "already holds my_defense.py, suite.toml" in again.stderr
    assert (demo / "my_defense.py").read_bytes() == before


def test_its_test_passes_at_once_and_half_the_noise_fails_with_all_that_one_needs(demo):
    passed = run(demo, "pytest")
    assert passed.returncode == 0, passed.stdout
    code = (demo / "my_defense.py").read_text()
    assert "noise_std = 2 * self.clip_norm" in code
    try:
        (demo / "my_defense.py").write_text(
            code.replace("noise_std = 2 * self.clip_norm", "noise_std = self.clip_norm")
        )
        failed = run(demo, "pytest")
    finally:
        (demo / "my_defense.py").write_text(code)
    assert failed.returncode == 1
    told = failed.stdout
    assert "FAIL: claims REFUTED: mine; 2 of 5 cells worse than the baseline" in told
    assert "main/mine/likelihood_ratio (uploads) AUC" in told
    assert "in the baseline" in told
    assert "worse by 0." in told
    assert "over 8 seeds" in told
    assert "again  pytest test_my_defense.py::test_the_claim_holds_and_nothing_got_worse" in told


def test_the_workflow_is_yaml_that_runs_the_test(demo):
    yaml = pytest.importorskip("yaml")
    told = yaml.safe_load((demo / ".github" / "workflows" / "privacy.yml").read_text())
    steps = [step.get("run", "") for step in told["jobs"]["fedassay"]["steps"]]
    assert any(step.startswith("pytest --fedassay-report=reports") for step in steps)


def tree(place):
    return {
        str(path.relative_to(place)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in place.rglob("*")
    }


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), RuntimeError("planted"), OSError(28, "No space left")])
@pytest.mark.parametrize("name", ["demo", "mine/demo", "."])
def test_what_is_stopped_half_way_leaves_only_what_was_there_and_can_be_given_again(
    say, tmp_path, monkeypatch, stop, name
):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "baselines").mkdir()
    before = tree(tmp_path)

    def stopped(folder):
        (folder / "runs" / "first" / "cells").mkdir(parents=True)
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "my_defense.pyc").write_bytes(b"x")
        raise stop

    monkeypatch.setattr(init_command, "measure", stopped)
    if isinstance(stop, RuntimeError):
        with pytest.raises(AssertionError, match="planted"):
            say("init", name)
    else:
        assert say("init", name).exit_code == (130 if isinstance(stop, KeyboardInterrupt) else 12)
    assert tree(tmp_path) == before
    monkeypatch.setattr(init_command, "measure", lambda folder: "OK: made up")
    again = say("init", name)
    assert again.exit_code == 0, again.output
    assert (tmp_path / name / "suite.toml").is_file()


def occupied(place, how):
    match how:
        case "runs/first":
            (place / how).mkdir(parents=True)
        case "link":
            (place / "suite.toml").symlink_to("nowhere")
        case _:
            (place / how).parent.mkdir(parents=True, exist_ok=True)
            (place / how).write_text("mine")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("runs/first", "already holds runs/first"),
        ("link", "already holds suite.toml"),
        ("baselines/main.json", "already holds baselines/main.json"),
        ("baselines", "baselines is no folder"),
        (".github/workflows", "workflows is no folder"),
        ("runs", "runs is no folder"),
    ],
)
def test_what_stands_in_the_way_is_told_before_anything_is_written(say, tmp_path, how, words):
    (tmp_path / "demo").mkdir()
    occupied(tmp_path / "demo", how)
    before = tree(tmp_path)
    refused = say("init", "demo")
    assert refused.exit_code == 2
    assert words in refused.output
    assert tree(tmp_path) == before


def test_a_file_in_place_of_the_folder_is_told(say, tmp_path):
    (tmp_path / "demo").write_text("mine")
    refused = say("init", "demo")
    assert refused.exit_code == 2
    assert "demo is no folder" in refused.output
