"""Local Gaussian: every report clipped and noised for itself, calibrated to the distance of two reports."""

import math

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, NeighboringRelation, SelfComposedDpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import epsilon_from_mu
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.fl.engine import run_federation
from fedassay.fl.message import Message
from fedassay.fl.protection import Context
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import normal
from fedassay.fl.training.local import Batch


@pytest.fixture
def reports(toy_task, toy_plan, tape, streams):
    """(protection, ...) -> reports ``(replicas, rounds, clients, inert)`` on 100 weights that no data moves, and who
    came.
    """

    def run(protection, replicas, **changes):
        task = toy_task((4, 6, 5), inert=100)
        plan = toy_plan(task, **changes)
        run_federation(task, plan, protection, streams, batch=Batch(replicas=replicas), recorders=[tape])
        seen = [event.reports for event in tape.events]
        return torch.stack([one.values[..., -100:] for one in seen], 1), torch.stack([one.present for one in seen], 1)

    return run


def test_a_report_is_the_clipped_update_plus_the_generators_noise(toy_task, toy_plan):
    context = Context(plan=toy_plan(toy_task((4, 6))), round=0, replicas=1, senders=(0, 1))
    updates = Message(
        values=torch.tensor([[[3.0, 4.0], [0.0, 0.5]]]), present=torch.ones(1, 2, dtype=torch.bool), senders=(0, 1)
    )
    protection = LDPGaussianProtection(clip_norm=2.0, noise_std=7.0)
    seen = protection.report(updates, context, {}, np.random.default_rng(4))
    noise = normal(np.random.default_rng(4), (1, 2, 2))
    torch.testing.assert_close(seen.values, torch.tensor([[[1.2, 1.6], [0.0, 0.5]]]) + 7.0 * noise)


def test_every_report_of_a_run_has_the_laws_noise(reports, toy_task, toy_plan, has_std):
    """45,000 numbers."""
    protection = LDPGaussianProtection(clip_norm=0.5, noise_std=0.8)
    noise, _ = reports(protection, replicas=50)
    law = protection.law(UPLOADS, toy_plan(toy_task()), 0)
    assert (law.clip_norm, law.scale, law.noise_std, law.rate, law.steps) == (0.5, 1.0, 0.8, 1.0, 1)
    assert has_std(noise, law.noise_std)
    assert not has_std(noise, 1.05 * law.noise_std)


def test_no_two_clients_or_rounds_share_their_noise(reports):
    """4,000 numbers each: the largest of 36 correlations under five standard errors."""
    noise, _ = reports(LDPGaussianProtection(clip_norm=0.5, noise_std=0.8), replicas=40)
    rows = noise.permute(1, 2, 0, 3).reshape(9, -1).numpy()
    assert np.abs(np.corrcoef(rows) - np.eye(9)).max() < 5 / math.sqrt(4000)


def test_an_absent_client_sends_nothing_not_even_noise(reports):
    noise, present = reports(LDPGaussianProtection(clip_norm=0.5, noise_std=0.8), replicas=40, cohort=Poisson(0.4))
    assert 0 < int(present.sum()) < present.numel()
    assert torch.equal(noise.any(-1), present)


def test_only_who_sees_uploads_has_a_law(toy_task, toy_plan):
    for observer in (SHUFFLED, AGGREGATE, GLOBAL_MODELS, FINAL_MODEL):
        law = LDPGaussianProtection(clip_norm=0.5, noise_std=0.8).law(observer, toy_plan(toy_task()), 0)
        assert law is None


def test_the_two_reports_furthest_apart_are_twice_the_clip_norm_apart(toy_task, toy_plan):
    law = LDPGaussianProtection(clip_norm=0.5, noise_std=0.8).law(UPLOADS, toy_plan(toy_task()), 0)
    row = torch.tensor([30.0, 40.0])
    assert float((law.contribution(row) - law.contribution(-row)).norm()) == pytest.approx(1.0)


@pytest.mark.parametrize("rounds", [1, 20])
@pytest.mark.parametrize("clip", [0.1, 3.0])
def test_the_claimed_curve_is_that_of_all_rounds_at_twice_the_clip_norm(rounds, clip, toy_task, toy_plan):
    prepared = LDPGaussian(epsilon=2.0, clip_norm=clip).prepare(toy_plan(toy_task(), rounds=rounds))
    (claim,) = prepared.claims
    assert claim.curve.mu == pytest.approx(math.sqrt(rounds) * 2 * clip / prepared.protection.noise_std)
    assert epsilon_from_mu(claim.curve.mu, claim.delta) == pytest.approx(2.0, rel=1e-6)
    assert claim.parameters["noise_std"] == prepared.protection.noise_std


def test_both_conventions_of_dp_accounting_find_the_claimed_epsilon(toy_task, toy_plan):
    """Its replace-one PLD takes noise over the norm and doubles it; add/remove takes noise over the distance, 2C."""
    clip, rounds = 0.5, 10
    noise = LDPGaussian(epsilon=3.0, clip_norm=clip).prepare(toy_plan(toy_task(), rounds=rounds)).protection.noise_std
    for relation, sensitivity in (
        (NeighboringRelation.REPLACE_ONE, clip),
        (NeighboringRelation.ADD_OR_REMOVE_ONE, 2 * clip),
    ):
        event = SelfComposedDpEvent(GaussianDpEvent(noise / sensitivity), rounds)
        assert PLDAccountant(relation).compose(event).get_epsilon(1e-5) == pytest.approx(3.0, rel=1e-3)


def test_the_claim_is_one_report_of_any_two_against_the_server(toy_task, toy_plan):
    (claim,) = LDPGaussian().prepare(toy_plan(toy_task(), cohort=Poisson(0.5), rounds=7)).claims
    assert (claim.unit, claim.adjacency, claim.observer) == (Unit.REPORT, Adjacency.REPLACE_ONE, UPLOADS)
    assert (claim.rounds, claim.parameters["releases"], claim.dp_model) == (7, 7, "local")
