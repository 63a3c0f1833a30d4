"""FedRE on clipped sample gradients: a step by hand, the noise against the claim, and what a sample can move."""

import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.defenses.layers.fedre import FedRE
from fedassay.defenses.layers.fedre_per_sample import FedREPerSample
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Context
from fedassay.fl.sampling import FixedSize, Full
from fedassay.fl.streams import Streams

DELTA = 1e-5


@pytest.fixture
def task(toy_task):
    return toy_task((4, 6, 5))


@pytest.fixture
def plan(task, toy_plan):
    """Two layers of 27 and 3 numbers, three clients, three rounds of FedSGD, lots of all samples."""
    return replace(toy_plan(task), lot=Full())


def step(plan, rows, present=None, **fields):
    """The direction of client 1 from gradients ``(R, n, 30)``."""
    protection = FedREPerSample(**fields).prepare(plan).protection
    there = torch.ones(rows.shape[:2], dtype=torch.bool) if present is None else present
    context = Context(plan=plan, round=0, replicas=len(rows), senders=(1,))
    return protection.local_step(rows, there, 1, context, protection.initial_state(plan), np.random.default_rng(0))


def test_a_step_by_hand(plan):
    """Three gradients of all twos, the last absent: each layer of the others has its clip norm, and the sum is divided
    by six, the client's samples; the noise is that of a sum that one sample moves by C.
    """
    rows, many = torch.full((1, 3, 30), 2.0), 4000
    fields = {"epsilon": 5.0, "clip_norms": (1.0, 0.5), "scores": (1.0, 2.0), "even": 0.5}
    present = torch.tensor([[True, True, False]])
    found = step(plan, rows.expand(many, -1, -1), present.expand(many, -1), **fields)
    expected = torch.cat([torch.full((27,), 2 / math.sqrt(27)), torch.full((3,), 2 * 0.5 / math.sqrt(3))]) / 6
    mu = 1 / dp_accounting.get_sigma_gaussian(5.0, DELTA)
    stds = [norm * math.sqrt(3) / (mu * math.sqrt(share)) / 6 for norm, share in ((1.0, 0.65), (0.5, 0.35))]
    for layer, std in ((slice(0, 27), stds[0]), (slice(27, 30), stds[1])):
        assert float(found[:, layer].std(0).mean()) == pytest.approx(std, rel=0.02)
        error = 6 * std / math.sqrt(many)
        torch.testing.assert_close(found[:, layer].mean(0), expected[layer], rtol=0, atol=error)


def test_its_noise_on_the_mean_is_two_n_times_smaller_than_on_a_whole_gradient(plan):
    fields = {"epsilon": 5.0, "scores": (1.0, 2.0)}
    one, whole = (kind(**fields).prepare(plan).protection for kind in (FedREPerSample, FedRE))
    scores = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(whole.noise(scores), 2 * one.noise(scores))


def test_the_claim_is_of_one_sample_and_holds_for_every_local_step(plan):
    prepared = FedREPerSample(epsilon=3.0).prepare(replace(plan, algorithm=FedAvg(learning_rate=0.1, local_steps=4)))
    (claim,) = prepared.claims
    assert (claim.unit, claim.adjacency, claim.part) == (Unit.SAMPLE, Adjacency.ADD_REMOVE, "joint")
    assert claim.parameters["releases"] == prepared.protection.budget.rounds == 12
    assert dp_accounting.get_epsilon_gaussian(1 / claim.curve.mu, DELTA) == pytest.approx(3.0, rel=1e-6)


def test_one_sample_moves_the_joint_release_by_its_mu_at_most(plan):
    """The naive accounting of twelve releases: distance of the sums over noise, layer by layer, squares added."""
    protection = FedREPerSample(epsilon=3.0, scores=(1.0, 9.0), clip_norms=(1.0, 0.3)).prepare(plan).protection
    noise = protection.noise(torch.tensor([1.0, 9.0]))
    mu = math.sqrt(plan.rounds * sum((norm / float(std)) ** 2 for norm, std in zip((1.0, 0.3), noise, strict=True)))
    assert dp_accounting.get_epsilon_gaussian(1 / mu, DELTA) == pytest.approx(3.0, rel=1e-6)


def test_reports_get_no_second_noise(task, plan, rng):
    """Clip norms of nearly zero, and with them the noise: a noise on reports of another size would show."""
    protection = FedREPerSample(clip_norms=(1e-9,), scores=(1.0, 1.0), aggregation="mean").prepare(plan).protection
    start = task.initial(Streams(0))
    final = run_federation(task, plan, protection, Streams(0))
    torch.testing.assert_close(final[0], start, rtol=0, atol=1e-6)


def test_lots_of_fixed_size_are_refused(plan):
    with pytest.raises(ValueError, match="lot"):
        FedREPerSample().prepare(replace(plan, lot=FixedSize(2)))


@pytest.mark.simulations
def test_clients_with_other_preferences_are_noised_by_their_own_scores(plan):
    protection = FedREPerSample(region=[[0, 0, 1, 1], [1, 1, 2, 2]], clip_norms=(1.0, 1.0)).prepare(plan).protection
    state = {"scores": torch.tensor([[[1.0, 100.0], [100.0, 1.0]]])}
    rows, present = torch.zeros(1, 4, 30), torch.ones(1, 4, dtype=torch.bool)
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1))
    spread = []
    for client in (0, 1):
        draws = [
            protection.local_step(rows, present, client, context, state, np.random.default_rng(seed))[0]
            for seed in range(300)
        ]
        spread.append(torch.stack(draws)[:, :27].std() * plan.expected_lot(client))
    expected = [protection.noise(state["scores"][0, client])[0] for client in (0, 1)]
    torch.testing.assert_close(torch.stack(spread).double(), torch.stack(expected), rtol=0.05, atol=0)
