"""LDPFedSel and EM-MDS in a federation: the rows are the randomisers' own reports, worth exactly the claim.

Local Gaussian: every report clipped and noised for itself, calibrated to the distance of two reports.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import epsilon_from_mu
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.local.vectors import vector
from fedassay.defenses.local.vectors.em_mds import LDPEMMDS
from fedassay.defenses.local.vectors.fedsel import LDPFedSel, top_count
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.fl.engine import run_federation
from fedassay.fl.message import Message
from fedassay.fl.protection import Context
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import normal
from fedassay.fl.training.local import Batch
from small_randomisers import moments

BOTH = pytest.mark.parametrize("part", [LDPFedSel, LDPEMMDS], ids=["fedsel", "em_mds"])
SMALL = [
    LDPFedSel(epsilon=4.0, top_share=0.4),
    LDPFedSel(epsilon=4.0, rule="ranking", share=0.3),
    LDPEMMDS(epsilon=4.0, chosen=2),
]
EACH = pytest.mark.parametrize("defense", SMALL, ids=["fedsel sampling", "fedsel ranking", "em_mds"])


@pytest.fixture(scope="module")
def plan(toy_task, toy_plan):
    """Two rounds, three clients, 30 coordinates."""
    return toy_plan(toy_task(), rounds=2)


def release_of(defense, plan):
    return defense.prepare(plan).protection.release


@EACH
@pytest.mark.parametrize("dim", [3, 4])
def test_both_rounds_of_a_report_are_worth_the_claimed_epsilon(defense, plan, dim):
    """Over all rows of five values, ties among them, and all reports: losses of rounds add."""
    law = release_of(defense, plan)
    values = np.array(list(itertools.product((-1.0, -0.5, 0.0, 0.5, 1.0), repeat=dim)))
    outputs = law.randomiser(dim).outputs(*law.randomiser(dim).inputs()).reports
    release = torch.from_numpy(law.written(outputs, dim)).unsqueeze(1)
    logs = law.log_density(release, law.contribution(law.radius * torch.from_numpy(values))).numpy()
    logs = logs[np.isfinite(logs).any(1)]
    assert 2 * (logs.max(1) - logs.min(1)).max() == pytest.approx(4.0, rel=1e-6)


@EACH
def test_a_row_is_the_randomisers_report_of_the_clipped_row(defense, plan):
    law = release_of(defense, plan)
    rows = 0.02 * torch.randn(6, 2, 5, generator=torch.Generator().manual_seed(0))
    seen = law.sample(rows, np.random.default_rng(3)).reshape(12, 5)
    values = law.values(law.contribution(rows.reshape(12, 5)).double().numpy())
    reports = law.randomiser(5).sample(values, np.random.default_rng(3))
    for row, report, value in zip(seen, reports, values, strict=True):
        by_hand = np.zeros(5)
        if isinstance(defense, LDPFedSel):
            by_hand[int(report[0])] = law.radius * report[1]
        else:
            by_hand = law.radius * report
        np.testing.assert_allclose(row.numpy(), by_hand, rtol=1e-6)
        own = float(law.randomiser(5).log_density(report, value))
        raw = torch.from_numpy(value * (law.radius if isinstance(defense, LDPFedSel) else 1.0))
        assert float(law.log_density(row, raw)) == pytest.approx(own)


@EACH
def test_the_mean_of_reports_is_that_of_the_randomisers_density(defense, plan):
    """40,000 replicas; five standard errors of five coordinates: wrong once in 10^5."""
    law = release_of(defense, plan)
    row = law.radius * torch.tensor([0.9, -0.2, 0.4, -1.0, 0.1])
    seen = law.sample(row.expand(40_000, 1, 5), np.random.default_rng(0)).double().numpy()[:, 0]
    randomiser, value = law.randomiser(5), law.values(law.contribution(row).double().numpy()[np.newaxis])[0]
    mean, variance = moments(randomiser, value)
    assert np.all(np.abs(seen.mean(0) / law.radius - mean) < 5 * np.sqrt(variance / 40_000))


@EACH
def test_many_rows_are_drawn_in_parts(defense, plan, monkeypatch):
    monkeypatch.setattr(vector, "_NUMBERS", 16)
    law = release_of(defense, plan)
    rows = 0.01 * torch.randn(50, 5, generator=torch.Generator().manual_seed(0))
    seen = law.sample(rows, np.random.default_rng(0))
    assert bool(law.log_density(seen, law.contribution(rows)).isfinite().all())


@EACH
def test_a_row_that_is_no_report_is_impossible(defense, plan):
    law, row = release_of(defense, plan), torch.zeros(5)
    impossible = [torch.zeros(5), torch.full((5,), law.radius), torch.tensor([law.radius, 0, -law.radius, 0, 0])]
    assert law.log_density(torch.stack(impossible), row).tolist() == [-math.inf] * 3
    with pytest.raises(ValueError, match="not independent"):
        law.log_densities(row, row)


@EACH
def test_a_diverged_update_still_sends_finite_numbers(defense, plan):
    law = release_of(defense, plan)
    wild = torch.tensor([math.nan, math.inf, -math.inf, 1e38, -1e-40])
    assert bool(law.contribution(wild).isfinite().all())
    assert bool(law.sample(wild.expand(50, 5), np.random.default_rng(0)).isfinite().all())


@BOTH
def test_rows_of_real_size_are_drawn_and_judged(part, toy_task, toy_plan):
    plan = toy_plan(toy_task((4, 4), inert=26_010 - 30), rounds=20)
    protection = part().prepare(plan).protection
    present = torch.tensor([[True, True, False]])
    values = 0.01 * torch.randn(1, 3, 26_010, generator=torch.Generator().manual_seed(0)) * present.unsqueeze(-1)
    updates = Message(values=values, present=present, senders=(0, 1, 2))
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1, 2))
    seen = protection.report(updates, context, {}, np.random.default_rng(0)).values[0]
    sent = 1 if part is LDPFedSel else 10
    assert (seen != 0).sum(-1).tolist() == [sent, sent, 0]
    law = protection.release
    assert bool(law.log_density(seen[:2], law.contribution(values[0, :2])).isfinite().all())
    absent, present = law.worst_pair(26_010)
    drawn = law.sample(present.expand(20, -1), np.random.default_rng(1))
    ratio = law.log_density(drawn, present) - law.log_density(drawn, absent)
    assert float(ratio.abs().max()) <= 0.4 * (1 + 1e-6)


def test_em_mds_looks_at_the_order_of_a_row_alone(plan):
    law, row = release_of(LDPEMMDS(chosen=2), plan), torch.tensor([3.0, -1.0, 0.5, 2.0, -4.0])
    torch.testing.assert_close(law.contribution(row), law.contribution(1e-6 * row))
    assert float(law.contribution(row).abs().max()) == pytest.approx(law.radius)


@pytest.mark.parametrize(("share", "dim", "top"), [(0.1, 30, 3), (0.1, 2, 1), (0.99, 10, 9), (0.001, 26_010, 26)])
def test_some_coordinates_count_as_large_and_never_all(share, dim, top):
    assert top_count(share, dim) == top


@BOTH
@pytest.mark.parametrize("bad", [0.0, 1.0, -0.5, math.nan])
def test_a_share_that_is_none_or_all_is_refused(part, bad):
    with pytest.raises(ValueError, match="top_share must be in"):
        part(top_share=bad)


def test_more_coordinates_than_there_are_are_refused(plan):
    with pytest.raises(
        ValueError, match=r"chosen, .*, must be below 30, the number of coordinates of an update, got 30"
    ):
        LDPEMMDS(chosen=30).prepare(plan)
    with pytest.raises(ValueError, match="chosen must be given"):
        LDPEMMDS(chosen=0)
    with pytest.raises(ValueError, match="share must be in"):
        LDPFedSel(share=1.0)


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


def test_no_two_clients_or_rounds_share_their_noise(reports):
    """4,000 numbers each: the largest of 36 correlations under five standard errors."""
    noise, _ = reports(LDPGaussianProtection(clip_norm=0.5, noise_std=0.8), replicas=40)
    rows = noise.permute(1, 2, 0, 3).reshape(9, -1).numpy()
    assert np.abs(np.corrcoef(rows) - np.eye(9)).max() < 5 / math.sqrt(4000)


def test_only_who_sees_uploads_has_a_law(toy_task, toy_plan):
    for observer in (SHUFFLED, AGGREGATE, GLOBAL_MODELS, FINAL_MODEL):
        law = LDPGaussianProtection(clip_norm=0.5, noise_std=0.8).law(observer, toy_plan(toy_task()), 0)
        assert law is None


@pytest.mark.parametrize("rounds", [1, 20])
@pytest.mark.parametrize("clip", [0.1, 3.0])
def test_the_claimed_curve_is_that_of_all_rounds_at_twice_the_clip_norm(rounds, clip, toy_task, toy_plan):
    prepared = LDPGaussian(epsilon=2.0, clip_norm=clip).prepare(toy_plan(toy_task(), rounds=rounds))
    (claim,) = prepared.claims
    assert claim.curve.mu == pytest.approx(math.sqrt(rounds) * 2 * clip / prepared.protection.noise_std)
    assert epsilon_from_mu(claim.curve.mu, claim.delta) == pytest.approx(2.0, rel=1e-6)
    assert claim.parameters["noise_std"] == prepared.protection.noise_std


def test_the_claim_is_one_report_of_any_two_against_the_server(toy_task, toy_plan):
    (claim,) = LDPGaussian().prepare(toy_plan(toy_task(), cohort=Poisson(0.5), rounds=7)).claims
    assert (claim.unit, claim.adjacency, claim.observer) == (Unit.REPORT, Adjacency.REPLACE_ONE, UPLOADS)
    assert (claim.rounds, claim.parameters["releases"], claim.dp_model) == (7, 7, "local")
