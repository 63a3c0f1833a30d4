"""A part in the folder of its suite file is found from every current folder, by workers and by resume."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import fedassay
import pytest
from fedassay.api import Silent
from fedassay.cli.app import app
from fedassay.suites.config.source import ConfigError
from typer.testing import CliRunner

MINE = """
from dataclasses import dataclass
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian

@dataclass(frozen=True, kw_only=True)
class Mine(LDPGaussian):
    def prepare(self, plan):
        import {name}_more  # Where it is prepared, and no earlier.
        return super().prepare(plan)
"""


@pytest.fixture
def project(tmp_path, tiny, monkeypatch):
    """(name of the module, folder) -> a suite file with a defense in a module beside it, the folder not on any path."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    written = []

    def write(name, place="deep/demo", text=MINE):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / f"{name}.py").write_text(text.format(name=name))
        (folder / f"{name}_more.py").write_text("")
        written.extend([name, f"{name}_more"])
        suite = tiny.replace("[defenses.ldp_gaussian]", f'[defenses.mine]\npart = "{name}:Mine"')
        (folder / "suite.toml").write_text(suite.replace("seeds = 1", "seeds = 2"))
        return folder / "suite.toml"

    yield write
    for name in written:
        sys.modules.pop(name, None)


@pytest.mark.processes
def test_a_part_beside_the_suite_file_is_found_from_elsewhere_and_in_other_processes(project, tmp_path, monkeypatch):
    suite = project("beside_processes")
    monkeypatch.chdir(tmp_path)
    words = ["run", "deep/demo/suite.toml", "-j", "2", "-o", "out/run", "--set", "audit.replicas=400"]
    done = subprocess.run(
        [sys.executable, "-m", "fedassay", *words],
        env={**os.environ, "PYTHONPATH": str(Path(fedassay.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert CliRunner().invoke(app, ["plan", str(suite)]).exit_code == 0


@pytest.mark.simulations
def test_resume_looks_where_the_suite_lay_from_wherever_it_is_given(project, tmp_path, monkeypatch):
    suite = project("beside_resume")
    folder = tmp_path / "run"

    class Stop(Silent):
        def advance(self, titles, failed):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedassay.run(str(suite), jobs=1, folder=folder, report=False, progress=Stop())
    assert json.loads((folder / "manifest.json").read_text())["suite_folder"] == "../deep/demo"
    # As in a new process, which knows neither the module nor the place; and all of it has moved.
    moved = tmp_path / "moved"
    moved.mkdir()
    shutil.move(folder, moved / "run")
    shutil.move(tmp_path / "deep", moved / "deep")
    for name in ("beside_resume", "beside_resume_more"):
        sys.modules.pop(name)
    sys.path.remove(str(suite.parent))
    resumed = fedassay.resume(moved / "run", jobs=1, report=False)
    assert "failed" not in {row.status for row in resumed.records}


@pytest.mark.simulations
def test_a_suite_of_parts_of_the_package_reveals_nothing_of_where_it_lay(finished, suite_file, tmp_path):
    before = list(sys.path)
    fedassay.run(str(suite_file()), jobs=1, folder=tmp_path / "again", report=False)
    assert sys.path == before
    assert "suite_folder" not in json.loads((finished.folder / "manifest.json").read_text())


@pytest.mark.simulations
def test_another_module_of_the_same_name_is_reported_and_not_audited_in_its_place(project, tmp_path, monkeypatch):
    """Two projects of ``fedassay init`` call their defenses the same."""
    one = project("beside_twice", "one")
    two = project("beside_twice", "two", MINE + "\n# Another.\n")
    fedassay.run(str(one), jobs=1, folder=tmp_path / "first", report=False)
    with pytest.raises(
        ConfigError,
        match=rf"two/suite\.toml, line \d+: beside_twice is already loaded from {one.parent}",
    ):
        fedassay.run(str(two), jobs=1, folder=tmp_path / "second", report=False)
    monkeypatch.chdir(two.parent)  # --defense names what lies where the command is given.
    planned = CliRunner().invoke(app, ["plan", str(one), "-d", "beside_twice:Mine"])
    assert planned.exit_code == 2
    assert f"the suite needs {two.parent}/beside_twice.py" in planned.output


@pytest.mark.simulations
def test_the_same_module_installed_elsewhere_is_the_same(project, tmp_path):
    one = project("beside_same", "one")
    two = project("beside_same", "two")
    for number, suite in enumerate((one, two)):
        fedassay.run(str(suite), jobs=1, folder=tmp_path / f"run{number}", report=False)


def test_a_module_that_is_nowhere_is_reported_with_where_it_was_looked_for(suite_file):
    path = suite_file("[defenses.ldp_gaussian]", '[defenses.mine]\npart = "nowhere_at_all:Mine"')
    with pytest.raises(ConfigError, match=r"the folder of the suite file, the current folder and the installed"):
        fedassay.run(str(path))
