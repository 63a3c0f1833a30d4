"""Beliefs under a claim: the overview's figures, exact mechanisms that reach the bounds, and what delta adds.

Reconstruction robustness: known bounds, Renyi's looser one beside them, and a mechanism that attains the bound.
"""

import itertools
import math

import numpy as np
import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import GaussianCurve
from fedassay.audit.observer import AGGREGATE, UPLOADS
from fedassay.audit.posterior import (
    beyond_reconstruction,
    group_privacy,
    posterior_bounds,
    right_guesses,
    success_bound,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from toy_claim import toy_claim

PROBABILITIES, EPSILONS = st.floats(0, 1), st.floats(0, 20)


@pytest.mark.parametrize(
    ("prior", "epsilon", "low", "high"),
    [
        (0.5, 0.0, 0.5, 0.5),
        (0.5, math.log(3), 0.25, 0.75),
        (0.2, math.log(4), 1 / 17, 0.5),
        (0.5, 4.0, 0.0180, 0.9820),
        (0.0, 5.0, 0.0, 0.0),
        (1.0, 5.0, 1.0, 1.0),
        (0.3, math.inf, 0.0, 1.0),
        (0.5, 1000.0, 0.0, 1.0),
    ],
)
def test_the_bounds_are_those_of_bayes_rule(prior, epsilon, low, high):
    assert posterior_bounds(prior, epsilon) == pytest.approx((low, high), abs=5e-5)


@given(prior=st.floats(0.01, 0.99), epsilon=st.floats(0, 10))
def test_randomised_response_reaches_both_bounds(prior, epsilon):
    """A bit that is kept with probability e^epsilon / (1 + e^epsilon)."""
    kept = 1 / (1 + math.exp(-epsilon))
    after_yes = prior * kept / (prior * kept + (1 - prior) * (1 - kept))
    after_no = prior * (1 - kept) / (prior * (1 - kept) + (1 - prior) * kept)
    assert posterior_bounds(prior, epsilon) == pytest.approx((after_no, after_yes))


@given(prior=PROBABILITIES, epsilon=EPSILONS)
def test_the_bounds_hold_the_prior_and_are_each_others_complement(prior, epsilon):
    low, high = posterior_bounds(prior, epsilon)
    assert 0 <= low <= prior * (1 + 1e-12)
    assert prior * (1 - 1e-12) <= high <= 1
    assert posterior_bounds(1 - prior, epsilon)[0] == pytest.approx(1 - high, abs=1e-9)


@given(prior=PROBABILITIES, epsilon=st.floats(0, 8), delta=st.floats(0, 0.5))
def test_the_best_guess_on_the_extreme_mechanism_is_right_as_often_as_stated(prior, epsilon, delta):
    """Four outputs: two that name the data set (delta each), and a randomised bit; every rule of guessing is tried."""
    kept = (1 - delta) / (1 + math.exp(-epsilon))
    first, second = np.array([delta, kept, 1 - delta - kept, 0]), np.array([0, 1 - delta - kept, kept, delta])
    best = max(
        sum((prior * first[i], (1 - prior) * second[i])[choice] for i, choice in enumerate(rule))
        for rule in itertools.product((0, 1), repeat=4)
    )
    assert right_guesses(prior, epsilon, delta) == pytest.approx(best, abs=1e-12)


def exact_delta(one, other, epsilon):
    return max(float(np.maximum(a - np.exp(epsilon) * b, 0).sum()) for a, b in ((one, other), (other, one)))


@pytest.mark.parametrize("units", [1, 2, 3, 5])
def test_the_groups_delta_is_reached_by_a_mechanism_and_the_single_delta_is_not_enough(units):
    """Data sets with 0, 1, ... units; output 0 has probability x, e^eps x + delta, and so on: every step is tight."""
    epsilon, delta, chain = 0.4, 0.01, [0.02]
    for _ in range(units):
        chain.append(math.exp(epsilon) * chain[-1] + delta)
    outputs = [np.array([share, 1 - share]) for share in chain]
    assert all(exact_delta(a, b, epsilon) <= delta + 1e-12 for a, b in itertools.pairwise(outputs))
    together, joint = group_privacy(epsilon, delta, units)
    assert together == pytest.approx(units * epsilon)
    assert exact_delta(outputs[0], outputs[-1], together) == pytest.approx(joint)
    if units > 1:
        assert joint > units * delta > delta


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: posterior_bounds(1.1, 1.0), "prior must lie in"),
        (lambda: posterior_bounds(0.5, -1.0), "epsilon must be >= 0"),
        (lambda: posterior_bounds(0.5, math.nan), "epsilon must be >= 0"),
        (lambda: right_guesses(0.5, 1.0, 2.0), "delta must lie in"),
        (lambda: group_privacy(1.0, 0.1, 0), "units .* whole number"),
        (lambda: group_privacy(1.0, 0.1, True), "units .* whole number"),
        (lambda: group_privacy(1.0, -0.1, 2), "delta must lie in"),
    ],
)
def test_numbers_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(("kappa", "mu"), [(0.001, 3.0), (0.05, 1.0), (0.3, 0.1), (0.9, 1.0)])
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


@pytest.mark.parametrize(("kappa", "mu"), [(0.001, 2.5), (0.05, 1.0), (0.3, 0.3)])
def test_the_renyi_bound_of_every_order_lies_above_the_gaussian_one(kappa, mu):
    # Balle, Cherubin, Hayes 2022: (kappa e^rho)^((a - 1) / a) at order a; a Gaussian has rho = a mu^2 / 2.
    orders = np.linspace(1.01, 200, 5000)
    renyi = np.exp((np.log(kappa) + orders * mu**2 / 2) * (orders - 1) / orders).min()
    exact = success_bound(kappa, epsilon=math.inf, curve=GaussianCurve(mu))
    assert exact < min(1.0, renyi) < 3 * exact


def test_the_likelihood_ratio_attack_on_randomised_response_attains_the_bound():
    # One of ten secrets, reported with the chance that epsilon-DP allows: the report itself is the best guess. Its
    # reference arm answers at random, e^epsilon' away in one direction and less in the other.
    epsilon, secrets = 1.5, 10
    truth = math.exp(epsilon) / (math.exp(epsilon) + secrets - 1)
    reference = 1 / secrets
    local = math.log(truth / reference)
    assert success_bound(reference, epsilon=local) == pytest.approx(truth)
    assert success_bound(reference, epsilon=epsilon) > truth


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
        ({"unit": Unit.COORDINATE}, "one coordinate, which is less than a whole sample"),
        ({"unit": Unit.LABEL}, "one label, which is less than a whole sample"),
        ({"part": "layer output.bias"}, "only layer output.bias"),
        ({"subjects": "users of budget 1"}, "only users of budget 1"),
        ({"rounds": 2}, "use 3 rounds, but the claim covers 2"),
    ],
)
def test_a_claim_bounds_reconstructions_by_whom_and_of_what_it_covers(changes, reason):
    said = beyond_reconstruction(signed(**changes), observer=UPLOADS, rounds=3)
    assert reason in said
    assert bool(said) == bool(reason)
