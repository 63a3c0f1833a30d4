"""Canaries of data and canary sets: a planted sample is treated like any sample, and coins decide which are in."""

import pytest
import torch
from fedassay.audit.claim import Unit
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.canary import Canary, CanarySet, DataCanary
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import FixedSize, Full, Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch

IMAGE = torch.linspace(0, 1, 16).reshape(1, 1, 4, 4)
WRONG, RIGHT = torch.tensor([2]), torch.tensor([0])
NOISY = DPSGDProtection(clip_norm=0.5, noise_multiplier=0.7)


@pytest.fixture
def run(make_task, make_plan, make_tape):
    """(protection, canary, world, plan changes) -> events, task."""

    def go(protection, planted, *, world=1, replicas=1, inert=0, stop_after=None, **changes):
        task, tape = make_task((3, 5), inert=inert), make_tape()
        plan = make_plan(task, **({"algorithm": FedSGD(learning_rate=0.5)} | changes))
        batch = Batch(replicas=replicas, world=world)
        run_federation(
            task, plan, protection, Streams(9), batch=batch, canary=planted, recorders=[tape], stop_after=stop_after
        )
        return tape.events, task

    return go


def one_gradient(task, model, label):
    return task.network.sample_gradients(model, IMAGE[None], label[None])[0, 0]


@pytest.mark.parametrize("lot", [Full(), Poisson(0.5), FixedSize(2)], ids=str)
@pytest.mark.parametrize("protection", [NOISY, Protection()], ids=["noised", "undefended"])
def test_a_sample_of_data_equals_its_gradient_given_as_a_row(run, protection, lot):
    """One round, for the row stays what it is and the sample's gradient moves with the model."""
    sample = DataCanary(unit=Unit.SAMPLE, images=IMAGE, present=WRONG, client=1)
    options = {"replicas": 20, "rounds": 1, "lot": lot}
    (given,), task = run(protection, sample, **options)
    row = one_gradient(task, given.broadcast[:1], WRONG)
    (planted,), _ = run(protection, Canary(unit=Unit.SAMPLE, present=row, client=1), **options)
    torch.testing.assert_close(given.model, planted.model)
    (without,), _ = run(protection, sample, **(options | {"lot": Full()}), world=0)
    (within,), _ = run(protection, sample, **(options | {"lot": Full()}))
    assert not torch.allclose(within.reports.values[:, 1], without.reports.values[:, 1])


def test_a_sample_of_data_has_the_gradient_of_each_rounds_model(run):
    rows = []

    class Spy(Protection):
        per_sample = True

        def local_step(self, gradients, present, client, context, state, rng):
            if client == 1:
                rows.append(gradients[0, -1])
            return super().local_step(gradients, present, client, context, state, rng)

    events, task = run(Spy(), DataCanary(unit=Unit.SAMPLE, images=IMAGE, present=WRONG, client=1))
    assert len(rows) == len(events) == 3
    for row, event in zip(rows, events, strict=True):
        torch.testing.assert_close(row, one_gradient(task, event.broadcast, WRONG))
    assert not torch.allclose(rows[0], rows[2])


def test_undefended_a_sample_of_data_is_one_of_six_in_its_clients_mean(run):
    (event,), task = run(Protection(), DataCanary(unit=Unit.SAMPLE, images=IMAGE, present=WRONG, client=1), rounds=1)
    part = task.parts[1]
    own = task.network.sample_gradients(event.broadcast, task.images[part][None], task.labels[part][None])[0].sum(0)
    mean = (own + one_gradient(task, event.broadcast, WRONG)) / 6
    torch.testing.assert_close(event.reports.values[0, 1], -mean)
    assert [tuple(masks[0].shape) for masks in event.lots.values()] == [(1, 3), (1, 5)]


def test_a_client_of_data_trains_its_local_steps_like_any_client(run):
    client = DataCanary(unit=Unit.CLIENT, images=IMAGE.expand(4, 1, 4, 4), present=WRONG.expand(4))
    silent = DPFedAvgProtection(clip_norm=100.0, noise_multiplier=0.0)
    (event,), task = run(silent, client, rounds=1, algorithm=FedAvg(learning_rate=0.3, local_steps=2))
    local = event.broadcast
    for _ in range(2):
        local = local - 0.3 * one_gradient(task, local, WRONG)
    assert event.reports.senders == (0, 1, 2)
    torch.testing.assert_close(event.reports.values[0, 2], (local - event.broadcast)[0])
    (without,), _ = run(silent, client, rounds=1, world=0)
    assert without.reports.senders == (0, 1)


def test_a_replaced_client_of_data_holds_its_other_labels_in_arm_0(run):
    client = DataCanary(unit=Unit.REPORT, images=IMAGE, present=WRONG, absent=RIGHT)
    for world, label in ((0, RIGHT), (1, WRONG)):
        (event,), task = run(Protection(), client, rounds=1, world=world)
        torch.testing.assert_close(event.reports.values[0, 2], -one_gradient(task, event.broadcast, label))


def canaries(unit, *coins, replaced=False, inert=3, client=0):
    return CanarySet(unit=unit, length=2.0, dim=51 + inert, coins=torch.tensor(coins), replaced=replaced, client=client)


def test_a_canary_set_of_clients_keeps_its_numbers_and_only_those_in_are_drawn(run):
    events, _ = run(Protection(), canaries(Unit.CLIENT, True, False, True), inert=3)
    for event in events:
        assert event.reports.senders == (0, 1, 2, 4)
        assert event.reports.values[0, 2:, -3:].tolist() == [[2.0, 0.0, 0.0], [0.0, 0.0, 2.0]]


def test_a_canary_set_of_reports_shows_all_turned_by_their_coins(run):
    events, _ = run(Protection(), canaries(Unit.REPORT, True, False, True, replaced=True), inert=3)
    assert events[0].reports.senders == (0, 1, 2, 3, 4)
    assert events[0].reports.values[0, 2:, -3:].diagonal().tolist() == [2.0, -2.0, 2.0]


def test_canary_clients_are_made_one_at_a_time(run, monkeypatch):
    """All rows of a thousand canaries on a model of 11 million weights would take 45 GB."""
    sizes, made = [], CanarySet._rows_of
    monkeypatch.setattr(CanarySet, "_rows_of", lambda self, wanted: sizes.append(len(wanted)) or made(self, wanted))
    run(Protection(), canaries(Unit.CLIENT, True, False, True), inert=3, rounds=1)
    assert sizes == [1, 1]


@pytest.mark.parametrize("replaced", [False, True])
def test_one_row_of_a_canary_set_is_that_of_all_rows(replaced):
    planted = canaries(Unit.CLIENT, True, False, True, replaced=replaced)
    rows = planted.rows(1)
    assert len(rows) == len(planted.there(1))
    assert torch.equal(rows, torch.stack([planted.row(place, 1) for place in range(len(rows))]))


def test_a_canary_set_of_samples_is_clipped_one_by_one(run):
    """Clip norm .5 over the five samples that client 1 is expected to draw; learning rate apart."""
    silent = DPSGDProtection(clip_norm=0.5, noise_multiplier=0.0)
    events, _ = run(silent, canaries(Unit.SAMPLE, True, False, True, client=1), inert=3)
    torch.testing.assert_close(events[0].reports.values[0, 1, -3:], torch.tensor([-0.1, 0.0, -0.1]))


def test_what_a_canary_set_shows_does_not_tell_its_coins():
    planted = canaries(Unit.CLIENT, True, False, False)
    assert planted.shown.coins.tolist() == [True, True, True]
    assert planted.there(1) == (0,)


def test_fewer_rounds_are_the_first_of_the_same_run(run):
    whole, _ = run(NOISY, None, lot=Poisson(0.5))
    cut, _ = run(NOISY, None, lot=Poisson(0.5), stop_after=2)
    assert len(cut) == 2
    assert all(torch.equal(one.model, other.model) for one, other in zip(cut, whole, strict=False))
    for rounds in (0, 4):
        with pytest.raises(ValueError, match=rf"stop_after must be in 1\.\.3 \(rounds of the plan\), got {rounds}"):
            run(NOISY, None, stop_after=rounds)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DataCanary(unit=Unit.LABEL, images=IMAGE, present=WRONG), "a user, a client or a report, got label"),
        (
            lambda: DataCanary(unit=Unit.CLIENT, images=IMAGE[0], present=WRONG),
            r"images must have shape \(n, c, h, w\)",
        ),
        (
            lambda: DataCanary(unit=Unit.SAMPLE, images=IMAGE.expand(2, 1, 4, 4), present=WRONG.expand(2)),
            "n = 1 for a sample",
        ),
        (
            lambda: DataCanary(unit=Unit.CLIENT, images=IMAGE, present=torch.ones(1)),
            r"present labels must be int64 of shape \(1,\)",
        ),
        (lambda: DataCanary(unit=Unit.REPORT, images=IMAGE, present=WRONG, absent=torch.ones(2)), "absent labels"),
        (lambda: CanarySet(unit=Unit.CLIENT, length=0.0, dim=3, coins=torch.tensor([True])), "length .*must be > 0"),
        (
            lambda: CanarySet(unit=Unit.CLIENT, length=1.0, dim=3, coins=torch.ones(2)),
            r"coins .*must be booleans of shape \(m,\)",
        ),
    ],
)
def test_what_no_client_could_hold_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_canary_set_needs_an_inert_weight_each_and_a_holder(run):
    with pytest.raises(
        ValueError, match=r"needs 54 weights, 3 of them inert .* the plan has 53 weights, 2 of them inert"
    ):
        run(Protection(), canaries(Unit.CLIENT, True, True, True), inert=2)
    with pytest.raises(ValueError, match=r"client must be in 0\.\.1, got 5"):
        run(Protection(), canaries(Unit.SAMPLE, True, True, True, client=5), inert=3)
