"""How far a point lies under a curve, and the cut that goes by it."""

import itertools
import math

import numpy as np
import pytest
from fedassay.audit.binomial import privacy_loss, upper_bound
from fedassay.audit.curve import GaussianCurve, ProfileCurve
from fedassay.audit.threshold import (
    BonferroniThresholds,
    CountingPlan,
    FixedThreshold,
    SplitThreshold,
    best_bound_threshold,
    best_cut,
    margin,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import norm

RNG = np.random.default_rng(0)
SCORES = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=12)


def counts(policy, member, nonmember, alpha=0.05):
    return policy.counts(np.asarray(member, float), np.asarray(nonmember, float), delta=1e-5, alpha=alpha)


def test_a_score_at_the_threshold_is_a_guess_of_out():
    (point,) = counts(FixedThreshold(1.0), member=[0.0, 1.0, 1.0, 2.0], nonmember=[1.0, 1.0, 3.0])
    assert (point.false_negatives, point.n1) == (3, 4)
    assert (point.false_positives, point.n0) == (1, 3)


@settings(derandomize=True, deadline=None)
@given(SCORES, SCORES, st.sampled_from([-1.0, 0.0, 0.5]))
def test_errors_agree_with_a_naive_count_on_ties(member, nonmember, threshold):
    (point,) = counts(FixedThreshold(threshold), member, nonmember)
    assert point.false_positives == sum(1 for score in nonmember if score > threshold)
    assert point.false_negatives == sum(1 for score in member if not score > threshold)


def test_bonferroni_spends_an_equal_share_on_each_threshold():
    points = counts(BonferroniThresholds((0.0, 1.0, 2.0, 3.0)), [2.5, 3.5], [0.5, 1.5], alpha=0.02)
    assert [point.alpha for point in points] == [0.005] * 4
    assert [point.false_positives for point in points] == [2, 1, 0, 0]
    assert [point.false_negatives for point in points] == [0, 0, 0, 1]


def test_the_counted_part_does_not_move_the_threshold():
    rng = np.random.default_rng(1)
    member, nonmember = rng.normal(1, 1, 40), rng.normal(0, 1, 40)
    (point,) = counts(SplitThreshold(0.5, seed=3), member, nonmember)
    # Raise every score that was counted: the choice must not follow. (A shuffle of indices tells which they are.)
    order = np.random.default_rng(3)
    counted_in, counted_out = order.permutation(40)[20:], order.permutation(40)[20:]
    member[counted_in] += 5
    nonmember[counted_out] += 5
    (moved,) = counts(SplitThreshold(0.5, seed=3), member, nonmember)
    assert moved.threshold == point.threshold
    assert moved.false_positives > point.false_positives


@settings(derandomize=True, deadline=None)
@given(SCORES, SCORES)
@example(member=[*RNG.normal(1, 1, 300)], nonmember=[*RNG.normal(0, 1, 300)])
@example(member=[*RNG.normal(1, 1, 300).round(2)], nonmember=[*RNG.normal(0, 9, 300).round(2)])
def test_the_chosen_cut_is_the_best_of_all_cuts(member, nonmember):
    def bound(threshold):
        fpr = upper_bound(sum(score > threshold for score in nonmember), len(nonmember), 0.025)
        fnr = upper_bound(sum(score <= threshold for score in member), len(member), 0.025)
        return float(privacy_loss(fpr, fnr, 1e-5))

    levels = sorted(set(member + nonmember))
    cuts = [(low + high) / 2 for low, high in itertools.pairwise(levels)] or levels
    chosen = best_bound_threshold(np.array(member), np.array(nonmember), 1e-5, 0.05)
    assert bound(chosen) == pytest.approx(max(map(bound, cuts)))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
def test_a_split_needs_a_proper_fraction(fraction):
    with pytest.raises(ValueError, match=r"fraction .*must lie in \(0, 1\)"):
        SplitThreshold(fraction)


def test_a_split_that_leaves_a_part_empty_is_refused():
    with pytest.raises(ValueError, match=r"splitting 3 member trials by fraction 0.9 leaves one part empty"):
        counts(SplitThreshold(0.9), [1.0, 2.0, 3.0], np.arange(100.0))
    with pytest.raises(ValueError, match=r"splitting 1 member trials"):
        counts(SplitThreshold(0.2), [1.0], np.arange(100.0))


def test_thresholds_must_be_finite_and_some():
    with pytest.raises(ValueError, match="at least one threshold, got none"):
        BonferroniThresholds(())
    for threshold in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="a threshold must be finite"):
            FixedThreshold(threshold)
        with pytest.raises(ValueError, match="a threshold must be finite"):
            BonferroniThresholds((0.0, threshold))


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


def test_more_trials_to_count_move_the_cut_into_the_tail():
    rng = np.random.default_rng(2)
    sides = rng.normal(2, 1, 20_000), rng.normal(0, 1, 20_000)
    cuts = [abs(best_cut(*sides, plan(trials=trials)).threshold - 1) for trials in (100, 10_000, 1_000_000)]
    assert cuts == sorted(cuts)
    assert cuts[0] < cuts[2] - 0.5


def test_a_split_with_a_curve_chooses_by_it_and_counts_the_rest():
    rng, curve = np.random.default_rng(3), GaussianCurve(1.0)
    member, nonmember = rng.normal(2, 1, 1000), rng.normal(0, 1, 1000)
    (by_curve,) = SplitThreshold(0.5, curve=curve).counts(member, nonmember, delta=1e-5, alpha=0.05)
    (by_bound,) = SplitThreshold(0.5).counts(member, nonmember, delta=1e-5, alpha=0.05)
    assert (by_curve.n0, by_curve.n1) == (500, 500)
    assert by_curve.fnr_high < curve.fnr(by_curve.fpr_high)
    assert abs(by_curve.threshold - 1) < abs(by_bound.threshold - 1)
