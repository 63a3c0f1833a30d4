"""Canary: it enters as data, is drawn, clipped, noised and summed like other rows, and its release follows the law.

Canaries of data and canary sets: a planted sample is treated like any sample, and coins decide which are in.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Unit
from fedassay.audit.observer import UPLOADS
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.canary import Canary, CanarySet, DataCanary
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import FixedSize, Full, Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch
from scipy import stats

CLIP = 0.5
DIM = 52  # 51 weights and the inert one, on which canaries stand.


def canary(unit=Unit.SAMPLE, *, norm=10 * CLIP, client=0, opposite=False):
    row = torch.zeros(DIM)
    row[-1] = norm
    return Canary(unit=unit, present=row, absent=-row if opposite else None, client=client)


class Spy(Protection):
    """Keeps each local step's client, gradients and mask."""

    per_sample = True

    def __init__(self):
        self.steps = []

    def local_step(self, gradients, present, client, context, state, rng):
        self.steps.append((client, gradients, present))
        return super().local_step(gradients, present, client, context, state, rng)


@pytest.fixture
def run(make_task, make_plan, make_tape):
    """(protection, canary, arm, plan changes) -> final models, events and the plan."""

    def go(protection, planted, *, arm=1, replicas=1, inert=1, stop_after=None, **changes):
        task, tape = make_task((3, 5), inert=inert), make_tape()
        plan = make_plan(task, **({"algorithm": FedSGD(learning_rate=0.5)} | changes))
        batch, given = Batch(replicas=replicas, arm=arm), {"canary": planted, "stop_after": stop_after}
        final = run_federation(task, plan, protection, Streams(9), batch=batch, recorders=[tape], **given)
        return final, tape.events, plan

    return go


@pytest.mark.parametrize(("lot", "rate"), [(Poisson(0.3), 0.3), (FixedSize(2), 0.5), (Full(), 1.0)], ids=str)
def test_a_sample_canary_stands_last_in_its_clients_rows_and_is_drawn_like_any_sample(run, lot, rate):
    spy, planted = Spy(), canary(client=0)
    _, events, _ = run(spy, planted, arm=1, replicas=700, lot=lot, algorithm=FedAvg(learning_rate=0.1, local_steps=2))
    own = [(gradients, present) for client, gradients, present in spy.steps if client == 0]
    assert len(own) == 3 * 2
    assert all(bool((gradients[:, -1] == planted.present).all()) for gradients, _ in own)
    drawn = torch.cat([present[:, -1] for _, present in own]).double()
    others = torch.cat([mask for event in events for mask in event.lots[0]]).double()
    # 4,200 draws, five standard errors; FixedSize(2) draws 2 of its 3 samples and the canary: half.
    error = 5 * (rate * (1 - rate) / len(drawn)) ** 0.5
    assert abs(float(drawn.mean()) - rate) <= error
    assert float((others.mean(0) - rate).abs().max()) <= error
    if isinstance(lot, FixedSize):
        assert bool((drawn + others.sum(1) == 2).all())
    if isinstance(lot, Poisson):
        assert abs(np.corrcoef(drawn, others.sum(1))[0, 1]) < 5 / len(drawn) ** 0.5


def test_a_sample_canary_is_in_no_other_clients_rows_and_in_none_of_arm_0(run):
    planted = canary(client=0)
    for arm in (0, 1):
        spy = Spy()
        run(spy, planted, arm=arm, lot=Full())
        widths = {client: gradients.shape[1] for client, gradients, _ in spy.steps}
        assert widths == {0: 3 + arm, 1: 5}
        found = {client for client, gradients, _ in spy.steps if gradients[..., -1].any()}
        assert found == ({0} if arm else set())


def test_lots_name_the_clients_samples_without_the_canary(run):
    _, events, _ = run(Protection(), canary(client=1), arm=1, lot=Full())
    assert [tuple(event.lots[1][0].shape) for event in events] == [(1, 5)] * 3


@pytest.mark.parametrize("local_steps", [1, 3])
def test_dp_sgd_clips_a_sample_canary_to_the_clip_norm(run, local_steps):
    algorithm = FedAvg(learning_rate=0.2, local_steps=local_steps)
    silent = DPSGDProtection(clip_norm=CLIP, noise_multiplier=0.0)
    for arm, norm in ((0, 0.0), (1, CLIP)):
        _, events, _ = run(silent, canary(client=1), arm=arm, algorithm=algorithm)
        seen = events[0].reports.values[0, :, -1]
        torch.testing.assert_close(seen, torch.tensor([0.0, -0.2 * local_steps * norm / 5]))


def test_a_canary_shorter_than_the_clip_norm_enters_whole(run):
    silent = DPSGDProtection(clip_norm=CLIP, noise_multiplier=0.0)
    _, events, _ = run(silent, canary(norm=0.1, client=1), arm=1)
    assert events[0].reports.values[0, 1, -1].item() == pytest.approx(-0.1 / 5)


def test_without_a_defense_a_sample_canary_is_one_sample_in_the_mean(run):
    _, events, _ = run(Protection(), canary(client=1), arm=1)
    assert events[0].reports.values[0, 1, -1].item() == pytest.approx(-10 * CLIP / 6)


def test_a_sample_canary_is_out_where_its_client_is(run):
    final, events, _ = run(Protection(), canary(client=1), arm=1, replicas=60, cohort=Poisson(0.4), rounds=1)
    event = events[0]
    came = event.reports.present[:, event.reports.senders.index(1)]
    assert 0 < int(came.sum()) < 60
    assert torch.equal(final[:, -1] != 0, came)


@pytest.mark.parametrize("unit", [Unit.CLIENT, Unit.REPORT])
def test_a_client_canary_is_one_more_client_drawn_at_the_cohort_rate(run, unit):
    planted = canary(unit)
    _, events, _ = run(Protection(), planted, arm=1, replicas=1000, cohort=Poisson(0.4))
    reports = [event.reports for event in events]
    assert [message.senders for message in reports] == [(0, 1, 2)] * 3
    present = torch.stack([message.present for message in reports])
    # 3,000 draws a row, five standard errors.
    assert float((present.double().mean((0, 1)) - 0.4).abs().max()) < 5 * (0.24 / 3000) ** 0.5
    for message in reports:
        assert torch.equal(message.values[:, 2], message.present[:, 2:3] * planted.present)


def test_a_client_canary_is_clipped_by_dp_fedavg_and_summed_with_the_others(run):
    silent = DPFedAvgProtection(clip_norm=CLIP, noise_multiplier=0.0)
    for arm in (0, 1):
        _, events, plan = run(silent, canary(Unit.CLIENT), arm=arm)
        assert events[0].reports.senders == ((0, 1, 2) if arm else (0, 1))
        assert events[0].aggregate[0, -1].item() == pytest.approx(arm * CLIP / 2)
        assert plan.expected_cohort == 2


def test_a_replaced_canary_shows_its_other_row_in_arm_0(run):
    planted = canary(Unit.REPORT, opposite=True)
    for arm, row in ((0, planted.absent), (1, planted.present)):
        _, events, _ = run(Protection(), planted, arm=arm)
        for event in events:
            assert event.reports.senders == (0, 1, 2)
            assert torch.equal(event.reports.values[0, 2], row)


def test_the_canary_changes_only_its_own_weight(run):
    """It stands on an unused weight: what the others compute is the same with and without it."""
    silent = DPSGDProtection(clip_norm=CLIP, noise_multiplier=0.0)
    with_it, without = (run(silent, canary(client=1), arm=arm)[0] for arm in (1, 0))
    torch.testing.assert_close(with_it[:, :-1], without[:, :-1], rtol=0, atol=1e-6)
    assert without[0, -1] == 0


def test_dp_sgd_uploads_minus_the_drawn_samples_contributions_are_noise_of_the_law(make_task, make_plan, make_tape):
    """The worst-case adversary's subtraction: in every coordinate, from the recorded lots."""
    task, tape = make_task((6, 5)), make_tape()
    plan = make_plan(task, lot=Poisson(0.5), algorithm=FedSGD(learning_rate=0.5), rounds=1)
    defended = DPSGDProtection(clip_norm=CLIP, noise_multiplier=0.3)
    run_federation(task, plan, defended, Streams(9), batch=Batch(replicas=100), recorders=[tape])
    event, law, part = tape.events[0], defended.law(UPLOADS, plan, 0), task.parts[0]
    rows = task.network.sample_gradients(event.broadcast[:1], task.images[part][None], task.labels[part][None])[0]
    rest = event.lots[0][0].float() @ law.contribution(rows)
    noise = (event.reports.values[:, 0] - rest) / law.noise_std
    assert stats.kstest(noise.flatten().numpy(), "norm").pvalue > 1e-3


def test_a_row_that_changes_from_round_to_round_starts_again_after_its_last_one(run):
    rows = torch.stack([canary(norm=0.1).present, -canary(norm=0.1).present])
    silent = DPSGDProtection(clip_norm=CLIP, noise_multiplier=0.0)
    _, events, _ = run(silent, replace(canary(client=1), present=rows), arm=1)
    sent = [event.reports.values[0, 1, -1].item() for event in events]
    assert sent == pytest.approx([-0.1 / 5, 0.1 / 5, -0.1 / 5])


@pytest.fixture
def trained(run, make_task):
    """As ``run``, without inert weights: events, and the task."""

    def go(protection, planted, *, inert=0, **changes):
        return run(protection, planted, inert=inert, **changes)[1], make_task((3, 5), inert=inert)

    return go


IMAGE = torch.linspace(0, 1, 16).reshape(1, 1, 4, 4)
WRONG, RIGHT = torch.tensor([2]), torch.tensor([0])
NOISY = DPSGDProtection(clip_norm=0.5, noise_multiplier=0.7)


def one_gradient(task, model, label):
    return task.network.sample_gradients(model, IMAGE[None], label[None])[0, 0]


@pytest.mark.parametrize("lot", [Full(), Poisson(0.5), FixedSize(2)], ids=str)
@pytest.mark.parametrize("protection", [NOISY, Protection()], ids=["noised", "undefended"])
def test_a_sample_of_data_equals_its_gradient_given_as_a_row(trained, protection, lot):
    """One round, for the row stays what it is and the sample's gradient moves with the model."""
    sample = DataCanary(unit=Unit.SAMPLE, images=IMAGE, present=WRONG, client=1)
    options = {"replicas": 20, "rounds": 1, "lot": lot}
    (given,), task = trained(protection, sample, **options)
    row = one_gradient(task, given.broadcast[:1], WRONG)
    (planted,), _ = trained(protection, Canary(unit=Unit.SAMPLE, present=row, client=1), **options)
    torch.testing.assert_close(given.model, planted.model)
    (without,), _ = trained(protection, sample, **(options | {"lot": Full()}), arm=0)
    (within,), _ = trained(protection, sample, **(options | {"lot": Full()}))
    assert not torch.allclose(within.reports.values[:, 1], without.reports.values[:, 1])


def test_a_sample_of_data_has_the_gradient_of_each_rounds_model(trained):
    rows = []

    class Spy(Protection):
        per_sample = True

        def local_step(self, gradients, present, client, context, state, rng):
            if client == 1:
                rows.append(gradients[0, -1])
            return super().local_step(gradients, present, client, context, state, rng)

    events, task = trained(Spy(), DataCanary(unit=Unit.SAMPLE, images=IMAGE, present=WRONG, client=1))
    assert len(rows) == len(events) == 3
    for row, event in zip(rows, events, strict=True):
        torch.testing.assert_close(row, one_gradient(task, event.broadcast, WRONG))
    assert not torch.allclose(rows[0], rows[2])


def test_a_client_of_data_trains_its_local_steps_like_any_client(trained):
    client = DataCanary(unit=Unit.CLIENT, images=IMAGE.expand(4, 1, 4, 4), present=WRONG.expand(4))
    silent = DPFedAvgProtection(clip_norm=100.0, noise_multiplier=0.0)
    (event,), task = trained(silent, client, rounds=1, algorithm=FedAvg(learning_rate=0.3, local_steps=2))
    local = event.broadcast
    for _ in range(2):
        local = local - 0.3 * one_gradient(task, local, WRONG)
    assert event.reports.senders == (0, 1, 2)
    torch.testing.assert_close(event.reports.values[0, 2], (local - event.broadcast)[0])
    (without,), _ = trained(silent, client, rounds=1, arm=0)
    assert without.reports.senders == (0, 1)


def test_a_replaced_client_of_data_holds_its_other_labels_in_arm_0(trained):
    client = DataCanary(unit=Unit.REPORT, images=IMAGE, present=WRONG, absent=RIGHT)
    for arm, label in ((0, RIGHT), (1, WRONG)):
        (event,), task = trained(Protection(), client, rounds=1, arm=arm)
        torch.testing.assert_close(event.reports.values[0, 2], -one_gradient(task, event.broadcast, label))


def canaries(unit, *coins, replaced=False, inert=3, client=0):
    return CanarySet(unit=unit, length=2.0, dim=51 + inert, coins=torch.tensor(coins), replaced=replaced, client=client)


def test_a_canary_set_of_clients_keeps_its_numbers_and_only_those_in_are_drawn(trained):
    events, _ = trained(Protection(), canaries(Unit.CLIENT, True, False, True), inert=3)
    for event in events:
        assert event.reports.senders == (0, 1, 2, 4)
        assert event.reports.values[0, 2:, -3:].tolist() == [[2.0, 0.0, 0.0], [0.0, 0.0, 2.0]]


def test_a_canary_set_of_reports_shows_all_turned_by_their_coins(trained):
    events, _ = trained(Protection(), canaries(Unit.REPORT, True, False, True, replaced=True), inert=3)
    assert events[0].reports.senders == (0, 1, 2, 3, 4)
    assert events[0].reports.values[0, 2:, -3:].diagonal().tolist() == [2.0, -2.0, 2.0]


def test_canary_clients_are_made_one_at_a_time(trained, monkeypatch):
    """All rows of a thousand canaries on a model of 11 million weights would take 45 GB."""
    sizes, made = [], CanarySet._rows_of
    monkeypatch.setattr(CanarySet, "_rows_of", lambda self, wanted: sizes.append(len(wanted)) or made(self, wanted))
    trained(Protection(), canaries(Unit.CLIENT, True, False, True), inert=3, rounds=1)
    assert sizes == [1, 1]


@pytest.mark.parametrize("replaced", [False, True])
def test_one_row_of_a_canary_set_is_that_of_all_rows(replaced):
    planted = canaries(Unit.CLIENT, True, False, True, replaced=replaced)
    rows = planted.rows(1)
    assert len(rows) == len(planted.there(1))
    assert torch.equal(rows, torch.stack([planted.row(place, 1) for place in range(len(rows))]))


def test_a_canary_set_of_samples_is_clipped_one_by_one(trained):
    """Clip norm .5 over the five samples that client 1 is expected to draw; learning rate apart."""
    silent = DPSGDProtection(clip_norm=0.5, noise_multiplier=0.0)
    events, _ = trained(silent, canaries(Unit.SAMPLE, True, False, True, client=1), inert=3)
    torch.testing.assert_close(events[0].reports.values[0, 1, -3:], torch.tensor([-0.1, 0.0, -0.1]))


def test_what_a_canary_set_shows_does_not_tell_its_coins():
    planted = canaries(Unit.CLIENT, True, False, False)
    assert planted.shown.coins.tolist() == [True, True, True]
    assert planted.there(1) == (0,)


def test_fewer_rounds_are_the_first_of_the_same_run(trained):
    whole, _ = trained(NOISY, None, lot=Poisson(0.5))
    cut, _ = trained(NOISY, None, lot=Poisson(0.5), stop_after=2)
    assert len(cut) == 2
    assert all(torch.equal(one.model, other.model) for one, other in zip(cut, whole, strict=False))
    for rounds in (0, 4):
        with pytest.raises(ValueError, match=rf"stop_after must be in 1\.\.3 \(rounds of the plan\), got {rounds}"):
            trained(NOISY, None, stop_after=rounds)


def row_canary(unit, row=None, **fields):
    return lambda: Canary(unit=unit, present=torch.ones(51) if row is None else row, **fields)


def image_canary(unit, images=IMAGE, present=WRONG, **fields):
    return lambda: DataCanary(unit=unit, images=images, present=present, **fields)


def coin_canary(*, inert, **fields):
    given = {"unit": Unit.CLIENT, "length": 1.0, "dim": 51 + inert, "coins": torch.ones(inert, dtype=torch.bool)}
    return lambda: CanarySet(**(given | fields))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (row_canary(Unit.LABEL), "a user, a client or a report, got label"),
        (row_canary(Unit.CLIENT, torch.ones(2, 3, 51)), r"present vector must have shape \(d,\) or \(T, d\)"),
        (row_canary(Unit.CLIENT, torch.ones(0, 51)), r"present vector must have shape \(d,\) or \(T, d\)"),
        (row_canary(Unit.REPORT, absent=torch.tensor(1.0)), r"absent vector must have shape \(d,\) or"),
        (row_canary(Unit.CLIENT, torch.full((51,), torch.inf)), "finite"),
        (row_canary(Unit.USER, copies=0), "copies of a canary's row must be >= 1"),
        (row_canary(Unit.SAMPLE, copies=2), "and 1 for one sample, got 2"),
        (image_canary(Unit.LABEL), "a user, a client or a report, got label"),
        (image_canary(Unit.CLIENT, IMAGE[0]), r"images must have shape \(n, c, h, w\)"),
        (image_canary(Unit.SAMPLE, IMAGE.expand(2, 1, 4, 4), WRONG.expand(2)), "n = 1 for a sample"),
        (image_canary(Unit.CLIENT, present=torch.ones(1)), r"present labels must be int64 of shape \(1,\)"),
        (image_canary(Unit.REPORT, absent=torch.ones(2)), "absent labels"),
        (coin_canary(inert=1, length=0.0), "length .*must be > 0"),
        (coin_canary(inert=1, unit=Unit.USER), "must be samples, clients or reports, got users"),
    ],
)
def test_what_no_client_could_hold_is_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        # A row of one coordinate would be spread over all of them, silently.
        (row_canary(Unit.CLIENT, torch.ones(1)), "present vector must have 51 coordinates, got 1"),
        (row_canary(Unit.REPORT, absent=torch.ones(1)), "absent vector must have 51"),
        # It would never be planted, and the audit would measure nothing.
        (row_canary(Unit.SAMPLE, client=2), r"client must be in 0\.\.1, got 2"),
        (row_canary(Unit.SAMPLE, client=-1), "got -1"),
        (row_canary(Unit.USER, clients=3), r"user canary's clients .* 1\.\.2, got 3"),
        (row_canary(Unit.USER, clients=0), r"user canary's clients .* 1\.\.2, got 0"),
        (row_canary(Unit.USER, place=0), "place .number of the client that a client canary becomes."),
        (coin_canary(inert=3), r"needs 54 weights, 3 of them inert .* the plan has 51 weights, 0 of them inert"),
        (coin_canary(inert=0, coins=torch.ones(1, dtype=torch.bool), dim=51), "1 of them inert"),
    ],
)
def test_a_canary_that_does_not_fit_the_federation_is_refused(make_task, make_plan, build, message):
    with pytest.raises(ValueError, match=message):
        build().check(make_plan(make_task((3, 5))))
    Canary(unit=Unit.CLIENT, present=torch.ones(51), client=99).check(make_plan(make_task((3, 5))))


def test_a_canary_is_there_in_arm_1_and_gone_or_replaced_in_arm_0():
    row = torch.tensor([0.0, 3.0])
    added, replaced = Canary(unit=Unit.CLIENT, present=row), Canary(unit=Unit.REPORT, present=row, absent=-row)
    assert (added.there(1), added.there(0), replaced.there(0)) == ((0,), (), (0,))
    assert (added.rows(1).tolist(), added.rows(0).tolist()) == ([[0.0, 3.0]], [])
    assert (replaced.rows(1).tolist(), replaced.rows(0).tolist()) == ([[0.0, 3.0]], [[0.0, -3.0]])
