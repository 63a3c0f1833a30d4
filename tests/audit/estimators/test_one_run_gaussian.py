"""The mean shift of canaries: known limits, coverage at the boundary, and scores that say nothing."""

import numpy as np
import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import epsilon_from_mu, mu_from_epsilon
from fedassay.audit.estimators.one_run_gaussian import detectable_epsilon, gaussian_canaries
from fedassay.audit.evidence import CanaryScores, Design, Setting
from fedassay.audit.observer import UPLOADS

DELTA = 1e-5
SETTING = Setting(unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=UPLOADS, rounds=1, design=Design.ONE_RUN)


def bounds(mu, canaries, repeats, noise=None, coins=None):
    rng = np.random.default_rng(0)
    for _ in range(repeats):
        included = rng.random(canaries) < 0.5 if coins is None else coins(rng)
        drawn = rng.standard_normal(canaries) if noise is None else noise(rng, canaries)
        scores = CanaryScores(mu * included + drawn, included, SETTING)
        yield gaussian_canaries(scores, delta=DELTA, alpha=0.05, epsilon=1.0)


@pytest.mark.parametrize(("epsilon", "limit"), [(1, 0.58), (2, 1.54), (4, 3.49), (8, 7.40)])
def test_the_mean_bound_of_1000_canaries_is_near_that_of_a_known_deviation(epsilon, limit):
    found = [one.epsilon_low for one in bounds(mu_from_epsilon(epsilon, DELTA), 1000, 200)]
    # The standard error of the mean is at most .03.
    assert np.mean(found) == pytest.approx(limit, rel=0.05, abs=0.08)


@pytest.mark.parametrize("mu", [0.0, 0.92])
def test_the_truth_is_exceeded_at_the_level(mu):
    # 2,000 repeats at level .05: 100 expected, standard deviation 9.7; more than 140 with probability 4e-5.
    epsilon = epsilon_from_mu(mu, DELTA) if mu else 0.0
    assert sum(one.epsilon_low > epsilon for one in bounds(mu, 60, 2000)) <= 140


def heavy(rng, n):
    return rng.standard_t(2, n)


def likelihood_ratios(rng, n):
    return np.exp(2 * rng.standard_normal(n))


def of_two_sizes(rng, n):
    return rng.standard_normal(n) * np.where(np.arange(n) < n // 2, 0.1, 3.0)


@pytest.mark.parametrize("noise", [heavy, likelihood_ratios, of_two_sizes])
def test_scores_that_are_not_gaussian_bound_nothing(noise):
    (found,) = bounds(5.0, 1000, 1, noise)
    assert found.epsilon_low == 0
    assert "not Gaussian" in found.witness
    assert found.detectable is None


@pytest.mark.parametrize("canaries", [1000, 4000])
def test_posteriors_whose_skewness_cancels_bound_nothing(canaries):
    mu, rng = 1.75, np.random.default_rng(2)
    included = rng.random(canaries) < 0.5
    exact = mu * included + rng.standard_normal(canaries)
    scores = CanaryScores(1 / (1 + np.exp(-mu * (exact - mu / 2))), included, SETTING)
    assert gaussian_canaries(scores, delta=DELTA, alpha=0.05).epsilon_low == 0


def test_noise_that_all_canaries_share_changes_nothing():
    shared = bounds(0.92, 400, 1, lambda rng, n: rng.standard_normal(n) + 1000.0)
    assert 0 < next(shared).epsilon_low < 4


def test_half_of_the_noise_is_refuted():
    (found,) = bounds(2 * mu_from_epsilon(1.0, DELTA), 2000, 1)
    assert found.epsilon_low > 1


@pytest.mark.parametrize(
    "included",
    [np.zeros(200, dtype=bool), np.ones(200, dtype=bool), np.arange(200) < 1],
    ids=["none", "all", "one of all"],
)
def test_one_sided_coins_bound_nothing(included):
    scores = CanaryScores(np.random.default_rng(0).standard_normal(200), included, SETTING)
    assert gaussian_canaries(scores, delta=DELTA, alpha=0.05).epsilon_low == 0


def test_the_detectable_epsilon_is_that_of_nine_in_ten_runs():
    seen = detectable_epsilon(1000, epsilon=1.0, delta=DELTA, alpha=0.05)
    found = [one.epsilon_low > 1 for one in bounds(mu_from_epsilon(seen, DELTA), 1000, 300)]
    # Standard deviation .017.
    assert np.mean(found) == pytest.approx(0.9, abs=0.06)
    assert detectable_epsilon(19, epsilon=1.0, delta=DELTA, alpha=0.05) is None


def test_pure_claims_and_other_designs_are_refused():
    scores = next(iter([CanaryScores(np.arange(40.0), np.arange(40) % 2 == 0, SETTING)]))
    with pytest.raises(ValueError, match="delta must be > 0"):
        gaussian_canaries(scores, delta=0.0, alpha=0.05)
    with pytest.raises(ValueError, match="included must be booleans of shape"):
        CanaryScores(np.arange(4.0), np.arange(4), SETTING)
