"""A suite on the user's own files: run, resumed, and refused where the files changed."""

import json

import fedassay
import numpy as np
import pytest
from fedassay.api import Silent
from fedassay.suites.config.resolve import resolve, task_of
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.execution.backend import LocalBackend
from fedassay.suites.execution.run import carry_out, launch, relaunch
from fedassay.suites.planning.plan_text import plan_lines
from fedassay.suites.planning.run_plan import plan_run
from own_data import write_images, write_suite
from run_files import begun_and_stopped

KINDS = ("images", "records", "photos")


def rows(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.simulations
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_on_own_data_goes_on_from_another_folder_and_ends(kind, tmp_path, monkeypatch):
    suite = write_suite(tmp_path, kind)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    begun = begun_and_stopped(str(suite), tmp_path / "run")
    before = rows(tmp_path / "run")
    assert before
    run = fedassay.resume(tmp_path / "run", jobs=1, report=False)
    after = rows(run.folder)
    assert after[: len(before)] == before
    assert {row["cell_id"] for row in after} == {cell.cell_id for cell in begun.plan.cells}
    assert {row["status"] for row in after} == {"ok"}
    manifest = json.loads((run.folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["suite_folder"] == ".."
    assert str(tmp_path) not in json.dumps({key: manifest[key] for key in ("suite", "data", "suite_folder")})


def test_the_plan_reports_what_was_done_to_the_data(tmp_path):
    suite = write_suite(tmp_path, "images")
    spec, source = load_suite(str(suite))
    text = "\n".join(plan_lines(plan_run(resolve(spec, source, seed=0))))
    assert "data   own.npz: The data set has no test part: 20 of 90 samples were split off" in text


def test_a_changed_file_is_not_mixed_with_old_results(tmp_path):
    suite = write_suite(tmp_path, "images")
    begun_and_stopped(str(suite), tmp_path / "run")
    before = (tmp_path / "run" / "results.jsonl").read_bytes()
    write_images(tmp_path / "own.npz", seed=1)
    with pytest.raises(ConfigError, match=r"cannot be resumed, because the data changed since the run began: own.npz"):
        relaunch(tmp_path / "run")
    assert (tmp_path / "run" / "results.jsonl").read_bytes() == before
    write_images(tmp_path / "own.npz", seed=0)
    assert relaunch(tmp_path / "run").plan.cells


def test_a_file_that_changes_during_the_run_fails_the_cells_that_come_after(tmp_path):
    suite = write_suite(tmp_path, "images")
    begun = begun_and_stopped(str(suite), tmp_path / "run")
    before = rows(tmp_path / "run")
    write_images(tmp_path / "own.npz", seed=1)
    task_of.cache_clear()  # As in a worker process that has read nothing yet.
    outcome = carry_out(begun, Silent(), LocalBackend(1))
    after = rows(tmp_path / "run")
    assert after[: len(before)] == before
    assert outcome.exit_code == 12
    later = after[len(before) :]
    assert {row["status"] for row in later} == {"failed"}
    assert all("own.npz changed while the run was going on" in json.dumps(row) for row in later)


def test_the_identity_is_that_of_the_content_and_not_of_the_place(tmp_path):
    plans = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        (tmp_path / name).mkdir()
        suite = write_suite(tmp_path / name, "images")
        write_images(tmp_path / name / "own.npz", seed=seed)
        spec, source = load_suite(str(suite))
        plans[name] = launch(spec, source, folder=tmp_path / name / "run").plan
    ids = {name: [cell.cell_id for cell in plan.cells] for name, plan in plans.items()}
    assert ids["a"] == ids["b"]
    assert not set(ids["a"]) & set(ids["c"])
    assert plans["a"].run_id == plans["b"].run_id != plans["c"].run_id


def test_a_job_carries_no_data(tmp_path):
    import pickle

    spec, source = load_suite(str(write_suite(tmp_path, "images")))
    jobs = launch(spec, source, folder=tmp_path / "run").plan.jobs
    whole = np.load(tmp_path / "own.npz")["x_train"].nbytes
    assert all(len(pickle.dumps(job.federation)) < whole for job in jobs)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"own.npz"', '"own.npy"', r"suite.toml, line 5: data set 'own.npy' is not there: .* holds own.npz"),
        ('"own.npz"', '{ part = "own.npz", chanels = "last" }', r"line 5: own.npz has no option 'chanels'; it"),
        (
            "clients = 3",
            'clients = 8\npartition = "by_owner"',
            r"clients must be at most the number of owners, got 8 > 7",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_line_before_anything_runs(tmp_path, old, new, says):
    suite = write_suite(tmp_path, "images")
    text = suite.read_text(encoding="utf-8")
    assert old in text
    suite.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError, match=says):
        fedassay.run(suite, jobs=1, report=False, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.long
@pytest.mark.simulations
def test_an_audit_reads_a_file_where_the_federation_does_not(tmp_path, monkeypatch):
    suite = write_suite(tmp_path, "images")
    text = suite.read_text(encoding="utf-8").replace('"own.npz"', '"digits"')
    audit = '[audit]\ndataset = "own.npz"\nreplicas = 4\nsamples_per_client = 4\nnoise_shares = [0.5]\n'
    suite.write_text(text + audit, encoding="utf-8")
    monkeypatch.chdir("/")
    spec, source = load_suite(str(suite))
    plan = launch(spec, source, folder=tmp_path / "run").plan
    (audited,) = {audit.cell.facts["dataset"] for audit in plan.audits}
    assert audited == "own.npz"
    assert carry_out(relaunch(tmp_path / "run"), Silent(), LocalBackend(1)).exit_code != 12
