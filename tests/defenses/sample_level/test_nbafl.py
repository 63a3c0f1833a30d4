"""NbAFL: both noises by hand, both claims against the analytic Gaussian, and what breaks as published."""

import math

import dp_accounting
import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, UPLOADS
from fedassay.checks.replay import check_claim
from fedassay.defenses.sample_level.nbafl import NbAFL, NbAFLProtection
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.engine import run_federation
from fedassay.fl.message import Message
from fedassay.fl.protection import Context
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import Streams, normal
from fedassay.fl.training.local import Batch


@pytest.fixture
def plan(toy_task, toy_plan):
    return toy_plan(toy_task((4, 6, 5)), rounds=3)


def test_a_round_is_clipped_noised_summed_over_the_expected_cohort_and_noised_again(plan):
    """Two rows of lengths 10 and .5; the generators' own numbers are the noise."""
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1))
    rows = torch.tensor([[[10.0, 0.0], [0.3, 0.4]]])
    sent = Message(values=rows, present=torch.ones(1, 2, dtype=torch.bool), senders=(0, 1))
    protection = NbAFLProtection(clip_norm=1.0, up_std=2.0, down_std=0.5, row_norm=1.0)
    reports = protection.report(sent, context, {}, np.random.default_rng(1))
    clipped = torch.tensor([[[1.0, 0.0], [0.3, 0.4]]])
    torch.testing.assert_close(reports.values, clipped + 2.0 * normal(np.random.default_rng(1), (1, 2, 2)))
    seen = protection.aggregate(reports, context, {}, np.random.default_rng(2))
    down = 0.5 * normal(np.random.default_rng(2), (1, 2))
    torch.testing.assert_close(seen, (reports.values.sum(1) + down) / 3)


def test_both_claims_are_exact_gaussians_of_the_noise_that_is_counted(plan):
    """Three rounds at sensitivity 2C: the way up at its own noise, the way down at both over three clients."""
    prepared = NbAFL(epsilon=4.0, down_epsilon=1.5, clip_norm=0.7).prepare(plan)
    up, down = prepared.claims
    assert [(c.unit, c.adjacency, c.observer) for c in (up, down)] == [
        (Unit.REPORT, Adjacency.REPLACE_ONE, UPLOADS),
        (Unit.REPORT, Adjacency.REPLACE_ONE, GLOBAL_MODELS),
    ]
    protection = prepared.protection
    ratio = protection.up_std / (1.4 * math.sqrt(3))
    assert dp_accounting.get_epsilon_gaussian(ratio, 1e-5) == pytest.approx(4.0, rel=1e-6)
    total = math.hypot(protection.up_std, protection.down_std) / (1.4 * math.sqrt(3))
    assert dp_accounting.get_epsilon_gaussian(total, 1e-5) == pytest.approx(1.5, rel=1e-6)


def test_where_the_way_up_is_stricter_the_server_adds_nothing_and_states_the_stricter_claim(plan):
    prepared = NbAFL(epsilon=1.0, down_epsilon=3.0).prepare(plan)
    assert prepared.protection.down_std == 0
    assert [claim.epsilon for claim in prepared.claims] == [1.0, 1.0]


def test_laws_are_published_to_those_against_whom_it_claims(plan):
    protection = NbAFLProtection(clip_norm=1.0, up_std=3.0, down_std=4.0, row_norm=1.0)
    up, down = (protection.law(observer, plan, 0) for observer in (UPLOADS, GLOBAL_MODELS))
    assert (up.scale, up.noise_std) == (1.0, 3.0)
    assert (down.scale, down.noise_std) == (pytest.approx(1 / 3), pytest.approx(5 / 3))
    assert protection.law(AGGREGATE, plan, 0) is protection.law(FINAL_MODEL, plan, 0) is None


def test_the_steps_of_the_global_models_carry_everybodys_noise_and_the_servers(toy_task, toy_plan, tape, has_std):
    """100 weights that no data moves, 100 replicas, 3 rounds; each client's and the server's noise is in the final
    model too.
    """
    task = toy_task((4, 6, 5), inert=100)
    plan = toy_plan(task, algorithm=FedAvg(learning_rate=0.1, local_steps=2))
    protection = NbAFLProtection(clip_norm=1.0, up_std=3.0, down_std=6.0, row_norm=1.0)
    final = run_federation(task, plan, protection, Streams(5), batch=Batch(replicas=100), recorders=[tape])
    steps = torch.stack([event.aggregate for event in tape.events])[..., -100:]
    assert has_std(steps, math.sqrt(3 * 1.0**2 + 2.0**2))
    assert has_std((final - tape.events[0].broadcast)[:, -100:], math.sqrt(3 * 7.0))


def test_in_a_smaller_federation_the_way_down_is_as_noisy_as_it_was_calibrated(toy_task, toy_plan):
    """Audits run the calibrated protection on fewer clients, where each weighs more: noise over sensitivity stays."""
    large, small = toy_plan(toy_task((4,) * 10)), toy_plan(toy_task((4, 6)))
    protection = NbAFL().prepare(large).protection
    ratios = [law.noise_std / law.scale for law in (protection.law(GLOBAL_MODELS, plan, 0) for plan in (large, small))]
    assert ratios[0] == pytest.approx(ratios[1])
    context = Context(plan=small, round=0, replicas=1, senders=(0, 1))
    empty = Message(values=torch.zeros(1, 2, 20_000), present=torch.zeros(1, 2, dtype=torch.bool), senders=(0, 1))
    noise = protection.aggregate(empty, context, {}, np.random.default_rng(0))
    assert float(noise.std()) == pytest.approx(protection.down_std / 2, rel=0.03)


def test_as_published_it_takes_the_papers_noise(plan):
    """m = 4, T = L = 3: sigma = c L 2C / (m epsilon), and none on the way down, where T <= L sqrt(N)."""
    prepared = NbAFL(variant="as_published", epsilon=60.0).prepare(plan)
    c = math.sqrt(2 * math.log(1.25 / 1e-5))
    assert prepared.protection.up_std == pytest.approx(c * 3 * (2 / 4) / 60)
    assert prepared.protection.down_std == 0
    assert all((claim.unit, claim.curve) == (Unit.SAMPLE, None) for claim in prepared.claims)


def test_as_published_rare_exposure_leaves_noise_to_the_server(toy_task, toy_plan):
    """T = 10, L = 2, N = 3, m = 4: sigma_D = 2 c C sqrt(100 - 4 x 3) / (m N epsilon), on the mean."""
    plan = toy_plan(toy_task((4, 6, 5)), rounds=10, cohort=Poisson(0.2))
    protection = NbAFL(variant="as_published", epsilon=60.0).prepare(plan).protection
    c = math.sqrt(2 * math.log(1.25 / 1e-5))
    assert protection.down_std / plan.expected_cohort == pytest.approx(2 * c * math.sqrt(88) / (4 * 3 * 60))


def test_as_published_one_of_four_samples_moves_a_report_by_all_that_the_clip_allows(plan):
    """The paper allows 2C/m = .5; a sample whose gradient outweighs the others turns the clipped report round."""
    prepared = NbAFL(variant="as_published").prepare(plan)
    context = Context(plan=plan, round=0, replicas=1, senders=(0,))
    rows = torch.tensor([[0.1, 0.0], [0.0, 0.1], [0.1, 0.1], [100.0, 0.0]])
    moved = [rows.mean(0), (rows * torch.tensor([1.0, 1.0, 1.0, -1.0]).unsqueeze(-1)).mean(0)]
    sent, other = (
        Message(values=row.view(1, 1, 2), present=torch.ones(1, 1, dtype=torch.bool), senders=(0,)) for row in moved
    )
    first, second = (prepared.protection.report(m, context, {}, np.random.default_rng(0)).values for m in (sent, other))
    law = prepared.protection.law(UPLOADS, plan, 0)
    assert law.clip_norm * law.scale == -0.25
    assert float((first - second).norm()) > 1.99


@pytest.mark.parametrize(("exposures", "worth"), [(1, 230.4), (5, 56.5), (25, 15.7)])
def test_noise_of_the_papers_formula_at_epsilon_60_is_too_small_for_few_exposures_and_too_large_for_many(
    exposures, worth
):
    """sigma = c L sensitivity / epsilon at delta .01: L releases of that noise, exactly."""
    noise = math.sqrt(2 * math.log(1.25 / 0.01)) * exposures / 60
    assert dp_accounting.get_epsilon_gaussian(noise / math.sqrt(exposures), 0.01) == pytest.approx(worth, abs=0.05)


@pytest.mark.simulations
def test_as_published_the_sensitivity_exceeds_that_of_both_claims(toy_task, toy_plan):
    task = toy_task((4, 6, 5), side=6)
    plan = toy_plan(task)
    prepared = NbAFL(variant="as_published").prepare(plan)
    for claim in prepared.claims:
        (found,) = [e for e in check_claim(task, plan, prepared.protection, claim) if e.name == "sensitivity"]
        assert found.passed is False
        assert found.measured > 1.2 * found.allowed


def test_as_published_each_way_states_what_its_noise_is_worth(toy_task, toy_plan):
    """One sample, all rounds, twice the clip norm; the way down has the server's noise besides."""
    task = toy_task((4,) * 6)
    plan = toy_plan(task, cohort=Poisson(0.1), rounds=20)
    prepared = NbAFL(variant="as_published", epsilon=60.0, clip_norm=0.7).prepare(plan)
    up, server = prepared.protection.up_std, prepared.protection.down_std
    assert server > 0
    for claim, std in zip(prepared.claims, (up, math.hypot(up, server)), strict=True):
        exact = dp_accounting.get_epsilon_gaussian(std / (1.4 * math.sqrt(20)), claim.delta)
        assert claim.parameters["provable_epsilon"] == pytest.approx(exact, rel=1e-6)
