"""Two whole runs that are told the same folder at once: one has it, the other is refused, and nothing is lost."""

import os
import subprocess
import sys

from fedassay.reports.reading.run_folder import RunFolder


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
