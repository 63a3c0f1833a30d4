"""What a plan will take: the medians of earlier runs, of cells like its own, and nothing where there are none."""

import json
import math
import re
import time

import fedassay
import pytest
from fedassay.suites.attacking.trial import TrialJob
from fedassay.suites.planning import estimate as module
from fedassay.suites.planning.estimate import Pilot, Times, estimate, expected_seconds, learnt, pilot_times
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
    assert words.endswith("(estimated from 1 run in runs/)")


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


NOTHING = Times(exact={}, alike={}, rests={}, runs=0)


def test_two_pieces_extend_to_the_whole_on_a_line():
    # Half a second whatever the rounds, and a quarter per round: of 1 and 3 rounds .75 and 1.25, of 20 rounds 5.5.
    assert module._extended(0.75, 1.25, 20, 3) == pytest.approx(5.5)
    assert module._extended(0.75, 1.25, 1, 3) == 0.75
    # Noise of the clock must not make a larger piece cheaper.
    assert module._extended(1.0, 0.9, 100, 3) == 1.0


@pytest.mark.simulations
def test_every_cell_of_a_small_plan_is_timed_and_nothing_is_left_behind(planned, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = planned()
    before = sorted(tmp_path.iterdir())
    pilot = pilot_times(plan)
    assert set(pilot.cells) == {cell.cell_id for cell in plan.cells}
    assert min(pilot.cells.values()) >= 0
    assert pilot.rest > 0
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.simulations
def test_ten_times_the_runs_of_an_audit_take_ten_times_as_long(planned, monkeypatch):
    # The clock is replaced by a count of what is run: 2 ms per run and round.
    monkeypatch.setattr(module, "_run_time", lambda block, rounds: 0.002 * block.replicas)
    few, many = (planned("replicas = 40", f"replicas = {count}") for count in (40, 400))
    times = [sum(pilot_times(plan).cells[block.cell.cell_id] for block in plan.blocks) for plan in (few, many)]
    assert times[1] == pytest.approx(10 * times[0])


@pytest.mark.parametrize("rounds", [1, 2, 3, 8])
def test_runs_of_an_audit_take_the_time_of_their_rounds(planned, monkeypatch, rounds):
    monkeypatch.setattr(module, "_run_time", lambda block, rounds: 0.002 * block.replicas * rounds)
    plan = planned("rounds = 2", f"rounds = {rounds}")
    found = module._of_blocks(plan, math.inf)
    assert plan.blocks
    for block in plan.blocks:
        assert found[module._block_kind(block)] * block.runs == pytest.approx(0.002 * block.replicas * rounds)


def test_earlier_runs_count_before_a_pilot(planned):
    plan = planned()
    cell = plan.cells[0]
    pilot = Pilot(cells={one.cell_id: 1.0 for one in plan.cells}, rest=5.0)
    key = tuple(cell.facts.get(name) for name in ("suite", "federation", "defense", "role", "attack"))
    learnt = Times(exact={key: 7.0}, alike={}, rests={}, runs=1)
    assert expected_seconds(plan, learnt, pilot)[cell.cell_id] == 7.0
    assert expected_seconds(plan, NOTHING, pilot)[cell.cell_id] == 1.0
    assert estimate(plan, NOTHING, pilot).startswith(f"about {len(plan.cells) + 5} s of CPU time")


def test_without_time_no_piece_is_made(planned, monkeypatch):
    monkeypatch.setattr(TrialJob, "run", lambda *_: pytest.fail("a piece was timed"))
    pilot = pilot_times(planned(), limit=0.0)
    assert not any(cell.cell_id in pilot.cells for trial in planned().trials for cell in trial.cells)


def test_of_a_large_model_one_piece_is_made_and_multiplied(planned, monkeypatch):
    made = []

    def times_of(job):
        made.append(job.federation.rounds)
        return {cell.cell_id: 60.0 for cell in job.cells}

    monkeypatch.setattr(module, "_times_of", times_of)
    job = planned("rounds = 2", "rounds = 20").trials[0]
    found = module._of_trial(job, end=0.0)
    assert made == [1]
    assert found[job.cells[0].cell_id] == 60.0 * 20
