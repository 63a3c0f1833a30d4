"""Client blocks: many clients' gradients equal those computed one after the other; few clients are not grouped."""

from dataclasses import replace

import pytest
import torch
from fedassay.defenses.without_dp.none import Undefended
from fedassay.fl.algorithms.algorithm import FedAvg, FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.partitions.partitions import IID
from fedassay.fl.partitions.sampling import Full, Poisson
from fedassay.fl.plan import Plan
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from fedassay.fl.training import client_blocks, local
from fedassay.fl.training.client_blocks import block_gradients, uses_blocks


@pytest.fixture(scope="module")
def task():
    return build_task(
        load_dataset("digits"), model="logistic", partition=IID(), clients=130, samples=400, streams=Streams(0)
    )


def plan_of(task, **changes):
    fields = {"cohort": Full(), "lot": Full(), "algorithm": FedSGD(learning_rate=1.0), **changes}
    return Plan(sizes=task.sizes, rounds=3, layout=task.network.layout, **fields)


def test_blocks_give_what_one_client_after_the_other_gives(task, monkeypatch):
    monkeypatch.setattr(client_blocks, "_BLOCK", 16)
    model = task.network.initial(Streams(1).generator("init")).unsqueeze(0)
    found = list(block_gradients(task, model, range(task.clients)))
    assert len(found) == task.clients
    for client, gradient in enumerate(found):
        part = task.parts[client]
        rows = task.network.sample_gradients(model, task.images[part][None], task.labels[part][None])
        torch.testing.assert_close(gradient, rows.mean(1))


@pytest.mark.parametrize("cohort", [Full(), Poisson(0.5)])
def test_a_federation_in_blocks_gives_the_same_models_and_lots(task, make_tape, cohort, monkeypatch):
    plan = plan_of(task, cohort=cohort)
    protection = Undefended().prepare(plan).protection
    tapes = make_tape(), make_tape()
    blocks = run_federation(task, plan, protection, Streams(0), recorders=tapes[:1])
    monkeypatch.setattr(local, "uses_blocks", lambda *_: False)
    torch.testing.assert_close(blocks, run_federation(task, plan, protection, Streams(0), recorders=tapes[1:]))
    assert tapes[0].masks() == tapes[1].masks()


def test_only_many_clients_of_one_plain_step_are_grouped(task):
    assert uses_blocks(task, plan_of(task), 1)
    assert not uses_blocks(task, plan_of(task), 2)
    assert not uses_blocks(task, plan_of(task, lot=Poisson(0.5)), 1)
    assert not uses_blocks(task, plan_of(task, algorithm=FedAvg(learning_rate=1.0, local_steps=1)), 1)
    few = replace(task, parts=task.parts[:99])
    assert not uses_blocks(few, plan_of(few), 1)
