"""What a plan will take: the medians of earlier runs, of cells like its own, and nothing where there are none."""

import json
import re

import pytest
from fedassay.suites.environment import hardware
from fedassay.suites.estimate import Times, estimate, learnt
from fedassay.suites.resolve import resolve
from fedassay.suites.run_plan import plan_run
from fedassay.suites.suite_file import load_suite


@pytest.fixture
def plan(suite_file):
    spec, source = load_suite(str(suite_file()))
    return plan_run(resolve(spec, source, seed=0))


def write_run(place, name, rows, machine=None):
    folder = place / name
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"hardware": machine or hardware()}))
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


def test_without_runs_nothing_is_known(tmp_path, plan):
    times = learnt(tmp_path / "nowhere")
    assert times == Times(exact={}, alike={}, runs=0)
    assert estimate(plan, times).startswith("not known yet")


def test_the_estimate_of_a_run_is_what_it_took(assay, suite_file, plan, tmp_path):
    """The sum of all cells, each with its own time: to the second, as it is printed."""
    done = assay(suite_file(), folder=tmp_path / "runs" / "first")
    times = {row.cell_id: row.cpu_s for row in done.records}
    audits = {audit.cell.cell_id for audit in plan.audits}
    total = sum(seconds for cell, seconds in times.items() if cell not in audits)
    words = estimate(plan, learnt(tmp_path / "runs"))
    assert int(re.match(r"about (\d+) s of CPU time", words)[1]) == pytest.approx(total, abs=0.51)
    assert "learnt from 1 run in runs/" in words
    assert "nothing is known" not in words
