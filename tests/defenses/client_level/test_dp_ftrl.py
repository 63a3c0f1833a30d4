"""DP-FTRL: the noise of a run is that of its matrix, claims are those of the participation, and broken sensitivities
violate them by the factor that brute force gives.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency
from fedassay.audit.curve import GaussianCurve, ProfileCurve, epsilon_from_mu
from fedassay.defenses.accounting.gaussian import calibrate_sampled_gaussian
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg
from fedassay.defenses.client_level.dp_ftrl import DPFTRL, participation
from fedassay.defenses.controls.correlated import (
    ControlCloserParticipations,
    ControlColumnsNotNormalised,
    ControlNodesRedrawn,
    ControlOneParticipation,
    ControlRestartUnpaid,
    ControlShortHorizon,
)
from fedassay.defenses.controls.fault import correct_version
from fedassay.fl.rounds import Rounds, given_rows
from fedassay.fl.sampling import Epoch, FixedSize, Full, Poisson
from fedassay.fl.streams import Runs, Streams

PASSES = Epoch(3, same=True)


@pytest.fixture
def plan(toy_task, toy_plan):
    return toy_plan(toy_task((4, 6, 5, 1)), rounds=6, cohort=PASSES)


def released(prepared, plan, rows, runs=1):
    """Aggregates of all rounds, ``(rounds, runs, d)``."""
    rounds = Rounds(
        plan=plan,
        protection=prepared.protection,
        streams=Streams(0),
        runs=Runs(replicas=runs),
        rows=given_rows(rows),
    )
    return torch.stack([turn.aggregate for turn in rounds.each(plan.rounds)])


@pytest.mark.parametrize("kind", ["tree", "honaker", "dense"])
def test_the_noise_of_a_run_has_the_covariance_of_its_matrix(plan, kind):
    """Of 4,000 runs of some numbers each; entries are within five standard errors."""
    prepared = DPFTRL(kind=kind, clip_norm=0.5).prepare(plan)
    values = released(prepared, plan, torch.zeros(1), runs=4000).double() * plan.expected_cohort
    values = values / (0.5 * prepared.protection.noise_multiplier)
    seen = torch.einsum("srd,trd->st", values, values) / (values.shape[1] * values.shape[2])
    weights = prepared.protection.noise.weights
    expected = weights @ weights.T
    errors = np.sqrt((np.square(expected) + np.outer(np.diag(expected), np.diag(expected))) / values[0].numel())
    assert (np.abs(seen.numpy() - expected) < 5 * errors).all()


def test_rows_are_clipped_and_equal_draws_give_equal_noise(plan):
    prepared = DPFTRL(clip_norm=0.5).prepare(plan)
    rows = torch.zeros(1, 4, plan.layout.dim)
    rows[0, 1, 0] = 30.0
    moved = released(prepared, plan, rows) - released(prepared, plan, torch.zeros(1))
    # Client 1 comes in the second round of each pass of three, as far as its clip norm over the expected cohort.
    expected = torch.zeros(6, 1, plan.layout.dim)
    expected[[1, 4], 0, 0] = 0.5 / plan.expected_cohort
    torch.testing.assert_close(moved, expected)


def test_noise_of_its_own_in_each_round_is_that_of_dp_fedavg(plan):
    """In every round, as in DP-FedAvg with all clients; in one round of three, as in a third of the rounds."""
    own = DPFTRL(kind="independent")
    full = replace(plan, cohort=Full())
    (claim,) = own.prepare(full).claims
    fedavg = DPFedAvg().prepare(full)
    assert own.prepare(full).protection.noise_multiplier == pytest.approx(fedavg.protection.noise_multiplier, rel=1e-3)
    assert claim.curve == GaussianCurve(claim.curve.mu)
    assert claim.adjacency is Adjacency.ADD_REMOVE
    assert own.prepare(plan).protection.noise_multiplier == pytest.approx(math.sqrt(2) / claim.curve.mu)


def test_the_curve_gives_the_claimed_epsilon_and_the_spending_ends_there(plan):
    for cohort in (PASSES, Epoch(3), Full(), Poisson(0.5)):
        prepared = DPFTRL(kind="square_root").prepare(replace(plan, cohort=cohort))
        (claim,) = prepared.claims
        assert epsilon_from_mu(claim.curve.mu, claim.delta) == pytest.approx(4.0)
        spent = [prepared.spending[claim.claim_id](rounds) for rounds in range(1, 7)]
        assert spent == sorted(spent)
        assert spent[-1] == pytest.approx(4.0)


def test_coins_amplify_only_strategies_that_end_before_the_client_comes_again(plan):
    """Choquette-Choo et al. 2023, theorem 4: two bands in passes of three rounds are a sampled Gaussian of two."""
    coins = replace(plan, cohort=Epoch(3, same=True, probability=0.5))
    (claim,) = DPFTRL(kind="banded", bands=2).prepare(coins).claims
    assert isinstance(claim.curve, ProfileCurve)
    assert claim.parameters["rate"] == 0.5
    sampled = calibrate_sampled_gaussian(epsilon=4.0, delta=1e-5, rate=0.5, steps=2)
    assert claim.parameters["noise_multiplier"] == pytest.approx(sampled.sigma, rel=1e-6)
    for defense, cohort in (
        (DPFTRL(kind="banded", bands=4), coins.cohort),
        (DPFTRL(kind="square_root"), coins.cohort),
        (DPFTRL(kind="banded", bands=2), Poisson(0.5)),
    ):
        (claim,) = defense.prepare(replace(plan, cohort=cohort)).claims
        assert isinstance(claim.curve, GaussianCurve)
        assert claim.parameters["rate"] == 1.0


def test_a_random_order_is_zero_out_and_cohorts_of_fixed_size_count_as_every_round(plan):
    (claim,) = DPFTRL().prepare(replace(plan, cohort=Epoch(3))).claims
    assert claim.adjacency is Adjacency.ZERO_OUT
    assert "in any order" in claim.sampling
    (claim,) = DPFTRL().prepare(replace(plan, cohort=FixedSize(2))).claims
    assert claim.adjacency is Adjacency.ZERO_OUT
    assert claim.parameters["participations"] == 6


@pytest.mark.parametrize(
    ("control", "violated"),
    [
        (ControlOneParticipation(), 8),
        (ControlCloserParticipations(), 6),
        (ControlShortHorizon(), 6),
        (ControlRestartUnpaid(), 5.5),
        (ControlColumnsNotNormalised(), 5),
        (ControlNodesRedrawn(), 5),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_wrong_sensitivity_violates_the_claim(plan, control, violated):
    """The true epsilon of what is released by the broken version, in every round; the correct one has the claimed 4."""
    plan = replace(plan, cohort=Full(), rounds=5)

    def true(prepared):
        moved = prepared.protection.noise.sensitivity(participation(plan))
        return epsilon_from_mu(moved / prepared.protection.noise_multiplier, 1e-5)

    assert true(correct_version(control).prepare(plan)) == pytest.approx(4.0)
    assert true(control.prepare(plan)) > violated
