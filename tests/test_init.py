"""``fedassay init``: a project whose own test passes at once, and fails with its reasons where the defense breaks."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import fedassay
import pytest

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
