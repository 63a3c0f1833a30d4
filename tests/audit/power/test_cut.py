"""How far a point lies under a curve, and the cut that goes by it."""

import math

import numpy as np
import pytest
from fedassay.audit.curve import GaussianCurve, ProfileCurve
from fedassay.audit.threshold import CountingPlan, SplitThreshold, best_cut, margin
from scipy.stats import norm


def plan(curve=None, trials=10_000):
    return CountingPlan(trials=trials, delta=1e-5, alpha=0.05, curve=curve)


def test_the_margin_by_hand():
    # f(a) = 1 - e a below its kink at 1 / (1 + e): slope -e.
    curve, fpr, fnr, n = ProfileCurve((1.0,), (0.0,), (0.0,)), 0.1, 0.6, 400
    spread = math.sqrt((0.6 * 0.4 + math.e**2 * 0.1 * 0.9) / n)
    assert margin(curve, fpr, fnr, n) == pytest.approx((1 - 0.1 * math.e - 0.6) / spread)
    assert margin(curve, fpr, 0.8, n) < 0
    np.testing.assert_allclose(margin(curve, fpr, [fnr, fnr], 4 * n), 2 * margin(curve, fpr, fnr, n))


def test_of_a_halved_noise_the_cut_is_near_the_one_of_the_largest_margin():
    mu, rng = 1.0, np.random.default_rng(0)
    found = best_cut(rng.normal(2 * mu, 1, 20_000), rng.normal(0, 1, 20_000), plan(GaussianCurve(mu)))

    def true_margin(cut):
        return float(margin(GaussianCurve(mu), norm.sf(cut), norm.cdf(cut - 2 * mu), 10_000))

    assert true_margin(found.threshold) > 0.95 * max(true_margin(cut) for cut in np.linspace(-1, 3, 401))
    assert found.promise == (found.margin, 0.0)
    assert found.margin > 10


def test_where_nothing_lies_under_the_curve_the_cut_is_that_of_the_largest_bound():
    rng = np.random.default_rng(1)
    sides = rng.normal(1, 1, 5000), rng.normal(0, 1, 5000)
    assert best_cut(*sides, plan(GaussianCurve(3.0))) == best_cut(*sides, plan())


def test_more_trials_to_count_move_the_cut_into_the_tail():
    rng = np.random.default_rng(2)
    sides = rng.normal(2, 1, 20_000), rng.normal(0, 1, 20_000)
    cuts = [abs(best_cut(*sides, plan(trials=trials)).threshold - 1) for trials in (100, 10_000, 1_000_000)]
    assert cuts == sorted(cuts)
    assert cuts[0] < cuts[2] - 0.5


def test_one_score_everywhere_and_few_scores_have_a_cut():
    same = best_cut(np.full(5, 2.0), np.full(5, 2.0), plan(GaussianCurve(1.0)))
    assert (same.threshold, same.margin) == (2.0, 0.0)
    assert same.bound < 0
    assert best_cut(np.array([1.0]), np.array([0.0]), plan()).threshold == 0.5


def test_a_split_with_a_curve_chooses_by_it_and_counts_the_rest():
    rng, curve = np.random.default_rng(3), GaussianCurve(1.0)
    member, nonmember = rng.normal(2, 1, 1000), rng.normal(0, 1, 1000)
    (by_curve,) = SplitThreshold(0.5, curve=curve).counts(member, nonmember, delta=1e-5, alpha=0.05)
    (by_bound,) = SplitThreshold(0.5).counts(member, nonmember, delta=1e-5, alpha=0.05)
    assert (by_curve.n0, by_curve.n1) == (500, 500)
    assert by_curve.fnr_high < curve.fnr(by_curve.fpr_high)
    assert abs(by_curve.threshold - 1) < abs(by_bound.threshold - 1)
