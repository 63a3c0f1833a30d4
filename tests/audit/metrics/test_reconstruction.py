"""Reconstruction robustness: known bounds, Renyi's looser one beside them, and a mechanism that attains the bound."""

import math

import numpy as np
import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import GaussianCurve, ProfileCurve
from fedassay.audit.observer import AGGREGATE, UPLOADS
from fedassay.audit.posterior import beyond_reconstruction, success_bound
from scipy.stats import norm
from toy_claim import toy_claim


@pytest.mark.parametrize("kappa", [0.001, 0.05, 0.3, 0.9])
@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_a_gaussian_claim_shifts_the_prior_by_mu(kappa, mu):
    bound = success_bound(kappa, epsilon=math.inf, curve=GaussianCurve(mu))
    assert bound == pytest.approx(norm.cdf(norm.ppf(kappa) + mu), abs=1e-12)


def test_a_pure_epsilon_multiplies_a_small_prior_and_divides_what_a_large_one_lacks():
    assert success_bound(0.05, epsilon=1.0) == pytest.approx(0.05 * math.e)
    assert success_bound(0.5, epsilon=1.0) == pytest.approx(1 - 0.5 / math.e)
    assert success_bound(0.05, epsilon=1.0, delta=0.01) == pytest.approx(0.01 + 0.05 * math.e)


def test_no_privacy_allows_everything_and_perfect_privacy_the_prior():
    assert success_bound(0.05, epsilon=math.inf) == 1.0
    assert success_bound(0.05, epsilon=1e9) == 1.0
    assert success_bound(0.05, epsilon=0.0) == pytest.approx(0.05)
    assert success_bound(0.05, epsilon=math.inf, curve=GaussianCurve(0.0)) == pytest.approx(0.05)
    assert success_bound(1.0, epsilon=0.1) == 1.0
    assert success_bound(0.0, epsilon=5.0) == 0.0


def test_of_two_promises_the_stronger_counts():
    curve = ProfileCurve((0.0,), (0.2,), (0.2,))
    assert success_bound(0.1, epsilon=math.inf, curve=curve) == pytest.approx(0.3)
    assert success_bound(0.1, epsilon=0.5, curve=curve) == pytest.approx(0.1 * math.exp(0.5))


@pytest.mark.parametrize("kappa", [0.001, 0.05, 0.3])
@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_the_renyi_bound_of_every_order_lies_above_the_gaussian_one(kappa, mu):
    # Balle, Cherubin, Hayes 2022: (kappa e^rho)^((a - 1) / a) at order a; a Gaussian has rho = a mu^2 / 2.
    orders = np.linspace(1.01, 200, 5000)
    renyi = np.exp((np.log(kappa) + orders * mu**2 / 2) * (orders - 1) / orders).min()
    exact = success_bound(kappa, epsilon=math.inf, curve=GaussianCurve(mu))
    assert exact < min(1.0, renyi) < 3 * exact


def test_the_likelihood_ratio_attack_on_randomised_response_attains_the_bound():
    # One of ten secrets, reported with the chance that epsilon-DP allows: the report itself is the best guess. Its
    # reference world answers at random, e^epsilon' away in one direction and less in the other.
    epsilon, secrets = 1.5, 10
    truth = math.exp(epsilon) / (math.exp(epsilon) + secrets - 1)
    reference = 1 / secrets
    local = math.log(truth / reference)
    assert success_bound(reference, epsilon=local) == pytest.approx(truth)
    assert success_bound(reference, epsilon=epsilon) > truth


def test_a_simulated_attack_on_a_gaussian_release_stays_below_its_bound_and_comes_near():
    # Two equally likely points mu apart are one unit; the better half-line is right with Phi(mu / 2). The world that
    # stands between them is mu / 2 from either. 99.99 % binomial slack: three standard errors and more.
    rng, mu, n = np.random.default_rng(0), 1.2, 40_000
    secret = rng.integers(2, size=n)
    right = ((secret * mu + rng.normal(size=n) > mu / 2) == secret).mean()
    bound = success_bound(0.5, epsilon=math.inf, curve=GaussianCurve(mu / 2))
    assert right == pytest.approx(bound, abs=4 * (0.25 / n) ** 0.5)


@pytest.mark.parametrize(
    ("kappa", "epsilon", "delta", "says"),
    [
        (-0.1, 1.0, 0.0, "kappa .*must lie in .0, 1., got -0.1"),
        (math.nan, 1.0, 0.0, "kappa .*must lie in .0, 1., got nan"),
        (0.1, -1.0, 0.0, "epsilon must be >= 0, got -1.0"),
        (0.1, 1.0, 2.0, "delta must lie in .0, 1., got 2.0"),
    ],
)
def test_what_is_no_chance_is_refused(kappa, epsilon, delta, says):
    with pytest.raises(ValueError, match=says):
        success_bound(kappa, epsilon=epsilon, delta=delta)


def signed(**changes):
    fields = {"unit": Unit.SAMPLE, "observer": UPLOADS, "rounds": 3, "dp_model": "local"}
    return toy_claim(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"unit": Unit.CLIENT}, ""),
        ({"unit": Unit.REPORT, "adjacency": Adjacency.REPLACE_ONE}, ""),
        ({"observer": AGGREGATE}, "the claim covers the server that observes only the aggregate"),
        ({"unit": Unit.COORDINATE}, "one coordinate, which holds no whole sample"),
        ({"unit": Unit.LABEL}, "one label, which holds no whole sample"),
        ({"part": "layer output.bias"}, "of layer output.bias alone"),
        ({"subjects": "users of budget 1"}, "for users of budget 1 alone"),
        ({"rounds": 2}, "any of 3 rounds, the claim covers 2"),
    ],
)
def test_a_claim_bounds_reconstructions_by_whom_and_of_what_it_covers(changes, reason):
    said = beyond_reconstruction(signed(**changes), observer=UPLOADS, rounds=3)
    assert reason in said
    assert bool(said) == bool(reason)
