"""Pieces of a plan's work, extended to the whole: every cell has a time, which grows with the work."""

import math

import pytest
from fedassay.suites.attacking.trial import TrialJob
from fedassay.suites.planning import estimate as module
from fedassay.suites.planning.estimate import Pilot, Times, estimate, expected_seconds, pilot_times

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
