import math

import numpy as np
import pytest
from fedassay.audit.binomial import epsilon_low, largest_certifiable_epsilon, upper_bound
from fedassay.audit.curve import GaussianCurve, mu_from_epsilon
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.power import minimum_detectable_epsilon
from fedassay.audit.threshold import BonferroniThresholds, FixedThreshold
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom


def test_no_error_in_a_hundred_gives_3_2813():
    assert epsilon_low(0, 0, 100, 100, delta=1e-5, alpha=0.05) == pytest.approx(3.2813, abs=1e-4)


@pytest.mark.parametrize("n", [10**3, 10**6])
def test_the_ceiling_has_the_closed_form(n):
    rate = 1 - 0.025 ** (1 / n)
    closed = math.log((1 - rate - 1e-5) / rate)
    assert largest_certifiable_epsilon(n, n, delta=1e-5, alpha=0.05) == pytest.approx(closed, rel=1e-9)


def test_hand_computed_bound_of_both_directions():
    # U(0, n; a) = 1 - a^(1/n); one trial per side at alpha .4 leaves .8 on both sides, which shows nothing.
    assert epsilon_low(0, 0, 1, 1, delta=0, alpha=0.4) == 0
    assert upper_bound(0, 2, 0.2) == pytest.approx(1 - math.sqrt(0.2))
    fpr, fnr = 1 - 0.1 ** (1 / 10), 1 - 0.1 ** (1 / 20)
    both = [math.log((1 - fnr - 0.1) / fpr), math.log((1 - fpr - 0.1) / fnr)]
    assert both[1] > both[0] > 0
    assert epsilon_low(0, 0, 10, 20, delta=0.1, alpha=0.2) == pytest.approx(both[1])
    assert epsilon_low(0, 0, 20, 10, delta=0.1, alpha=0.2) == pytest.approx(both[1])


def test_the_bound_on_a_rate_solves_the_binomial_tail():
    for k, n, alpha in [(0, 5, 0.05), (3, 17, 0.01), (99, 100, 0.2), (40, 1000, 1e-6)]:
        naive = brentq(lambda rate, k=k, n=n, alpha=alpha: binom.cdf(k, n, rate) - alpha, 1e-12, 1 - 1e-12, xtol=1e-14)
        assert upper_bound(k, n, alpha) == pytest.approx(naive, rel=1e-8)


def test_all_errors_bound_nothing_and_a_tiny_alpha_survives():
    np.testing.assert_array_equal(upper_bound([3, 7], [3, 7], 0.05), [1, 1])
    assert upper_bound(0, 1000, 1e-20) == pytest.approx(1 - 1e-20 ** (1 / 1000), rel=1e-9)


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.3))
def test_no_counts_beat_the_ceiling_and_delta_only_costs(n0, n1, share0, share1, delta):
    fp, fn = round(share0 * n0), round(share1 * n1)
    bound = epsilon_low(fp, fn, n0, n1, delta, 0.05)
    assert 0 <= bound <= largest_certifiable_epsilon(n0, n1, delta, 0.05)
    assert bound <= epsilon_low(fp, fn, n0, n1, 0.0, 0.05)


def test_a_measurement_carries_what_it_was_read_from(scores_of):
    scores = scores_of(np.r_[np.ones(97), np.zeros(3)], np.r_[np.ones(2), np.zeros(198)])
    seen = clopper_pearson(
        scores, delta=1e-5, alpha=0.05, threshold=FixedThreshold(0.5), epsilon=1.0, witness="canary 7"
    )
    assert (seen.n0, seen.n1, seen.false_positives, seen.false_negatives) == (200, 100, 2, 3)
    assert seen.fpr_high == pytest.approx(float(upper_bound(2, 200, 0.025)))
    assert seen.fnr_high == pytest.approx(float(upper_bound(3, 100, 0.025)))
    assert seen.epsilon_low == pytest.approx(epsilon_low(2, 3, 200, 100, 1e-5, 0.05))
    assert seen.estimate == pytest.approx(math.log((0.97 - 1e-5) / 0.01))
    assert seen.ceiling == pytest.approx(largest_certifiable_epsilon(200, 100, 1e-5, 0.05))
    assert (seen.threshold_policy, seen.threshold, seen.witness) == ("fixed", 0.5, "canary 7")
    planned = {"n0": 200, "n1": 100, "alpha": 0.05, "delta": 1e-5, "curve": None, "epsilon": 1.0}
    assert seen.detectable == minimum_detectable_epsilon(**planned, fpr=2.5 / 201)
    assert (seen.below_curve, seen.comparisons) == (None, 1)


def test_zero_errors_give_a_bound_but_no_point_estimate(scores_of):
    seen = clopper_pearson(scores_of(np.ones(50), np.zeros(50)), delta=1e-5, alpha=0.05, threshold=FixedThreshold(0.5))
    assert seen.estimate is None
    assert seen.epsilon_low == seen.ceiling
    assert seen.detectable is None


def test_bonferroni_prefers_the_point_under_the_curve_to_the_larger_bound(scores_of):
    rng = np.random.default_rng(5)
    scores = scores_of(rng.normal(1.85, 1, 500), rng.normal(0, 1, 500))
    both = clopper_pearson(
        scores, delta=1e-5, alpha=0.01, threshold=BonferroniThresholds((0.9, 3.0)), curve=GaussianCurve(0.925)
    )
    tail = clopper_pearson(scores, delta=1e-5, alpha=0.005, threshold=FixedThreshold(3.0), curve=GaussianCurve(0.925))
    assert tail.epsilon_low > both.epsilon_low
    assert (tail.below_curve, both.below_curve, both.threshold) == (False, True, 0.9)


@pytest.mark.simulations
def test_a_halved_sigma_falls_under_the_stated_curve_and_a_correct_one_does_not(scores_of):
    # A claim of 4 (mu .925; halved, 9.08), 500 trials per arm, alpha .01 / 6: exact false alarm 3e-6, exact power 1.
    mu, rng = mu_from_epsilon(4, 1e-5), np.random.default_rng(2)
    levels = {
        "delta": 1e-5,
        "alpha": 0.01 / 6,
        "threshold": FixedThreshold(mu / 2),
        "curve": GaussianCurve(mu),
        "epsilon": 4.0,
    }
    for _ in range(1000):
        assert not clopper_pearson(scores_of(rng.normal(mu, 1, 500), rng.normal(0, 1, 500)), **levels).below_curve
    for _ in range(200):
        broken = clopper_pearson(scores_of(rng.normal(mu, 0.5, 500), rng.normal(0, 0.5, 500)), **levels)
        assert broken.below_curve
        assert broken.epsilon_low < 4
