"""Two whole runs that are told the same folder at once: one has it, the other is refused, and nothing is lost."""

import os
import subprocess
import sys

import pytest
from fedassay.cli.app import app
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.suites.execution import run as workers_module
from typer.testing import CliRunner


@pytest.mark.simulations
def test_while_a_run_writes_its_folder_a_second_run_and_a_resume_are_refused(suite_file, tmp_path, monkeypatch):
    real, refused = workers_module.run_job, []
    words = [str(suite_file()), "-j", "1"]

    def work(*arguments):
        if not refused:
            for command in (["run", *words, "-o", str(tmp_path / "run")], ["resume", str(tmp_path / "run")]):
                second = CliRunner().invoke(app, command)
                refused.append((second.exit_code, second.stderr))
        return real(*arguments)

    monkeypatch.setattr(workers_module, "run_job", work)
    first = CliRunner().invoke(app, ["run", *words, "-o", str(tmp_path / "run")])
    assert first.exit_code == 0, first.output
    assert [code for code, _ in refused] == [2, 2]
    assert all(f"another process is writing {tmp_path / 'run'}" in told for _, told in refused), refused
    folder = RunFolder.read(tmp_path / "run")
    assert folder.skipped == ()
    assert len({record.cell_id for record in folder.records}) == folder.manifest.planned_cells


@pytest.mark.processes
def test_of_two_processes_in_one_folder_one_runs_and_the_other_is_reported_why_not(suite_file, tmp_path):
    words = ["run", str(suite_file()), "-j", "1", "-o", "run"]
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "fedassay", *words],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for _ in range(2)
    ]
    try:
        ended = [(process.communicate(timeout=300)[1], process.returncode) for process in both]
    finally:
        for process in both:
            if process.poll() is None:
                process.kill()
    refused = [said for said, code in ended if code == 2]
    assert len(refused) == 1
    assert "run" in refused[0]
    assert "already holds a run; resume it, or name another folder" in refused[0] or "another process is" in refused[0]
    folder = RunFolder.read(tmp_path / "run")
    assert folder.skipped == ()
    assert len({record.cell_id for record in folder.records}) == folder.manifest.planned_cells
    assert folder.gate is not None
    assert folder.gate.exit_code in {code for said, code in ended if said not in refused}
