"""A run: equal seeds give equal rows in one process or two; sequential runs; one process at a time in a folder."""

import json
import random

import fedassay
import numpy as np
import pytest
import torch
from fedassay.cli.app import app
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.suites.execution import run as workers_module
from run_files import contents
from typer.testing import CliRunner


def arrays_of(folder):
    return {name: content for name, content in contents(folder).items() if name.endswith(".npz")}


def test_the_same_seed_gives_the_same_rows_and_the_same_arrays(finished, assay, suite_file, timeless):
    again = assay(suite_file())
    assert timeless(again.records) == timeless(finished.records)
    assert arrays_of(again.folder) == arrays_of(finished.folder)
    assert again.verdict == finished.verdict


def test_another_seed_gives_other_rows(finished, assay, suite_file):
    other = assay(suite_file(), seed=1)
    values = [{(row.defense, row.attack, row.metric): row.value for row in run.records} for run in (finished, other)]
    assert values[0].keys() == values[1].keys()
    assert values[0][("none", "training", "accuracy")] != values[1][("none", "training", "accuracy")]
    assert values[0][("none", "loss", "auc")] != values[1][("none", "loss", "auc")]
    assert not set(arrays_of(finished.folder)) & set(arrays_of(other.folder))


@pytest.mark.processes
def test_two_processes_give_the_rows_of_one(assay, suite_file, finished, timeless):
    two = assay(suite_file(), jobs=2)
    assert timeless(two.records) == timeless(finished.records)
    assert arrays_of(two.folder) == arrays_of(finished.folder)


@pytest.mark.processes
@pytest.mark.long
def test_two_processes_run_the_code_as_it_is_now(assay, suite_file, own_defense, timeless):
    path, module = suite_file("seeds = 1", "seeds = 2"), own_defense("pass")
    for body in ("pass", "aggregate = 2 * aggregate"):
        # Workers outlive a run: those of the first one imported the first version.
        own_defense(body, name=module)
        one, two = (assay(path, defenses=[f"{module}:Mine"], jobs=jobs) for jobs in (1, 2))
        assert timeless(one.records) == timeless(two.records)
        assert arrays_of(one.folder) == arrays_of(two.folder)
    twice = [record.value for record in two.records if (record.defense, record.metric) == ("Mine", "accuracy")]
    once = [record.value for record in two.records if (record.defense, record.metric) == ("none", "accuracy")]
    assert len(twice) == len(once) == 2
    assert twice != once


def test_a_run_leaves_the_global_generators_alone(assay, suite_file):
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    assay(suite_file())
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before  # noqa: NPY002


def test_the_global_generators_do_not_reach_a_run(assay, finished, suite_file, timeless):
    np.random.seed(99)  # noqa: NPY002
    torch.manual_seed(99)
    assert timeless(assay(suite_file()).records) == timeless(finished.records)


def test_every_planned_cell_has_its_rows_and_every_row_its_cell(finished):
    manifest = json.loads((finished.folder / "manifest.json").read_text())
    cells = {record.cell_id for record in finished.records}
    assert len(cells) == manifest["planned_cells"] == 8
    assert cells == {path.name for path in (finished.folder / "cells").iterdir()}
    assert {record.run_id for record in finished.records} == {manifest["run_id"]}
    assert manifest["finished"] >= manifest["started"]
    assert manifest["data"] == {"digits": finished.records[0].dataset_sha256}
    assert json.loads((finished.folder / "gate.json").read_text())["exit_code"] == finished.verdict.exit_code == 0


def test_the_artifact_of_every_row_is_there(finished):
    for record in finished.records:
        assert not record.artifact or (finished.folder / record.artifact).is_file()
    assert sum(bool(record.artifact) for record in finished.records) >= 8


def test_the_training_row_agrees_with_the_last_point_of_its_curve(finished):
    record = next(record for record in finished.records if record.metric == "accuracy")
    last = (finished.folder / record.artifact).read_text().splitlines()[-1].split(",")
    assert (int(last[0]), float(last[1])) == (2, record.value)


def test_the_manifest_stands_before_the_first_cell_is_run(suite_file, tmp_path, monkeypatch):
    def look(*arguments):
        manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
        assert (manifest["planned_cells"], manifest["finished"]) == (8, None)
        raise KeyboardInterrupt

    monkeypatch.setattr(workers_module, "run_job", look)
    with pytest.raises(KeyboardInterrupt):
        fedassay.run(str(suite_file()), jobs=1, folder=tmp_path / "run")


SEQUENTIAL = ("replicas = 40", "replicas = 400\nsequential = true")
CONTROL = "[defenses.control_noise_halved]\nepsilon = 4.0\ndelta = 1e-5\n\n[attacks.loss]"


@pytest.fixture
def path(suite_file):
    return suite_file(*SEQUENTIAL, "[attacks.loss]", CONTROL)


@pytest.fixture
def whole(assay, path):
    return assay(path)


def test_what_is_not_run_is_a_row_with_its_reason_and_the_run_is_complete(whole):
    blocks = [row for row in whole.records if row.role == "replicas"]
    omitted = [row for row in blocks if row.status == "skipped"]
    assert omitted
    assert all(row.stopped and row.reason.startswith("not made: ") for row in omitted)
    audits = {row.defense: row for row in whole.records if row.role == "audit"}
    control = audits["control_noise_halved"]
    assert control.verdict == "REFUTED"
    assert control.n < 400
    assert control.n == sum(row.n for row in blocks if row.defense == control.defense)
    assert whole.verdict.exit_code == 0


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
