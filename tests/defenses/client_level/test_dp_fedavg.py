"""DP-FedAvg: clip at the client, noise on the sum, the expected cohort below; the law at both observers of sums.

DP-FedSGD: DP-FedAvg's mechanism and figures on gradients, one per client and round.

Regularised and sparsified: which numbers stay, DP-FedAvg's claim and law behind, and what the bound is worth.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import ProfileCurve
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.accounting.gaussian import FixedSizeGaussian
from fedassay.defenses.accounting.pld import many_epsilon
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from fedassay.defenses.client_level.dp_fedsgd import DPFedSGD
from fedassay.defenses.client_level.quantile_clipping import QuantileClipping
from fedassay.defenses.client_level.regularised_sparsified import RegularisedSparsified
from fedassay.fl.algorithms import BoundedUpdate, FedAvg, FedSGD
from fedassay.fl.engine import run_federation
from fedassay.fl.message import Message
from fedassay.fl.protection import Context, Protection
from fedassay.fl.sampling import Epoch, FixedSize, Poisson
from fedassay.fl.streams import normal
from fedassay.fl.training.local import Batch


def message(values, present=None):
    present = torch.ones(values.shape[:2], dtype=torch.bool) if present is None else present
    return Message(values=values * present.unsqueeze(-1), present=present, senders=tuple(range(values.shape[1])))


@pytest.fixture
def context(toy_task, toy_plan):
    """Four clients of which every second is expected."""
    plan = toy_plan(toy_task((4, 6, 5, 1)), cohort=Poisson(0.5))
    return Context(plan=plan, round=0, replicas=1, senders=(0, 1, 2, 3))


def test_each_client_clips_its_own_update(context, rng):
    """Lengths 10, 8 and .5; clipped after the sum, the first two would leave (2, 0)."""
    updates = message(torch.tensor([[[10.0, 0.0], [-8.0, 0.0], [0.3, 0.4], [0.0, 0.0]]]))
    reports = DPFedAvgProtection(clip_norm=1.0, noise_multiplier=9.0).report(updates, context, {}, rng)
    torch.testing.assert_close(reports.values, torch.tensor([[[1.0, 0.0], [-1.0, 0.0], [0.3, 0.4], [0.0, 0.0]]]))


def test_the_aggregate_is_the_noised_sum_over_the_expected_cohort_and_weighs_all_alike(context):
    """Three came where two were expected; their sizes are 4, 5 and 1. The generator's own numbers are the noise."""
    present = torch.tensor([[True, False, True, True]])
    reports = message(torch.tensor([[[1.0, 0.0], [9.0, 9.0], [0.0, 1.0], [1.0, 0.0]]]), present)
    protection = DPFedAvgProtection(clip_norm=0.5, noise_multiplier=3.0)
    seen = protection.aggregate(reports, context, {}, np.random.default_rng(2))
    noise = normal(np.random.default_rng(2), (1, 2))
    torch.testing.assert_close(seen, (torch.tensor([[2.0, 1.0]]) + 3.0 * 0.5 * noise) / 2)


def test_a_round_to_which_no_client_came_is_noise_all_the_same(context, has_std):
    """40,000 numbers."""
    empty = message(torch.ones(400, 4, 100), torch.zeros(400, 4, dtype=torch.bool))
    protection = DPFedAvgProtection(clip_norm=0.5, noise_multiplier=3.0)
    assert has_std(protection.aggregate(empty, context, {}, np.random.default_rng(3)), 3.0 * 0.5 / 2)


def test_the_law_is_one_over_the_expected_cohort(context):
    """Expected cohort 2: scale 1/2, noise 3 x .5 / 2."""
    for observer in (AGGREGATE, GLOBAL_MODELS):
        law = DPFedAvgProtection(clip_norm=0.5, noise_multiplier=3.0).law(observer, context.plan, 0)
        assert (law.clip_norm, law.scale, law.noise_std, law.rate, law.steps) == (0.5, 0.5, 0.75, 0.5, 1)


def test_who_sees_uploads_or_only_the_last_model_has_no_law(context):
    """The uploads carry no noise; the last model is not one round's release."""
    for observer in (UPLOADS, SHUFFLED, FINAL_MODEL):
        assert DPFedAvgProtection(clip_norm=0.5, noise_multiplier=3.0).law(observer, context.plan, 0) is None


def test_a_client_adds_its_clipped_share_in_the_rounds_it_comes_to(toy_task, toy_plan, tape, streams):
    """One client at rate .5, expected cohort .5: its clipped update doubled, in about half of 1,000 replicas."""
    task = toy_task((4,))
    plan = toy_plan(task, cohort=Poisson(0.5), rounds=1)
    protection = DPFedAvgProtection(clip_norm=0.01, noise_multiplier=0.0)
    run_federation(task, plan, protection, streams, batch=Batch(replicas=1000), recorders=[tape])
    (event,) = tape.events
    rows = task.network.sample_gradients(event.broadcast[:1], task.images[None], task.labels[None])[0]
    law, came = protection.law(AGGREGATE, plan, 0), event.reports.present[:, 0]
    expected = law.contribution(-rows.mean(0)).expand(int(came.sum()), -1)
    torch.testing.assert_close(event.aggregate[came], expected, rtol=1e-4, atol=1e-7)
    assert not event.aggregate[~came].any()
    assert abs(float(came.double().mean()) - law.rate) < 5 * math.sqrt(0.25 / 1000)


def test_the_claim_is_one_client_against_those_who_see_every_model(toy_task, toy_plan):
    plan = toy_plan(toy_task(), cohort=Poisson(0.5), rounds=20)
    prepared = DPFedAvg(epsilon=4.0, clip_norm=0.3).prepare(plan)
    (claim,) = prepared.claims
    assert (claim.unit, claim.adjacency, claim.observer) == (Unit.CLIENT, Adjacency.ADD_REMOVE, GLOBAL_MODELS)
    assert not claim.observer.sees_participation
    assert (claim.epsilon, claim.rounds, claim.parameters["steps"]) == (4.0, 20, 20)
    assert claim.parameters["noise_multiplier"] == prepared.protection.noise_multiplier
    assert isinstance(claim.curve, ProfileCurve)


def test_rare_cohorts_take_less_noise_than_frequent_ones(toy_task, toy_plan):
    rare, frequent = (
        DPFedAvg().prepare(toy_plan(toy_task(), cohort=cohort, rounds=20)).protection.noise_multiplier
        for cohort in (Poisson(0.1), Poisson(0.5))
    )
    assert rare < frequent / 2


@pytest.mark.parametrize("defense", [DPFedAvg(), QuantileClipping()])
def test_cohorts_of_fixed_size_are_accounted_under_replace_one(toy_task, toy_plan, defense):
    plan = toy_plan(toy_task((4, 6, 5, 1)), cohort=FixedSize(2), rounds=3)
    (claim,) = defense.prepare(plan).claims
    assert claim.adjacency is Adjacency.REPLACE_ONE
    # Two clip norms apart, which is half the noise.
    noise, lots = claim.parameters["noise_multiplier"], FixedSizeGaussian
    # Two of the three others: the adversary knows that it sits out itself.
    assert claim.parameters["rate"] == pytest.approx(2 / 3)
    assert 3.98 < many_epsilon(lots(noise / 2, 2 / 3), releases=3, delta=1e-5) <= 4.0
    assert noise > 1.9 * defense.prepare(replace(plan, cohort=Poisson(0.5))).claims[0].parameters["noise_multiplier"]


def test_passes_over_all_clients_are_refused(toy_task, toy_plan):
    with pytest.raises(ValueError, match=r"cohort must be Poisson or full .* got Epoch\(rounds=2\)"):
        DPFedAvg().prepare(toy_plan(toy_task(), cohort=Epoch(2)))


def test_one_round_by_hand_is_the_clipped_gradients_over_the_expected_cohort(toy_task, toy_plan, tape, streams):
    """Noise aside, found by running the very same streams without it."""
    task = toy_task((4, 6))
    plan = toy_plan(task, rounds=1, algorithm=FedSGD(learning_rate=0.5))
    prepared = DPFedSGD(clip_norm=0.3).prepare(plan)
    final = run_federation(task, plan, prepared.protection, streams, recorders=[tape])
    (event,) = tape.events
    rows = [
        task.network.sample_gradients(event.broadcast, task.images[part][None], task.labels[part][None])[0].mean(0)
        for part in task.parts
    ]
    clipped = [-row * min(1.0, 0.3 / float(row.norm())) for row in rows]
    torch.testing.assert_close(event.reports.values[0], torch.stack(clipped), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(final, event.broadcast + 0.5 * event.aggregate)


def test_it_is_calibrated_and_published_as_dp_fedavg_and_states_its_own_source(toy_task, toy_plan):
    plan = toy_plan(toy_task(), cohort=Poisson(0.5), rounds=20)
    ours, theirs = (part(epsilon=2.0, clip_norm=0.3).prepare(plan) for part in (DPFedSGD, DPFedAvg))
    assert ours.protection == theirs.protection
    (claim,) = ours.claims
    assert (claim.unit, claim.observer, claim.curve) == (Unit.CLIENT, GLOBAL_MODELS, theirs.claims[0].curve)
    assert claim.parameters == theirs.claims[0].parameters
    assert "FedSGD" in claim.source


def test_several_local_steps_and_passes_over_all_clients_are_refused(toy_task, toy_plan):
    plan = toy_plan(toy_task(), cohort=Poisson(0.5))
    with pytest.raises(ValueError, match=r"algorithm must be fedsgd, .* got FedAvg\("):
        DPFedSGD().prepare(toy_plan(toy_task(), algorithm=FedAvg(learning_rate=0.1, local_steps=1)))
    with pytest.raises(ValueError, match="cohort must be Poisson or full"):
        DPFedSGD().prepare(toy_plan(toy_task(), cohort=Epoch(2)))
    assert DPFedSGD().prepare(plan).claims


ALGORITHM = BoundedUpdate(learning_rate=0.1, local_steps=2, mu=1.0, radius=1.0)


def test_each_client_keeps_its_own_largest_numbers_and_clips_what_is_left(toy_task, toy_plan):
    """Half of four numbers is dropped; of (3, .1, -4, .2) the rest has length 5."""
    plan = toy_plan(toy_task((4, 6)), algorithm=ALGORITHM)
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1))
    rows = torch.tensor([[[3.0, 0.1, -4.0, 0.2], [0.1, 0.2, 0.0, -0.3]]])
    sent = Message(values=rows, present=torch.ones(1, 2, dtype=torch.bool), senders=(0, 1))
    protection = RegularisedSparsified().prepare(plan).protection
    kept = protection.report(sent, context, {}, np.random.default_rng(0)).values
    torch.testing.assert_close(kept, torch.tensor([[[0.6, 0.0, -0.8, 0.0], [0.0, 0.2, 0.0, -0.3]]]))


def test_the_claim_law_and_noise_are_those_of_dp_fedavg(toy_task, toy_plan):
    plan = toy_plan(toy_task((4, 6)), algorithm=ALGORITHM, cohort=Poisson(0.5))
    ours, theirs = RegularisedSparsified().prepare(plan), DPFedAvg().prepare(plan)
    assert ours.protection.noised == theirs.protection
    assert ours.claims[0].curve == theirs.claims[0].curve
    observer = ours.claims[0].observer
    assert ours.protection.law(observer, plan, 0) == theirs.protection.law(observer, plan, 0)


def test_the_bounded_update_leaves_less_for_the_clip_to_cut(toy_task, toy_plan, make_tape, streams):
    """Ten steps at a rate that carries every update past the radius; strong pull, shorter updates."""
    lengths = []
    for mu in (1e-6, 5.0):
        task, tape = toy_task((4, 6)), make_tape()
        algorithm = BoundedUpdate(learning_rate=0.1, local_steps=10, mu=mu, radius=0.1)
        plan = toy_plan(task, algorithm=algorithm, rounds=1)
        run_federation(task, plan, Protection(), streams, recorders=[tape])
        lengths.append(tape.events[0].reports.values.norm(dim=-1))
    assert (lengths[1] < 0.75 * lengths[0]).all()
    assert (lengths[0] > 0.1).all()


def test_an_algorithm_without_the_bound_or_with_another_radius_is_refused(toy_task, toy_plan):
    with pytest.raises(ValueError, match=r"algorithm must be bounded_update with radius 1.*, got FedAvg"):
        RegularisedSparsified().prepare(toy_plan(toy_task(), algorithm=FedAvg(learning_rate=0.1, local_steps=3)))
    with pytest.raises(ValueError, match=r"bounded_update with radius 2.*, got BoundedUpdate"):
        RegularisedSparsified(clip_norm=2.0).prepare(toy_plan(toy_task(), algorithm=ALGORITHM))
    with pytest.raises(ValueError, match="cohort must be Poisson or full"):
        RegularisedSparsified().prepare(toy_plan(toy_task(), algorithm=ALGORITHM, cohort=Epoch(2)))
