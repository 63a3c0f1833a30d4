"""Quantile clipping: a round by hand, Theorem 1 against exact composition, and a clip norm made of released numbers."""

import math

import numpy as np
import pytest
import torch
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg
from fedassay.defenses.client_level.quantile_clipping import QuantileClipping, QuantileClippingProtection
from fedassay.fl.engine import run_federation
from fedassay.fl.message import Message
from fedassay.fl.protection import Context, Protection
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import Streams, normal
from fedassay.fl.training.local import Batch

FIELDS = {"clip_norm": 1.0, "sum_noise": 3.0, "count_noise": 0.5, "quantile": 0.5, "learning_rate": 0.2}


def test_a_round_by_hand_clips_counts_and_moves_the_bound(toy_task, toy_plan):
    """Four clients, two expected; lengths 10, .5 and 1, the last one absent; replicas at bounds 1 and 2.

    Unclipped: .5 and 1 (a bound is not above itself) in both, so halves -1/2 + 1/2 + 1/2 = 1/2.
    """
    plan = toy_plan(toy_task((4, 6, 5, 1)), cohort=Poisson(0.5))
    context = Context(plan=plan, round=0, replicas=2, senders=(0, 1, 2, 3))
    rows = torch.tensor([[10.0, 0.0], [0.3, 0.4], [0.0, 1.0], [0.0, 0.0]]).expand(2, 4, 2)
    present = torch.tensor([[True, True, True, False]]).expand(2, 4)
    sent = Message(values=rows, present=present, senders=(0, 1, 2, 3))
    protection, state = QuantileClippingProtection(**FIELDS), {"clip_norm": torch.tensor([1.0, 2.0])}
    reports = protection.report(sent, context, state, np.random.default_rng(0))
    torch.testing.assert_close(reports.values[:, 0, 0], torch.tensor([1.0, 2.0]))
    assert torch.equal(reports.values[:, 1:], rows[:, 1:])
    seen = protection.aggregate(reports, context, state, np.random.default_rng(1))
    noise = 3.0 * torch.tensor([[1.0], [2.0]]) * normal(np.random.default_rng(1), (2, 2))
    torch.testing.assert_close(seen, (reports.values.sum(1) + noise) / 2)
    after = protection.query(reports, context, state, np.random.default_rng(2))["clip_norm"]
    share = 0.5 + (0.5 + 0.5 * normal(np.random.default_rng(2), (2,))) / 2
    torch.testing.assert_close(after, torch.tensor([1.0, 2.0]) * torch.exp(-0.2 * (share - 0.5)))


def test_the_count_is_paid_for_as_in_theorem_1(toy_task, toy_plan):
    """Sum and count are one Gaussian: 1 / z_sum^2 + (1/2)^2 / sigma_b^2 = 1 / z^2, with z that of DP-FedAvg."""
    plan = toy_plan(toy_task(), cohort=Poisson(0.5), rounds=20)
    z = DPFedAvg().prepare(plan).protection.noise_multiplier
    for count_noise in (None, 2.0):
        protection = QuantileClipping(count_noise=count_noise).prepare(plan).protection
        whole = protection.sum_noise**-2 + 0.25 * protection.count_noise**-2
        assert whole**-0.5 == pytest.approx(z, rel=1e-9)
        assert protection.sum_noise > z
    assert protection.count_noise == 2.0


def test_the_default_count_noise_is_the_papers_in_large_cohorts_and_a_tenth_of_the_budget_in_small_ones(
    toy_task, toy_plan
):
    small = QuantileClipping().prepare(toy_plan(toy_task(), rounds=20))
    z = small.claims[0].parameters["noise_multiplier"]
    assert small.protection.sum_noise == pytest.approx(z / math.sqrt(0.9))
    large = QuantileClipping().prepare(toy_plan(toy_task((1,) * 400), rounds=20))
    assert large.protection.count_noise == 400 / 20


def test_a_count_that_alone_spends_the_budget_is_refused(toy_task, toy_plan):
    plan = toy_plan(toy_task(), rounds=20)
    with pytest.raises(ValueError, match=r"count_noise must be > .*, half of the noise multiplier .* got 0.5"):
        QuantileClipping(count_noise=0.5).prepare(plan)


def test_without_noise_the_bound_goes_to_the_quantile(toy_task, toy_plan, tape, streams):
    """30 clients of one sample; after 40 rounds the bound parts them at about the chosen quantile."""
    task = toy_task((1,) * 30)
    plan = toy_plan(task, rounds=40)
    fields = FIELDS | {"sum_noise": 0.0, "count_noise": 0.0, "clip_norm": 0.2, "quantile": 0.8}

    class Still(QuantileClippingProtection):
        def aggregate(self, received, context, state, rng):
            return 0 * Protection.aggregate(self, received, context, state, rng)

    run_federation(task, plan, Still(**fields), streams, recorders=[tape])
    unclipped = tape.events[-1].reports.side["unclipped"].float().mean()
    assert abs(float(unclipped) - 0.8) <= 0.07


def test_each_replica_has_a_bound_of_its_own_and_clips_at_it(toy_task, toy_plan, make_tape):
    task, tape = toy_task((4, 6, 5)), make_tape()
    plan = toy_plan(task, rounds=3)
    prepared = QuantileClipping(clip_norm=0.01).prepare(plan)
    run_federation(task, plan, prepared.protection, Streams(0), batch=Batch(replicas=5), recorders=[tape])
    for event in tape.events[1:]:
        bounds = event.state["clip_norm"]
        assert len(bounds.unique()) == 5
        torch.testing.assert_close(event.reports.values.norm(dim=-1), bounds.unsqueeze(-1).expand(5, 3))
