"""The page "Your own project" as a user follows it: killed in the middle, resumed by two workers, and reported."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import fedassay
import pytest
from fedassay.cli.app import app
from fedassay.suites.results.store import Store
from typer.testing import CliRunner

PAGE = Path(fedassay.__file__).resolve().parent / "docs" / "your-own-project.md"
FILE = re.compile(r'^```\w* title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
SUITES = ("scans", "records", "photos")

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="an installed wheel has no docs")


def files():
    return dict(FILE.findall(PAGE.read_text(encoding="utf-8")))


def test_the_suites_of_the_page_have_at_most_fifteen_lines():
    lengths = {name: len(text.splitlines()) for name, text in files().items() if name.endswith(".toml")}
    assert set(lengths) == {"scans.toml", "records.toml", "photos.toml", "mine.toml"}
    assert max(lengths.values()) <= 15


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with the files of the page and the data that its script writes."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "make_data.py"], cwd=folder, check=True)
    return folder


def workers(run):
    """The processes that compute the jobs of this run; its resource tracker computes nothing."""
    found = [pid for task in Path(f"/proc/{run.pid}/task").iterdir() for pid in (task / "children").read_text().split()]
    return [int(pid) for pid in found if "resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_text()]


@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds the workers in /proc")
@pytest.mark.parametrize(("name", "victim"), [*((name, "run") for name in SUITES), ("records", "worker")])
def test_a_suite_of_own_data_and_model_is_killed_resumed_and_reported(project, monkeypatch, name, victim):
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", sys.path[:])
    folder = project / f"{name}_{victim}"
    words = ["-m", "fedassay", "run", f"{name}.toml", "--jobs", "2", "-o", folder.name]
    run = subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=project
    )
    deadline = time.monotonic() + 300
    while not Store(folder).finished():
        assert run.poll() is None, run.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    computing = workers(run)
    os.kill(run.pid if victim == "run" else computing[0], signal.SIGKILL)
    _, printed = run.communicate(timeout=100)
    assert run.returncode == (-9 if victim == "run" else 12)
    if victim == "worker":
        assert f"go on with: fedassay resume {folder.name}" in printed
    planned = json.loads((folder / "manifest.json").read_text())["planned_cells"]
    before = {cell: (folder / "cells" / cell / "records.jsonl").read_bytes() for cell in Store(folder).finished()}
    assert 0 < len(before) < planned, "the run ended before it was killed"
    while any(Path(f"/proc/{pid}").exists() for pid in computing):  # The workers of a killed run end by themselves.
        assert time.monotonic() < deadline
        time.sleep(0.05)
    resumed = CliRunner().invoke(app, ["resume", folder.name, "--jobs", "2"])
    assert resumed.exit_code == 0, resumed.output
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert {row["status"] for row in rows} == {"ok"}
    assert len({row["cell_id"] for row in rows}) == planned
    # What was finished before the kill was not computed again.
    assert all((folder / "cells" / cell / "records.jsonl").read_bytes() == text for cell, text in before.items())
    (folder / "report.html").unlink()
    reported = CliRunner().invoke(app, ["report", folder.name])
    assert reported.exit_code == 0, reported.output
    assert "dp_fedsgd" in (folder / "report.html").read_text(encoding="utf-8")
