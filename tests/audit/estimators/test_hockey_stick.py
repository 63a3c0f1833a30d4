"""The bound from outputs: a classifier that finds what there is, and never more."""

import math

import numpy as np
import pytest
from fedassay.audit.curve import GaussianCurve, mu_from_epsilon
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.estimators.hockey_stick import MechanismOutputs, fit, hockey_stick
from fedassay.audit.threshold import FixedThreshold
from scipy.optimize import minimize

LEVELS = {"delta": 1e-5, "alpha": 0.05}


@pytest.fixture(scope="module")
def outputs_of(setting_of):
    return lambda member, nonmember, **changes: MechanismOutputs(member, nonmember, setting_of(**changes))


def test_the_fit_is_the_minimum_of_the_penalised_loss():
    rng = np.random.default_rng(0)
    member, nonmember = rng.normal(0.7, 1, (40, 2)), rng.normal(0, 1.3, (60, 2))
    found = fit(member, nonmember)
    both, truth = np.concatenate([member, nonmember]), np.r_[np.ones(40), np.zeros(60)]
    standard = (both - both.mean(axis=0)) / np.abs(both - both.mean(axis=0)).mean(axis=0)
    features = np.c_[np.ones(100), standard, standard**2 - 1]
    share = np.where(truth == 1, 100 / 80, 100 / 120)

    def loss(weights):
        odds = features @ weights
        return np.sum(share * (np.logaddexp(0, odds) - truth * odds)) + weights @ weights / 2

    np.testing.assert_allclose(found.weights, minimize(loss, np.zeros(5), tol=1e-10).x, atol=1e-4)


def test_of_two_gaussians_it_learns_the_likelihood_ratio():
    rng = np.random.default_rng(1)
    found = fit(rng.normal(1, 1, (20_000, 1)), rng.normal(0, 2, (20_000, 1)))
    x = np.linspace(-3, 3, 13)
    exact = math.log(2) - (x - 1) ** 2 / 2 + x**2 / 8
    np.testing.assert_allclose(found.score(x[:, None]), exact, atol=0.25)


def test_a_leak_in_many_coordinates_is_found_without_being_given_where(outputs_of, scores_of):
    # Mean mu along a diagonal of ten coordinates; the oracle projects on it. 4000 trials per arm.
    rng, mu = np.random.default_rng(2), mu_from_epsilon(8, 1e-5)
    shift = np.full(10, mu / math.sqrt(10))
    arms = [rng.normal(size=(4000, 10)) + arm * shift for arm in (1, 0)]
    seen = hockey_stick(outputs_of(*arms), **LEVELS, epsilon=1.0, witness="ten coordinates")
    oracle = [arm @ shift / mu for arm in arms]
    best = clopper_pearson(scores_of(*oracle), **LEVELS, threshold=FixedThreshold(mu / 2 + 1.5))
    assert 0.75 * best.epsilon_low < seen.epsilon_low < 8
    assert (seen.n0, seen.n1, seen.estimator, seen.witness) == (2000, 2000, "hockey_stick", "ten coordinates")
    assert seen.detectable > 1


def test_a_stated_curve_is_tested(outputs_of):
    rng = np.random.default_rng(4)
    outputs = outputs_of(rng.normal(2, 1, (2000, 3)), rng.normal(0, 1, (2000, 3)))
    assert hockey_stick(outputs, **LEVELS, curve=GaussianCurve(1.0)).below_curve
    assert not hockey_stick(outputs, **LEVELS, curve=GaussianCurve(6.0)).below_curve


def test_the_counted_half_does_not_move_the_classifier(outputs_of):
    rng = np.random.default_rng(7)
    member, nonmember = rng.normal(1, 1, (40, 1)), rng.normal(0, 1, (40, 1))
    first = hockey_stick(outputs_of(member, nonmember), **LEVELS, seed=3)
    order = np.random.default_rng(3)
    member[order.permutation(40)[20:]] += 5
    nonmember[order.permutation(40)[20:]] += 5
    moved = hockey_stick(outputs_of(member, nonmember), **LEVELS, seed=3)
    assert moved.threshold == first.threshold
    assert moved.false_positives != first.false_positives


def test_separated_constant_and_huge_outputs_give_finite_numbers(outputs_of):
    rng = np.random.default_rng(8)
    apart = hockey_stick(outputs_of(np.ones((200, 2)), np.zeros((200, 2))), **LEVELS)
    assert apart.epsilon_low == apart.ceiling
    assert hockey_stick(outputs_of(np.ones((200, 2)), np.ones((200, 2))), **LEVELS).epsilon_low == 0
    huge = hockey_stick(outputs_of(1e200 * rng.normal(size=(50, 1)), rng.normal(size=(50, 1))), **LEVELS)
    assert math.isfinite(huge.epsilon_low)


def test_outputs_that_cannot_be_learnt_from_are_refused(outputs_of):
    some = np.zeros((4, 2))
    for member, words in [
        (np.zeros(4), r"member must have 2 dimension.s., got shape \(4,\)"),
        (np.zeros((0, 2)), r"member must not be empty, got shape \(0, 2\)"),
        (np.full((1, 2), np.nan), "member must be finite, got 2 of 2"),
        (np.zeros((4, 3)), "member and nonmember must have the same number of columns, got 3 and 2"),
    ]:
        with pytest.raises(ValueError, match=words):
            outputs_of(member, some)
    with pytest.raises(ValueError, match=r"splitting 1 member trials by fraction 0\.5 leaves one part empty"):
        hockey_stick(outputs_of(some[:1], some), **LEVELS)
