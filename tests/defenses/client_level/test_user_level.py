"""User-level DP-FedSGD: what all samples of one user at all clients move, and what sampling clients apart is worth."""

import dataclasses

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import AGGREGATE, GLOBAL_MODELS, UPLOADS
from fedassay.defenses.accounting.gaussian import SampledGaussian, calibrate_sampled_gaussian
from fedassay.defenses.client_level.user_level import UserLevel, UserLevelProtection, user_sums
from fedassay.defenses.controls.clipping import UserClipPerClientProtection, UserClipPerSampleProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.canary import Canary
from fedassay.fl.engine import run_federation
from fedassay.fl.sampling import FixedSize, Full, Poisson
from fedassay.fl.training.local import Batch
from scipy.integrate import trapezoid
from scipy.stats import norm


def test_one_round_by_hand_is_each_users_clipped_sum_over_the_expected_samples(toy_task, toy_plan, tape, streams):
    """Ten samples of five users, of whom the third has samples at both clients."""
    task = dataclasses.replace(toy_task((5, 5)), owners=torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4]))
    run_federation(
        task,
        toy_plan(task, rounds=1),
        UserLevelProtection(clip_norm=0.6, noise_multiplier=0.0, clients_per_user=2),
        streams,
        recorders=[tape],
    )
    (event,) = tape.events
    sent = []
    for part in task.parts:
        rows = task.network.sample_gradients(event.broadcast, task.images[part][None], task.labels[part][None])[0]
        sums = [rows[task.owners[part] == owner].sum(0) for owner in set(task.owners[part].tolist())]
        assert any(float(one.norm()) > 0.3 for one in sums)
        sent.append(-sum(one * min(1.0, 0.3 / float(one.norm())) for one in sums))
    torch.testing.assert_close(event.reports.values[0], torch.stack(sent), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(event.aggregate[0], sum(sent) / 10, rtol=1e-4, atol=1e-6)


def test_the_sums_are_those_of_a_loop_and_one_users_overflow_reaches_no_other():
    rng = np.random.default_rng(0)
    gradients = torch.from_numpy(rng.normal(size=(3, 7, 2))).float()
    owners, present = torch.from_numpy(rng.integers(-1, 3, size=(3, 7))), torch.from_numpy(rng.random((3, 7)) < 0.6)
    gradients[~present] = torch.nan
    found = user_sums(gradients, present, owners)
    for run in range(3):
        for place, owner in enumerate(sorted(set(owners.flatten().tolist()))):
            own = gradients[run][present[run] & (owners[run] == owner)]
            torch.testing.assert_close(found[run, place], own.sum(0))
    lot = torch.tensor([[[torch.inf], [-torch.inf], [2.0]]])
    protection = UserLevelProtection(clip_norm=1.0, noise_multiplier=0.0, clients_per_user=1)
    total = protection.total(lot, torch.ones(1, 3, dtype=torch.bool), torch.tensor([[4, 4, 5]]))
    assert total.tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("protection", "moved"),
    [(UserLevelProtection, 1.0), (UserClipPerSampleProtection, 4.0), (UserClipPerClientProtection, 3.0)],
    ids=["correct", "each sample clipped: 4 samples move it by 4", "each client clips to C: 3 clients move it by 3"],
)
def test_a_user_with_4_samples_at_each_of_3_clients_moves_the_sum_by_one_bound(
    toy_task, toy_plan, streams, make_tape, protection, moved
):
    """Without noise and with full lots, runs with and without the user differ by the user alone."""
    task, tapes = toy_task((4, 6, 5), inert=1), (make_tape(), make_tape())
    row = torch.zeros(task.network.layout.dim)
    row[-1] = 50.0
    user = Canary(unit=Unit.USER, present=row, clients=3, copies=4)
    for arm, tape in enumerate(tapes):
        run_federation(
            task,
            toy_plan(task, rounds=1),
            protection(clip_norm=0.5, noise_multiplier=0.0, clients_per_user=3),
            streams,
            batch=Batch(arm=arm),
            canary=user,
            recorders=[tape],
        )
    without, with_it = (tape.events[0].aggregate for tape in tapes)
    assert float((with_it - without).norm()) == pytest.approx(moved * 0.5 / 15, rel=1e-4)


def test_users_of_one_sample_at_one_client_are_the_samples_of_dp_sgd(toy_task, toy_plan, streams, make_tape):
    """Noise aside, the two defenses have one sum: DP-SGD divides each client's by its own lot."""
    task = toy_task((5, 5))
    task, tapes = dataclasses.replace(task, owners=torch.arange(10)), (make_tape(), make_tape())
    for tape, protection in zip(
        tapes,
        (
            UserLevelProtection(clip_norm=0.3, noise_multiplier=0.0, clients_per_user=1),
            DPSGDProtection(clip_norm=0.3, noise_multiplier=0.0),
        ),
        strict=True,
    ):
        run_federation(task, toy_plan(task, rounds=2, lot=Full()), protection, streams, recorders=[tape])
    for ours, theirs in zip(*(tape.events for tape in tapes), strict=True):
        torch.testing.assert_close(ours.aggregate, theirs.aggregate, rtol=1e-4, atol=1e-6)


@pytest.mark.simulations
def test_the_claim_states_the_bound_on_clients_as_an_assumption_only_where_it_is_one(toy_task, toy_plan):
    plan = toy_plan(toy_task((4, 6, 5)), rounds=4)
    (unconditional,) = UserLevel(epsilon=2.0, clip_norm=0.3).prepare(plan).claims
    assert (unconditional.unit, unconditional.adjacency) == (Unit.USER, Adjacency.ADD_REMOVE)
    assert (unconditional.observer, unconditional.rounds) == (GLOBAL_MODELS, 4)
    assert unconditional.parameters["clients_per_user"] == 3
    assert "no user" not in unconditional.trust
    assert unconditional.trust.startswith("the server, which sees every update")
    (assumed,) = UserLevel(epsilon=2.0, clip_norm=0.3, clients_per_user=2).prepare(plan).claims
    assert assumed.trust.endswith("no user has samples at more than 2 clients")
    assert UserLevel(clients_per_user=30).prepare(plan).protection.clients_per_user == 3


@pytest.mark.simulations
def test_it_publishes_the_law_of_a_users_whole_contribution_where_one_rate_describes_it(toy_task, toy_plan):
    task = toy_task((4, 6, 5))
    of = UserLevel(epsilon=2.0, clip_norm=0.3)
    full, apart = (toy_plan(task, cohort=cohort) for cohort in (Full(), Poisson(0.5)))
    protection = of.prepare(full).protection
    law = protection.law(AGGREGATE, full, 0)
    assert (law.clip_norm, law.rate, law.scale) == (0.3, 1.0, pytest.approx(-1 / 15))
    assert law.noise_std == pytest.approx(0.3 * protection.noise_multiplier / 15)
    assert protection.law(UPLOADS, full, 0) is None
    assert of.prepare(apart).protection.law(AGGREGATE, apart, 0) is None
    alone = toy_plan(dataclasses.replace(task, owners=torch.arange(15)), cohort=Poisson(0.5))
    single = dataclasses.replace(of, clients_per_user=1).prepare(alone).protection
    assert single.law(AGGREGATE, alone, 0).rate == 0.5


def mixture_delta(epsilon, *, sigma, chances, removing):
    """Delta of one release at ``epsilon`` by numerical integration: N(0, sigma^2) against a mixture at i / parts."""
    outputs = np.linspace(-14 * sigma, 1 + 14 * sigma, 400_001)
    parts = len(chances) - 1
    there = sum(chance * norm.pdf(outputs, i / parts, sigma) for i, chance in enumerate(chances))
    absent = norm.pdf(outputs, 0, sigma)
    one, other = (there, absent) if removing else (absent, there)
    return float(trapezoid(np.maximum(one - np.exp(epsilon) * other, 0), outputs))


def test_parts_drawn_independently_cost_what_numerical_integration_of_the_mixture_gives():
    mechanism = SampledGaussian(sigma=0.8, rate=0.3, steps=1, parts=3)
    chances = [0.343, 0.441, 0.189, 0.027]
    for epsilon in (0.1, 0.5, 1.0):
        both = [mixture_delta(epsilon, sigma=0.8, chances=chances, removing=one) for one in (True, False)]
        assert mechanism.epsilon(max(both)) == pytest.approx(epsilon, abs=2e-3)


def test_one_part_and_parts_that_are_always_there_are_the_plain_mechanism():
    one, plain = (SampledGaussian(sigma=1.1, rate=0.2, steps=7, **more) for more in ({"parts": 1}, {}))
    assert one.epsilon(1e-5) == plain.epsilon(1e-5)
    always, full = (SampledGaussian(sigma=1.1, rate=1.0, steps=7, **more) for more in ({"parts": 5}, {}))
    assert always.epsilon(1e-5) == full.epsilon(1e-5)


def test_parts_drawn_apart_cost_less_than_all_together_and_more_than_their_mean():
    """A user at k clients is in a round with probability 1 - (1 - q)^k, but rarely with the whole bound."""
    apart = SampledGaussian(sigma=1.0, rate=0.2, steps=10, parts=4).epsilon(1e-5)
    together = SampledGaussian(sigma=1.0, rate=1 - 0.8**4, steps=10).epsilon(1e-5)
    mean = SampledGaussian(sigma=5.0, rate=1.0, steps=10).epsilon(1e-5)
    assert mean < apart < together


@pytest.mark.simulations
def test_calibrated_noise_spends_the_budget_and_a_little_less_overspends_it():
    found = calibrate_sampled_gaussian(epsilon=2.0, delta=1e-5, rate=0.3, steps=5, parts=3)
    assert found.epsilon(1e-5) <= 2.0
    assert dataclasses.replace(found, sigma=found.sigma * 0.99).epsilon(1e-5) > 2.0


@pytest.mark.parametrize(
    ("changes", "owners", "message"),
    [
        ({"algorithm": FedAvg(learning_rate=0.1, local_steps=1)}, True, "algorithm must be fedsgd"),
        ({"cohort": FixedSize(2)}, True, "cohort must be Poisson or full"),
        ({"lot": FixedSize(2)}, True, "lot must be Poisson or full"),
        ({}, False, "needs a data set that names the owners"),
    ],
    ids=["several gradients", "cohorts of a fixed size", "lots of a fixed size", "no owners"],
)
def test_a_plan_that_its_theorem_does_not_cover_is_refused(toy_task, toy_plan, changes, owners, message):
    task = toy_task((4, 6, 5))
    task = task if owners else dataclasses.replace(task, owners=None)
    with pytest.raises(ValueError, match=message):
        UserLevel().prepare(toy_plan(task, **changes))


def test_data_whose_users_have_samples_at_more_clients_than_stated_are_refused(toy_task, toy_plan):
    task = dataclasses.replace(toy_task((4, 6, 5)), owners=torch.zeros(15, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"clients_per_user must be at least 3, .* got 2"):
        UserLevel(clients_per_user=2).prepare(toy_plan(task))
    assert UserLevel(clients_per_user=3).prepare(toy_plan(task)).claims


def test_a_task_without_owners_is_not_trained_under_a_protection_for_users(toy_task, toy_plan, streams):
    task = toy_task((4, 6))
    plan = toy_plan(task)
    protection = UserLevel().prepare(plan).protection
    with pytest.raises(ValueError, match="needs the owner of each sample"):
        run_federation(dataclasses.replace(task, owners=None), plan, protection, streams)
