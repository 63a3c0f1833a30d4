"""Rounds on given rows: those of a training with the same rows, and of a naive loop. One place calls hooks."""

import ast
from pathlib import Path

import pytest
import torch
from fedassay.audit.observer import UPLOADS
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.engine import run_federation
from fedassay.fl.message import Message
from fedassay.fl.protection import Protection
from fedassay.fl.replay import ReplayedStreams, frozen_federation, replay_many
from fedassay.fl.rounds import Rounds, given_lots, given_rows
from fedassay.fl.sampling import FixedSize, Poisson, lot_indices
from fedassay.fl.streams import Runs, Streams, normal
from fedassay.fl.training.local import Batch
from tape import Tape

REPLICAS, DIM = 3, 51
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("cohort", [Poisson(0.4), FixedSize(2)], ids=str)
def test_given_updates_have_the_rounds_of_the_training_that_made_them(cohort, make_task, make_plan):
    task, tape, updates = make_task(), Tape(), list[Message]()

    class Kept(DPFedAvgProtection):
        def report(self, rows, context, state, rng):
            updates.append(rows)
            return super().report(rows, context, state, rng)

    protection = Kept(clip_norm=0.1, noise_multiplier=0.5)
    plan = make_plan(task, cohort=cohort, rounds=4)
    batch = Batch(replicas=REPLICAS, block=2, arm=1)
    final = run_federation(task, plan, protection, Streams(5), batch=batch, recorders=[tape])
    trained, turns = [*updates], []
    rounds = Rounds(
        plan=plan,
        protection=protection,
        streams=Streams(5),
        rows=lambda turn: trained[turn.number],
        runs=batch,
        task=task,
        moves=True,
    )
    for turn, event in zip(rounds.each(4), tape.events, strict=True):
        assert turn.context.senders == event.reports.senders
        for name in ("cohort", "aggregate"):
            assert torch.equal(getattr(turn, name), getattr(event, name))
        assert torch.equal(turn.reports.values, event.reports.values)
        assert torch.equal(turn.next_model, event.model)
        turns.append(turn)
    assert torch.equal(rounds.published(turns[-1].next_model, turns[-1].after, 4), final)


def test_given_lots_have_the_reports_of_a_frozen_federation(make_task, make_plan):
    protection = DPSGDProtection(clip_norm=0.5, noise_multiplier=0.7)
    plan = make_plan(make_task(), cohort=Poisson(0.6), lot=Poisson(0.4))
    still = frozen_federation(make_task(), plan, rounds=3, steepness=100.0, sampled=True)
    task, recordings = still.task, replay_many(still, protection, UPLOADS, seed=3, noise=2, replicas=REPLICAS)

    def lot(turn, client, step):
        part = task.parts[client]
        rng = turn.generator("lot", client=client, step=step)
        chosen, real = lot_indices(still.plan.lot.draw(rng, REPLICAS, len(part)))
        return task.network.sample_gradients(turn.sent, task.images[part[chosen]], task.labels[part[chosen]]), real

    rounds = Rounds(
        plan=still.plan,
        protection=protection,
        streams=ReplayedStreams(3, 2),
        rows=given_lots(lot),
        runs=Runs(replicas=REPLICAS),
        task=task,
    )
    for number, turn in enumerate(rounds.each(3)):
        for replica, recording in enumerate(recordings):
            rows = [recording.senders.index(sender) for sender in turn.context.senders]
            assert torch.equal(turn.reports.values[replica].double(), recording.releases[number][rows])
            assert torch.equal(turn.reports.present[replica], recording.present[number][rows])


class Doubled(Protection):
    """Adds noise to reports, counts rounds, and answers the number of samples in a lot."""

    per_sample = True

    def initial_state(self, plan):
        return {"rounds": 0}

    def close_round(self, aggregate, context, state):
        return {"rounds": state["rounds"] + 1}

    def local_query(self, gradients, present, client, context, state, rng):
        return present.sum(1, keepdim=True).float()

    def report(self, updates, context, state, rng):
        return updates.with_values(updates.values + (1 + state["rounds"]) * normal(rng, tuple(updates.values.shape)))


@pytest.fixture
def plan(make_task, make_plan):
    return make_plan(make_task(), algorithm=FedSGD(learning_rate=0.5))


def test_a_naive_loop_over_given_rows(plan):
    """Without a task, and with a row for each client whether or not it takes part."""
    rows = torch.arange(REPLICAS * 4 * DIM).float().reshape(REPLICAS, 4, DIM)
    nobody = torch.zeros(REPLICAS, 4, dtype=torch.bool)
    nobody[:, 2] = True
    rounds = Rounds(
        plan=plan,
        protection=Doubled(),
        streams=Streams(1),
        rows=given_rows(rows),
        runs=Runs(replicas=REPLICAS),
        invited=lambda turn: nobody,
        all_rows=True,
    )
    for number, turn in enumerate(rounds.each(2)):
        noise = normal(Streams(1).generator("report", round=number), (REPLICAS, 4, DIM))
        expected = torch.zeros_like(rows)
        expected[:, 2] = rows[:, 2] + (1 + number) * noise[:, 2]
        assert torch.equal(turn.reports.values, expected)
        assert torch.equal(turn.aggregate, expected[:, 2])
        assert turn.model.abs().sum() == 0
        assert turn.after == {"rounds": number + 1}


def test_a_naive_sum_of_given_lots_and_its_answers(plan):
    gradients = torch.ones(REPLICAS, 2, DIM)
    real = torch.tensor([[True, True], [True, False], [False, False]])
    rounds = Rounds(
        plan=plan,
        protection=Doubled(),
        streams=Streams(1),
        rows=given_lots(lambda turn, client, step: (gradients, real)),
        runs=Runs(replicas=REPLICAS),
    )
    (turn,) = rounds.each(1)
    assert torch.equal(turn.updates.values, -torch.tensor([1.0, 1.0, 0.0]).view(-1, 1, 1).expand(-1, 4, DIM))
    assert torch.equal(turn.updates.side["query"], real.sum(1).float().view(-1, 1, 1, 1).expand(-1, 4, 1, 1))


def test_who_asks_for_reports_alone_runs_no_hook_of_the_server(plan):
    class Client(Doubled):
        def aggregate(self, *given):
            raise AssertionError

        query = close_round = channel = broadcast = participates = aggregate

    rows = torch.zeros(REPLICAS, 4, DIM)
    rounds = Rounds(
        plan=plan,
        protection=Client(),
        streams=Streams(1),
        rows=lambda turn: Message(
            values=rows, present=torch.ones(REPLICAS, 4, dtype=torch.bool), senders=turn.context.senders
        ),
        runs=Runs(replicas=REPLICAS),
        all_rows=True,
        closes=False,
    )
    assert all(turn.reports.values.any() for turn in rounds.each(2))


def test_no_file_outside_of_fl_calls_hooks():
    """A defense may pass a call on to another defense."""
    hooks = {name for name in vars(Protection) if not name.startswith("_")} - {"law", "numbers", "per_sample", "sums"}
    folders = ("adapters", "attacks", "audit", "checks", "cli", "reports", "suites")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]

    def calls(file):
        text = file.read_text()
        # Parsing each file takes seconds.
        if not any(f".{hook}(" in text for hook in hooks):
            return False
        made = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        found = [node for node in made if isinstance(node.func, ast.Attribute) and node.func.attr in hooks]
        ends = [" ".join([node.func.attr, *map(ast.unparse, node.args[-2:])]) for node in found]
        return any("state" in words for words in ends)

    assert len(files) > 100
    assert not [str(file.relative_to(ROOT)) for file in files if calls(file)]
