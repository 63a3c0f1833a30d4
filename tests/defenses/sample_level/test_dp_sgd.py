"""DP-SGD: opacus' sums on the same gradients and noise, and uploads that follow the law it publishes."""

import math
from dataclasses import replace

import numpy as np
import opacus.optimizers.optimizer as opacus_optimizer
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import ProfileCurve
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.accounting.gaussian import FixedSizeGaussian
from fedassay.defenses.accounting.pld import many_epsilon
from fedassay.defenses.sample_level.dp_sgd import DPSGD, DPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Context
from fedassay.fl.sampling import FixedSize, Full, Poisson
from fedassay.fl.streams import normal
from fedassay.fl.training.local import Batch

SILENT = DPSGDProtection(clip_norm=1.0, noise_multiplier=0.0)


@pytest.fixture
def direction(toy_task, toy_plan):
    """(protection, gradients of one client's lot, ...) -> the direction of its local step."""

    def step(protection, gradients, present=None, *, sizes=(4,), lot=None, seed=0):
        plan = toy_plan(toy_task(sizes), lot=lot or Full())
        present = torch.ones(gradients.shape[:2], dtype=torch.bool) if present is None else present
        context = Context(plan=plan, round=0, replicas=len(gradients), senders=(0,))
        return protection.local_step(gradients, present, 0, context, {}, np.random.default_rng(seed))

    return step


def test_noised_clipped_sums_are_those_of_opacus(direction, toy_task, monkeypatch):
    clip, multiplier, lot = 0.7, 1.3, 5
    layout = toy_task(model="mlp").network.layout
    gradients = 0.01 * normal(np.random.default_rng(1), (1, lot, layout.dim))
    gradients[0, 0] *= 20
    noise = normal(np.random.default_rng(0), (1, layout.dim))[0]
    weights = [torch.nn.Parameter(torch.zeros(shape)) for shape in layout.shapes]
    layers, shares = layout.unflatten(gradients[0]).values(), iter(layout.unflatten(noise).values())
    for weight, rows in zip(weights, layers, strict=True):
        weight.grad_sample = rows
    monkeypatch.setattr(opacus_optimizer, "_generate_noise", lambda std, **_: std * next(shares))
    theirs = opacus_optimizer.DPOptimizer(
        torch.optim.SGD(weights, lr=1.0), noise_multiplier=multiplier, max_grad_norm=clip, expected_batch_size=lot
    )
    theirs.step()
    ours = direction(DPSGDProtection(clip_norm=clip, noise_multiplier=multiplier), gradients, sizes=(lot,))
    lengths = gradients[0].norm(dim=1)
    assert lengths.min() < clip < lengths.max()
    expected = torch.cat([-weight.detach().flatten() for weight in weights])
    torch.testing.assert_close(ours[0], expected, rtol=1e-5, atol=1e-5)


def test_the_sum_is_divided_by_the_expected_lot_whichever_clients_were_drawn(direction):
    """Poisson(.5) of 4 samples: two are expected; one, then all four were drawn."""
    gradients = torch.tensor([[[1.0, 0.0]] * 4]).expand(2, 4, 2)
    present = torch.tensor([[True, False, False, False], [True] * 4])
    seen = direction(SILENT, gradients, present, lot=Poisson(0.5))
    torch.testing.assert_close(seen[:, 0], torch.tensor([0.5, 2.0]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_sample_that_was_not_drawn_leaves_no_trace_even_where_its_gradient_overflows(direction, bad):
    gradients = torch.tensor([[[0.5, 0.0], [bad, bad]]])
    seen = direction(SILENT, gradients, torch.tensor([[True, False]]))
    torch.testing.assert_close(seen, torch.tensor([[0.125, 0.0]]))


def test_the_noise_of_a_step_is_the_multiplier_times_the_clip_norm_over_the_expected_lot(direction, has_std):
    """30,000 numbers, no sample drawn: sigma 1.5, clip .4, expected lot 2."""
    none = torch.zeros(300, 4, dtype=torch.bool)
    protection = DPSGDProtection(clip_norm=0.4, noise_multiplier=1.5)
    noise = direction(protection, torch.ones(300, 4, 100), none, lot=Poisson(0.5))
    assert has_std(noise, 1.5 * 0.4 / 2)
    assert not has_std(noise, 1.5 * 0.4 / 2 * 1.05)


LAWS = {
    "fedsgd": (FedSGD(learning_rate=0.5), 1.0 / 3, 1),
    "fedavg": (FedAvg(learning_rate=0.2, local_steps=1), 0.2 / 3, 1),
    "fedavg, four steps": (FedAvg(learning_rate=0.2, local_steps=4), 0.2 / 3, 4),
}


@pytest.mark.parametrize("case", LAWS)
def test_the_law_is_that_of_the_sum_of_the_steps(case, toy_task, toy_plan):
    """Expected lot 3 of 6: |scale| = lr / 3, noise = lr sigma C / 3 sqrt(steps)."""
    algorithm, scale, steps = LAWS[case]
    plan = toy_plan(toy_task((4, 6)), lot=Poisson(0.5), algorithm=algorithm)
    law = DPSGDProtection(clip_norm=0.8, noise_multiplier=1.5).law(UPLOADS, plan, 1)
    assert law.scale == pytest.approx(-scale)
    assert law.noise_std == pytest.approx(scale * 1.5 * 0.8 * math.sqrt(steps))
    assert (law.rate, law.steps, law.clip_norm) == (0.5, steps, 0.8)


def uploads(task, plan, protection, tape, streams, replicas=1):
    run_federation(task, plan, protection, streams, batch=Batch(replicas=replicas), recorders=[tape])
    return torch.stack([event.reports.values for event in tape.events], dim=1)


@pytest.mark.parametrize("clip", [0.1, 100.0])
@pytest.mark.parametrize("algorithm", [LAWS["fedsgd"][0], LAWS["fedavg"][0]], ids=str)
def test_a_lone_sample_uploads_its_contribution_when_drawn_and_nothing_when_not(
    clip, algorithm, toy_task, toy_plan, tape, streams
):
    """1,000 replicas: drawn at the law's rate of .3, five standard errors."""
    task = toy_task((1,))
    plan = toy_plan(task, lot=Poisson(0.3), algorithm=algorithm, rounds=1)
    protection = DPSGDProtection(clip_norm=clip, noise_multiplier=0.0)
    seen = uploads(task, plan, protection, tape, streams, replicas=1000)[:, 0, 0]
    start = tape.events[0].broadcast[:1]
    law, gradient = (
        protection.law(UPLOADS, plan, 0),
        task.network.sample_gradients(start, task.images[None], task.labels[None])[0],
    )
    drawn = tape.events[0].lots[0][0][:, 0]
    torch.testing.assert_close(
        seen[drawn], law.contribution(gradient).expand(int(drawn.sum()), -1), rtol=1e-4, atol=1e-6
    )
    assert not seen[~drawn].any()
    assert abs(float(drawn.double().mean()) - law.rate) < 5 * math.sqrt(0.21 / 1000)


def test_only_who_sees_uploads_and_linear_steps_has_a_law(toy_task, toy_plan):
    task = toy_task()
    for observer in (SHUFFLED, AGGREGATE, GLOBAL_MODELS, FINAL_MODEL):
        assert SILENT.law(observer, toy_plan(task), 0) is None
    adam = FedAvg(learning_rate=0.01, local_steps=2, optimizer="adam")
    assert SILENT.law(UPLOADS, toy_plan(task, algorithm=adam), 0) is None


def test_the_claim_covers_all_local_steps_of_a_client_that_always_takes_part(toy_task, toy_plan):
    algorithm = FedAvg(learning_rate=0.1, local_steps=5)
    plan = toy_plan(toy_task(), cohort=Poisson(0.5), lot=Poisson(0.1), algorithm=algorithm, rounds=4)
    (claim,) = DPSGD(epsilon=4.0, clip_norm=2.0).prepare(plan).claims
    assert (claim.unit, claim.adjacency, claim.observer) == (Unit.SAMPLE, Adjacency.ADD_REMOVE, UPLOADS)
    assert (claim.epsilon, claim.rounds) == (4.0, 4)
    assert (claim.parameters["steps"], claim.parameters["rate"]) == (20, 0.1)
    assert isinstance(claim.curve, ProfileCurve)


def test_a_thousand_lots_at_epsilon_two_take_the_published_noise(toy_task, toy_plan):
    prepared = DPSGD(epsilon=2.0).prepare(toy_plan(toy_task(), lot=Poisson(0.013), rounds=1000))
    assert round(prepared.protection.noise_multiplier, 3) == 1.106
    assert prepared.claims[0].parameters["noise_multiplier"] == prepared.protection.noise_multiplier


def test_lots_of_fixed_size_are_accounted_under_replace_one_at_the_rate_of_the_smallest_client(toy_task, toy_plan):
    plan = toy_plan(toy_task((4, 8)), lot=FixedSize(2), rounds=3)
    prepared = DPSGD(epsilon=2.0).prepare(plan)
    (claim,) = prepared.claims
    assert claim.adjacency is Adjacency.REPLACE_ONE
    assert claim.parameters["rate"] == 0.5
    # Two clip norms apart, which is half the noise.
    noise = prepared.protection.noise_multiplier
    lots = FixedSizeGaussian(noise / 2, 0.5)
    assert 1.99 < many_epsilon(lots, releases=plan.steps, delta=1e-5) <= 2.0
    assert claim.curve_shortfall() < 1e-9
    assert noise > 2 * DPSGD(epsilon=2.0).prepare(replace(plan, lot=Poisson(0.5))).protection.noise_multiplier
    assert prepared.spending[claim.claim_id](3) == pytest.approx(many_epsilon(lots, releases=plan.steps, delta=1e-5))
    whole = DPSGD(epsilon=2.0).prepare(replace(plan, lot=FixedSize(9))).claims[0]
    assert (whole.adjacency, whole.parameters["rate"]) == (Adjacency.REPLACE_ONE, 1.0)
