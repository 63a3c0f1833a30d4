"""Regularised and sparsified: which numbers stay, DP-FedAvg's claim and law behind, and what the bound is worth."""

import numpy as np
import pytest
import torch
from fedassay.checks.replay import check_claim
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg
from fedassay.defenses.client_level.regularised_sparsified import RegularisedSparsified
from fedassay.fl.algorithms import BoundedUpdate, FedAvg
from fedassay.fl.engine import run_federation
from fedassay.fl.laws import prune
from fedassay.fl.message import Message
from fedassay.fl.protection import Context, Protection
from fedassay.fl.sampling import FixedSize, Poisson

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


def test_as_many_numbers_are_dropped_as_the_share_states_whatever_is_equal():
    rows = torch.ones(2, 3, 10)
    assert (prune(rows, 0.35).sum(-1) == 7).all()


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


def test_probes_find_it_kept(toy_task, toy_plan):
    task = toy_task((4, 6, 5), side=6)
    plan = toy_plan(task, algorithm=ALGORITHM, cohort=Poisson(0.5))
    prepared = RegularisedSparsified().prepare(plan)
    exposures = check_claim(task, plan, prepared.protection, prepared.claims[0])
    assert [e.name for e in exposures if e.passed is False] == []
    assert {e.name for e in exposures if e.passed} >= {"sensitivity", "noise present", "noise scale"}


def test_an_algorithm_without_the_bound_or_with_another_radius_is_refused(toy_task, toy_plan):
    with pytest.raises(ValueError, match=r"algorithm must be bounded_update with radius 1.*, got FedAvg"):
        RegularisedSparsified().prepare(toy_plan(toy_task(), algorithm=FedAvg(learning_rate=0.1, local_steps=3)))
    with pytest.raises(ValueError, match=r"bounded_update with radius 2.*, got BoundedUpdate"):
        RegularisedSparsified(clip_norm=2.0).prepare(toy_plan(toy_task(), algorithm=ALGORITHM))
    with pytest.raises(ValueError, match="cohort must be Poisson or full"):
        RegularisedSparsified().prepare(toy_plan(toy_task(), algorithm=ALGORITHM, cohort=FixedSize(2)))
