"""What a plan will take: the medians of earlier runs, of cells like its own, and nothing where there are none."""

import json
import re
import time

import fedassay
import pytest
from fedassay.suites.planning.estimate import estimate, learnt
from fedassay.suites.results.environment import Cost, hardware


@pytest.fixture
def plan(planned):
    return planned()


def write_run(place, name, rows, machine=None, **manifest):
    folder = place / name
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"hardware": machine or hardware()} | manifest))
    (folder / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def row(cell, seconds, **changes):
    facts = {"suite": "s", "federation": "main", "defense": "d", "role": "attack", "attack": "loss"}
    facts |= {"dataset": "digits", "model": "mlp", "status": "ok"}
    return facts | {"cell_id": cell, "cpu_s": seconds} | changes


FACTS = row("", 0)


def test_a_cell_takes_the_median_of_its_like(tmp_path):
    write_run(tmp_path, "a", [row("1", 2.0), row("1", 2.0), row("2", 4.0)])
    write_run(tmp_path, "b", [row("3", 30.0), row("4", 3.0, defense="other")])
    times = learnt(tmp_path)
    assert times.runs == 2
    assert times.of(FACTS) == 4.0
    assert times.of(FACTS | {"defense": "new"}) == pytest.approx(3.5)
    assert times.of(FACTS | {"attack": "new"}) is None


def test_rows_that_failed_or_cannot_be_read_and_other_machines_teach_nothing(tmp_path):
    folder = write_run(tmp_path, "a", [row("1", 2.0), row("2", 50.0, status="failed"), row("3", None)])
    with (folder / "results.jsonl").open("a") as file:
        file.write('[1]\n{"cell_id": "4"}\n{"cell_id": "5", "cpu')
    write_run(tmp_path, "b", [row("9", 99.0)], machine={"cpu": "another", "cores": 64})
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "manifest.json").write_text("no JSON")
    times = learnt(tmp_path)
    assert (times.runs, times.of(FACTS)) == (1, 2.0)


def seconds_in(words):
    return int(re.match(r"about (\d+) s of CPU time", words)[1])


def test_the_rest_is_what_a_whole_run_took_beyond_its_cells_by_suite_or_else_of_any(tmp_path):
    write_run(tmp_path, "a", [row("1", 2.0), row("2", 4.0)], suite={"name": "s"}, cpu_s=20.0)
    write_run(tmp_path, "b", [row("3", 30.0, suite="t")], suite={"name": "t"}, cpu_s=40.0)
    write_run(tmp_path, "c", [row("4", 3.0)], suite={"name": "s"})
    write_run(tmp_path, "d", [row("5", 3.0)], suite=["s"], cpu_s="20")
    times = learnt(tmp_path)
    assert times.of(FACTS) == 3.0
    assert times.rest("s") == pytest.approx(14.0)
    assert times.rest("t") == pytest.approx(10.0)
    assert times.rest("new") == pytest.approx(12.0)
    assert learnt(tmp_path / "nowhere").rest("s") is None


@pytest.mark.simulations
def test_the_estimate_of_an_equal_run_is_what_the_whole_run_took(assay, suite_file, plan, tmp_path):
    done = assay(suite_file(), folder=tmp_path / "runs" / "first", report=True)
    manifest = json.loads((done.folder / "manifest.json").read_text())
    whole = manifest["cpu_s"]
    assert whole > sum({row.cell_id: row.cpu_s for row in done.records}.values())
    (done.folder / "manifest.json").write_text(json.dumps(manifest | {"cpu_s": whole + 30.0}))
    words = estimate(plan, learnt(tmp_path / "runs"))
    assert seconds_in(words) == pytest.approx(whole + 30.0, abs=0.51)
    assert words.endswith("(learnt from 1 run in runs/)")


@pytest.mark.simulations
def test_a_run_that_was_done_in_parts_does_not_record_its_time(assay, suite_file, tmp_path):
    folder = assay(suite_file()).folder
    fedassay.resume(folder, jobs=1)
    assert "cpu_s" not in json.loads((folder / "manifest.json").read_text())


def test_a_cost_is_this_process_and_every_worker_once():
    cost = Cost()
    for worker, seconds in ((1, 2.0), (2, 1.0), (1, 5.0), (2, 0.5)):
        cost.add_worker(worker, seconds)
    assert cost.seconds() == pytest.approx(6.0, abs=0.5)
    assert Cost(since=0.0).seconds() == pytest.approx(time.process_time(), abs=0.5)


@pytest.mark.processes
def test_workers_tell_what_they_took(assay, suite_file):
    """Two of them load torch, each for more than this process does meanwhile."""
    begun = time.process_time()
    done = assay(suite_file(), jobs=2, report=True)
    here = time.process_time() - begun
    assert json.loads((done.folder / "manifest.json").read_text())["cpu_s"] > here + 1.0
