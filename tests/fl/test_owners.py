"""Owners: hooks receive the owner of each row, and a planted user has rows at several clients."""

import dataclasses

import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.canary import Canary, CanarySet, DataCanary
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Full, Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch

IMAGES = torch.linspace(0, 1, 32).reshape(2, 1, 4, 4)


class Spy(Protection):
    """No protection; keeps what each call of ``local_step`` receives."""

    per_sample = True

    def __init__(self):
        self.calls = []

    def local_step(self, gradients, present, client, context, state, rng):
        self.calls.append((client, gradients.clone(), present.clone(), context.owners))
        return super().local_step(gradients, present, client, context, state, rng)


@pytest.fixture
def run(make_task, make_plan):
    """(protection, planted, world) -> the task; one round of FedSGD at two clients with 3 and 5 samples."""

    def go(protection, planted=None, *, world=1, replicas=1, owners=True, inert=0, **changes):
        task = make_task((3, 5), inert=inert)
        task = task if owners else dataclasses.replace(task, owners=None)
        plan = make_plan(task, **({"algorithm": FedSGD(learning_rate=0.5), "rounds": 1} | changes))
        run_federation(task, plan, protection, Streams(9), batch=Batch(replicas=replicas, world=world), canary=planted)
        return task

    return go


def test_every_row_of_a_sampled_lot_comes_with_its_owner(run):
    spy = Spy()
    task = run(spy, replicas=20, lot=Poisson(0.5))
    assert len(spy.calls) == 2
    model = task.initial(Streams(9)).expand(1, -1)
    for client, gradients, present, owners in spy.calls:
        part = task.parts[client]
        own = task.network.sample_gradients(model, task.images[part][None], task.labels[part][None])[0]
        for row, owner in zip(gradients[present], owners[present], strict=True):
            (place,) = torch.isclose(own, row, atol=1e-6).all(1).nonzero().flatten().tolist()
            assert owner == task.owners[part][place]


def test_without_known_owners_hooks_receive_none(run):
    spy = Spy()
    assert run(spy, owners=False).clients_per_user is None
    assert [owners for _, _, _, owners in spy.calls] == [None, None]


def test_a_planted_user_has_equal_rows_at_its_clients_alone_and_is_an_owner_of_its_own(run):
    row = torch.arange(51.0)
    planted = Canary(unit=Unit.USER, present=row, clients=1, copies=3)
    assert (planted.holders, planted.adjacency) == ((0,), Adjacency.ADD_REMOVE)
    with_it, without = Spy(), Spy()
    run(with_it, planted)
    run(without, planted, world=0)
    (_, gradients, present, owners), (_, _, _, others) = with_it.calls
    assert gradients[0, -3:].tolist() == [row.tolist()] * 3
    assert (present.shape, owners[0, -3:].tolist(), int(others.min())) == ((1, 6), [-1, -1, -1], 0)
    assert [gradients.shape[1] for _, gradients, _, _ in without.calls] == [3, 5]


def test_a_planted_user_of_data_equals_its_gradients_given_as_rows(run):
    labels = torch.tensor([2, 0])
    data = DataCanary(unit=Unit.USER, images=IMAGES, present=labels, clients=2)
    spy = Spy()
    task = run(spy, data)
    model = task.initial(Streams(9)).expand(1, -1)
    rows = task.network.sample_gradients(model, IMAGES[None], labels[None])[0]
    for _, gradients, _, owners in spy.calls:
        torch.testing.assert_close(gradients[0, -2:], rows)
        assert owners[0, -2:].tolist() == [-1, -1]
        assert int(owners[0, :-2].min()) >= 0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Canary(unit=Unit.USER, present=torch.ones(51), clients=3), r"user canary's clients .* 1\.\.2, got 3"),
        (lambda: Canary(unit=Unit.USER, present=torch.ones(51), clients=0), r"user canary's clients .* 1\.\.2, got 0"),
        (lambda: Canary(unit=Unit.USER, present=torch.ones(51), place=0), "place of a canary that is a client"),
        (lambda: Canary(unit=Unit.USER, present=torch.ones(51), copies=0), "copies of a canary's row must be >= 1"),
        (lambda: Canary(unit=Unit.SAMPLE, present=torch.ones(51), copies=2), "and 1 for one sample, got 2"),
        (
            lambda: CanarySet(unit=Unit.USER, length=1.0, dim=51, coins=torch.tensor([True])),
            "must be samples, clients or reports, got users",
        ),
    ],
)
def test_a_user_that_no_client_could_hold_is_refused(run, build, message):
    with pytest.raises(ValueError, match=message):
        run(Protection(), build())


def test_the_plan_knows_at_how_many_clients_one_user_has_samples(make_task, make_plan):
    task = dataclasses.replace(make_task((2, 2, 2)), owners=torch.tensor([7, 7, 7, 8, 9, 9]))
    task = dataclasses.replace(task, parts=tuple(torch.tensor(part) for part in ([0, 3], [1, 4], [2, 5])))
    assert task.clients_per_user == 3
    assert task.restricted(clients=2, samples=1).clients_per_user == 2
    plan = make_plan(task, lot=Full())
    assert (plan.clients_per_user, plan.resized((5,)).clients_per_user) == (3, None)
    with pytest.raises(ValueError, match="a user has samples at 3 clients of the task, and at 2 at most by the plan"):
        run_federation(task, dataclasses.replace(plan, clients_per_user=2), Protection(), Streams(0))
    with pytest.raises(ValueError, match=r"clients_per_user must be in 1\.\.3"):
        dataclasses.replace(plan, clients_per_user=4)
