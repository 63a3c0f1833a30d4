"""Whatever stops a run, what is finished is kept, nothing is repeated, and resuming gives the rows of a whole run."""

import os
import shutil
import signal
import subprocess
import sys
import time

import fedassay
import pytest
from fedassay.cli.app import app
from fedassay.suites.config.source import ConfigError
from fedassay.suites.execution import run as run_module
from fedassay.suites.execution import run as workers_module
from fedassay.suites.results import environment
from fedassay.suites.results import store as store_module
from fedassay.suites.results.store import Store
from run_files import contents, is_running, results
from typer.testing import CliRunner


class Killed(BaseException):
    """Nothing in the package catches this: as good as a kill, at a place of our choice."""


class Stopper:
    """Lets ``left`` writes pass, then kills, half of the time with half of the bytes on the disk."""

    def __init__(self, monkeypatch, left):
        self.left = left
        real_write, real_append = store_module.write_atomically, Store.append

        def write(path, content):
            if self._passes():
                return real_write(path, content)
            path.with_name(f".{path.name}.999.part").write_bytes(content[: len(content) // 2])
            raise Killed

        def append(store, cell_id):
            if self._passes():
                return real_append(store, cell_id)
            lines = (store.cell_folder(cell_id) / "records.jsonl").read_bytes()
            with (store.folder / "results.jsonl").open("ab") as out:
                out.write(lines[: len(lines) // 2])
            raise Killed

        monkeypatch.setattr(store_module, "write_atomically", write)
        monkeypatch.setattr(Store, "append", append)

    def _passes(self):
        self.left -= 1
        return self.left >= 0


def writes_of_a_run(assay, path, monkeypatch):
    with monkeypatch.context() as patched:
        stopper = Stopper(patched, 10_000)
        assay(path)
    return 10_000 - stopper.left


# In steps of four a run is killed at the artifact, the rows and the line of some cell, and at the files of the run.
@pytest.mark.simulations
@pytest.mark.parametrize("step", [4, 1])
def test_a_run_killed_at_any_of_its_writes_resumes_to_the_same_rows(
    assay, suite_file, finished, monkeypatch, tmp_path, timeless, step
):
    path = suite_file()
    total = writes_of_a_run(assay, path, monkeypatch)
    # Claims, manifest and session; artifact, rows and line of 8 cells; a block's setting; gate and manifest.
    assert total == 30
    for left in range(2, total, step):
        folder = tmp_path / f"killed{left}"
        with monkeypatch.context() as patched:
            Stopper(patched, left)
            with pytest.raises(Killed):
                fedassay.run(str(path), jobs=1, folder=folder, report=False)
        done = {cell: (folder / "cells" / cell / "records.jsonl").read_bytes() for cell in Store(folder).finished()}
        resumed = fedassay.resume(folder, jobs=1, report=False)
        assert list(folder.rglob(".*.part")) == []
        assert timeless(resumed.records) == timeless(finished.records)
        assert len(results(folder)) == len(set(results(folder)))
        assert resumed.verdict == finished.verdict
        # Times and all: what was finished before was not run again.
        assert (
            done.items()
            <= {
                cell: (folder / "cells" / cell / "records.jsonl").read_bytes() for cell in Store(folder).finished()
            }.items()
        )


def test_a_finished_run_resumes_to_itself_without_running_anything(finished, tmp_path, monkeypatch):
    folder = shutil.copytree(finished.folder, tmp_path / "copy")
    before = contents(folder)
    monkeypatch.setattr(workers_module, "run_job", lambda *arguments: pytest.fail("a finished cell was run again"))
    resumed = fedassay.resume(folder, jobs=1, report=False)
    assert resumed.records == finished.records
    assert resumed.verdict == finished.verdict
    assert contents(folder) == before


@pytest.mark.processes
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.processes)])
def test_a_killed_process_resumes_from_the_command_line_without_repeating_a_finished_cell(
    suite_file, tmp_path, monkeypatch, timeless, own_source, jobs
):
    hang = "Path('hang').write_text(str(os.getpid())), time.sleep(900)"
    hanging = own_source(f"({hang}) if Path('hang').exists() else None")
    (tmp_path / "own_hanging.py").write_text(hanging)
    (tmp_path / "hang").touch()
    path, folder = suite_file(), tmp_path / "run"
    words = ["run", str(path), "-j", str(jobs), "-d", "own_hanging:Mine"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedassay", *words, "-o", str(folder)],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        # Everything but the hanging defense's three cells and the audit.
        deadline = time.monotonic() + 400
        while len({row.cell_id for row in Store(folder).records()}) < 7 or not (tmp_path / "hang").read_text():
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    worker = int((tmp_path / "hang").read_text())
    assert (worker == process.pid) == (jobs == 1)
    deadline = time.monotonic() + 30
    while is_running(worker):
        assert time.monotonic() < deadline, "a worker outlives its run and would compute beside the resumed one"
        time.sleep(0.1)
    with (folder / "results.jsonl").open("ab") as out:
        out.write(b'{"schema":"result-2","run_id":"torn')
    done = contents(folder)
    stamps = {name: (folder / name).stat().st_mtime_ns for name in done}
    assert len(Store(folder).finished()) == 7
    assert not (folder / "gate.json").exists()

    (tmp_path / "hang").unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    resumed = CliRunner().invoke(app, ["resume", str(folder), "-j", "1"])
    assert resumed.exit_code == 0, resumed.output
    assert "cached 7" in resumed.output
    assert done.items() <= contents(folder).items()
    assert {name: (folder / name).stat().st_mtime_ns for name in done} == stamps
    assert len(results(folder)) == len(set(results(folder)))

    words[3] = "1"
    whole = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "whole")])
    assert whole.exit_code == 0
    assert timeless(Store(folder).records()) == timeless(Store(tmp_path / "whole").records())
    assert [line for line in resumed.output.splitlines() if line.startswith(("claim", "gate"))] == [
        line for line in whole.output.splitlines() if line.startswith(("claim", "gate"))
    ]
    sys.modules.pop("own_hanging", None)


@pytest.mark.simulations
def test_an_added_defense_is_found_again_on_resume(assay, suite_file, own_defense):
    from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian

    module = own_defense("pass")
    run = assay(suite_file(), defenses=[f"{module}:Mine", LDPGaussian(epsilon=2.0)], seed=2)
    assert fedassay.resume(run.folder, jobs=1, report=False).records == run.records


def test_ones_own_defense_that_changed_since_is_refused(assay, suite_file, own_defense):
    module = own_defense("pass")
    run = assay(suite_file(), defenses=[f"{module}:Mine"])
    own_defense("aggregate = 2 * aggregate", name=module)
    with pytest.raises(
        ConfigError, match="cannot be resumed: the suite, a data set, or the code of a defense or attack changed since"
    ):
        fedassay.resume(run.folder)


def test_a_part_of_the_package_with_a_new_version_is_refused(finished, monkeypatch):
    from fedassay.attacks.membership.loss import LossThreshold

    monkeypatch.setattr(LossThreshold, "version", "2")
    with pytest.raises(
        ConfigError, match="cannot be resumed: the suite, a data set, or the code of a defense or attack"
    ):
        fedassay.resume(finished.folder)


def test_another_version_of_what_computes_is_refused_by_name(finished, monkeypatch):
    real = environment.versions()
    monkeypatch.setattr(run_module, "versions", lambda: real | {"torch": "9.9"})
    with pytest.raises(
        ConfigError,
        match=rf"cannot be resumed, because packages have changed: torch was {real['torch']} and is now 9\.9",
    ):
        fedassay.resume(finished.folder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda manifest: manifest.update(schema="manifest-0"), "unknown schema 'manifest-0'; this version"),
        (lambda manifest: manifest["suite"].pop("federations"), "at least one .federations.NAME. table"),
        (
            lambda manifest: manifest["suite"]["audit"].update(replicas=41),
            "the suite, a data set, or the code of a defense or attack",
        ),
        (lambda manifest: manifest["suite"]["defenses"].update(dp={"part": "gone"}), "unknown defense 'gone'"),
    ],
)
def test_a_manifest_that_was_changed_is_refused(finished, tmp_path, change, says):
    folder = shutil.copytree(finished.folder, tmp_path / "copy")
    manifest = Store(folder).manifest()
    change(manifest)
    Store(folder).write_manifest(manifest)
    with pytest.raises(ConfigError, match=says):
        fedassay.resume(folder)


def test_code_that_a_changed_manifest_names_is_not_run(finished, tmp_path, monkeypatch):
    folder = shutil.copytree(finished.folder, tmp_path / "copy")
    (tmp_path / "planted_here.py").write_text("raise AssertionError('imported')")
    monkeypatch.chdir(tmp_path)
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"part": null', '"part": "planted_here:Mine"', 1))
    with pytest.raises(ConfigError, match=r"copy/manifest\.json differs from its checksum, and resuming would run the"):
        fedassay.resume(folder)


def test_a_run_is_not_started_where_one_stands(finished, suite_file):
    before = contents(finished.folder)
    with pytest.raises(ConfigError, match="already holds a run"):
        fedassay.run(str(suite_file()), folder=finished.folder)
    assert contents(finished.folder) == before


def test_ones_own_defense_that_is_gone_is_reported(assay, suite_file, own_defense, own_module):
    module = own_defense("pass")
    run = assay(suite_file(), defenses=[f"{module}:Mine"])
    own_module("", name=module)
    shown = []
    with pytest.raises(ConfigError, match=f"{module} has no 'Mine'"):
        fedassay.resume(run.folder, show=shown.append)
    # Before it was imported.
    assert [f"names: {module}:Mine (searched first in " in line for line in shown] == [True]
