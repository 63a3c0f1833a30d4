import itertools

import numpy as np
import pytest
from fedassay.audit.binomial import privacy_loss, upper_bound
from fedassay.audit.threshold import BonferroniThresholds, FixedThreshold, SplitThreshold, best_bound_threshold
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_a_split_counts_only_what_did_not_choose():
    member, nonmember = np.arange(100.0), np.arange(-50.0, 10.0)
    (point,) = counts(SplitThreshold(0.25), member, nonmember)
    assert (point.n1, point.n0, point.alpha) == (75, 45, 0.05)


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


def test_a_split_does_not_depend_on_the_order_of_trials_alone():
    member, nonmember = np.r_[np.zeros(50), np.ones(50)], np.zeros(100)
    (point,) = counts(SplitThreshold(0.5), member, nonmember)
    assert 15 < point.false_negatives < 35


@settings(derandomize=True, deadline=None)
@given(SCORES, SCORES)
def test_the_chosen_cut_is_the_best_of_all_cuts(member, nonmember):
    def bound(threshold):
        fpr = upper_bound(sum(score > threshold for score in nonmember), len(nonmember), 0.025)
        fnr = upper_bound(sum(score <= threshold for score in member), len(member), 0.025)
        return float(privacy_loss(fpr, fnr, 1e-5))

    levels = sorted(set(member + nonmember))
    cuts = [(low + high) / 2 for low, high in itertools.pairwise(levels)] or levels
    chosen = best_bound_threshold(np.array(member), np.array(nonmember), 1e-5, 0.05)
    assert bound(chosen) == pytest.approx(max(map(bound, cuts)))


def test_a_split_of_separated_scores_cuts_midway():
    (point,) = counts(SplitThreshold(0.5), np.full(20, 9.0), np.full(20, 1.0))
    assert point.threshold == 5
    assert (point.false_positives, point.false_negatives) == (0, 0)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
def test_a_split_needs_a_proper_fraction(fraction):
    with pytest.raises(ValueError, match=r"fraction .*must lie in \(0, 1\)"):
        SplitThreshold(fraction)


def test_a_split_that_leaves_a_part_empty_is_refused():
    with pytest.raises(ValueError, match=r"splitting 3 member scores by fraction 0.1 leaves one part empty"):
        counts(SplitThreshold(0.1), [1.0, 2.0, 3.0], np.arange(100.0))


def test_thresholds_must_be_finite_and_some():
    with pytest.raises(ValueError, match="at least one threshold, got none"):
        BonferroniThresholds(())
    for threshold in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="a threshold must be finite"):
            FixedThreshold(threshold)
        with pytest.raises(ValueError, match="a threshold must be finite"):
            BonferroniThresholds((0.0, threshold))


def test_a_policy_names_itself():
    assert [
        str(policy) for policy in (FixedThreshold(0.3), SplitThreshold(0.5, seed=2), BonferroniThresholds((0.0, 1.0)))
    ] == [
        "fixed",
        "split(fraction=0.5, seed=2)",
        "bonferroni(k=2)",
    ]
