"""Cohorts without replacement: every client exactly once per pass, in an order of its own per pass, replica and arm."""

from dataclasses import dataclass, replace

import pytest
import torch
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Epoch
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch

ROUNDS, PASS, CLIENTS = 8, 4, 8


def presences(make_task, make_plan, make_tape, *, cohort=None, batch=None, **run):
    """Who took part: booleans ``(rounds, replicas, clients)``."""
    task, tape = make_task((2,) * CLIENTS), make_tape()
    plan = make_plan(task, rounds=ROUNDS, cohort=cohort or Epoch(PASS))
    run_federation(task, plan, Protection(), Streams(3), batch=batch or Batch(replicas=3), recorders=[tape], **run)
    rows = []
    for event in tape.events:
        there = torch.zeros(event.reports.present.shape[0], CLIENTS, dtype=torch.bool)
        there[:, list(event.reports.senders)] = event.reports.present
        rows.append(there)
    return torch.stack(rows)


def is_one_pass_after_the_other(there):
    """Whether every client takes part exactly once in every pass of every replica."""
    return bool((there.reshape(-1, PASS, *there.shape[1:]).sum(1) == 1).all())


@dataclass(frozen=True)
class OrderPerRound(Epoch):
    """A planted bug: every round draws an order of its own, which is sampling with replacement across rounds."""

    def pass_start(self, round):
        return round

    def draw(self, rng, replicas, n, turn=0):
        return super().draw(rng, replicas, n, 0)


def test_every_client_takes_part_exactly_once_per_pass(make_task, make_plan, make_tape):
    there = presences(make_task, make_plan, make_tape)
    assert there.sum(2).unique().tolist() == [CLIENTS // PASS]
    assert is_one_pass_after_the_other(there)


def test_an_order_per_round_is_caught(make_task, make_plan, make_tape):
    there = presences(make_task, make_plan, make_tape, cohort=OrderPerRound(PASS))
    assert there.sum(2).unique().tolist() == [CLIENTS // PASS]
    assert not is_one_pass_after_the_other(there)


def test_two_passes_replicas_blocks_and_arms_have_other_orders(make_task, make_plan, make_tape):
    orders = [
        there[start : start + PASS, replica].flatten().tolist()
        for block, world in ((0, 0), (0, 1), (1, 0))
        for there in [
            presences(make_task, make_plan, make_tape, batch=Batch(replicas=3, block=block, world=world)),
        ]
        for replica in range(3)
        for start in (0, PASS)
    ]
    # 2,520 orders of 8 clients in 4 pairs: 18 of them differ with probability .94, and this seed's do.
    assert len({tuple(order) for order in orders}) == len(orders)


@pytest.mark.parametrize("stop", [1, 3, 4, 6])
def test_a_resumed_run_goes_on_with_the_pass_that_was_interrupted(make_task, make_plan, make_tape, stop):
    states = []
    whole = presences(make_task, make_plan, make_tape, on_round_end=states.append)
    rest = presences(make_task, make_plan, make_tape, resume_from=states[stop - 1])
    assert torch.equal(rest, whole[stop:])


def test_a_pass_changes_no_other_draw(make_task, make_plan, make_tape):
    task, full, passes = make_task((2,) * CLIENTS), make_tape(), make_tape()
    plan = make_plan(task, rounds=2)
    for tape, cohort in ((full, plan.cohort), (passes, Epoch(1))):
        run_federation(task, replace(plan, cohort=cohort), Protection(), Streams(3), recorders=[tape])
    assert full.masks() == passes.masks()
