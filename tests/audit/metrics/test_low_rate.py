"""True-positive rates at low false-positive rates: by brute force, by hand, and how often statements are false."""

import math

import numpy as np
import pytest
from fedassay.audit.binomial import upper_bound
from fedassay.audit.metrics import ScoresByRun, counted_runs, is_enough, joint_statement, lowest_rate, tpr_at
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

levels = st.lists(st.integers(0, 6), min_size=1, max_size=40)


def clustered(member, nonmember):
    """Rows are runs, each with both sides."""
    runs = np.arange(len(member))
    ids = np.repeat(runs, member.shape[1]), np.repeat(runs, nonmember.shape[1])
    return ScoresByRun.of(member.ravel(), nonmember.ravel(), *ids)


@given(levels, levels, st.sampled_from([0.01, 0.1, 0.25, 0.5]))
def test_the_rate_is_the_best_of_all_thresholds_at_scores_of_non_members(member, nonmember, rate):
    member, nonmember = np.array(member, dtype=float), np.array(nonmember, dtype=float)
    reached = [
        float((member > t).mean()) for t in nonmember if (nonmember > t).sum() <= math.floor(len(nonmember) * rate)
    ]
    assert tpr_at(member, nonmember, rate) == max(reached)


def test_constant_scores_find_no_member():
    """The threshold is strict: a tie is no guess of "in", and no coin is thrown for it."""
    assert tpr_at(np.ones(50), np.ones(2000), 0.01) == 0.0
    said = joint_statement(ScoresByRun.of(np.ones(50), np.ones(2000)), 0.01)
    assert said.tpr_low == 0.0
    assert not said.exceeds(lambda fpr: fpr)


@pytest.mark.parametrize(
    ("count", "rate", "enough"), [(999, 0.01, False), (1000, 0.01, True), (10_000, 0.001, True), (9_999, 0.001, False)]
)
def test_ten_non_members_must_be_allowed_above(count, rate, enough):
    assert is_enough(count, rate) == enough


@pytest.mark.parametrize(
    ("runs", "rate"), [(19, None), (20, 0.5), (49, 0.5), (50, 0.2), (64, 0.2), (1000, 0.01), (10_000, 0.001)]
)
def test_the_lowest_rate_that_the_runs_allow(runs, rate):
    assert lowest_rate(runs) == rate


def test_the_statement_by_hand():
    # The eleventh largest of 1000 non-members is 989: 10 lie above it, as do the members 990 to 999.
    nonmember = np.arange(1000.0)
    said = joint_statement(ScoresByRun.of(np.arange(900.0, 1000.0), nonmember), 0.01)
    assert said.threshold == 989
    assert said.fpr_high == pytest.approx(float(upper_bound(10, 1000, 0.025)))
    assert said.tpr_low == pytest.approx(1 - float(upper_bound(90, 100, 0.025)))
    assert (said.n0, said.n1) == (1000, 100)


def test_ties_do_not_sharpen_the_bound_on_false_positives():
    """Of 1000 non-members 5 lie above a tie of the rest: ten were allowed, and the choice may have dodged the tie."""
    nonmember = np.r_[np.zeros(995), np.ones(5)]
    said = joint_statement(ScoresByRun.of(np.ones(20), nonmember), 0.01)
    assert said.threshold == 0.0
    assert said.fpr_high == pytest.approx(float(upper_bound(10, 1000, 0.025)))


def test_several_scores_of_a_run_weigh_one_and_pay_for_it():
    # 40 runs of 25: those of even number give non-members, the others members. At .5 ten whole runs may lie above.
    rows = np.repeat(np.arange(40.0)[:, None], 25, axis=1)
    said = joint_statement(clustered(rows, rows), 0.5)
    assert (said.n0, said.n1) == (20, 20)
    assert said.threshold == 18.0  # Of the runs 0, 2, ..., 38 the ten above 18.
    assert said.fpr_high == pytest.approx(float(upper_bound(10, 20, 0.025 / math.e)))
    assert said.tpr_low == pytest.approx(1 - float(upper_bound(9, 20, 0.025 / math.e)))  # Runs 1 to 17 lie below.


def test_a_statement_on_too_few_runs_is_refused():
    with pytest.raises(ValueError, match=r"rate 0\.01 need 1000 independent runs without the candidate, got 999"):
        joint_statement(ScoresByRun.of(np.arange(5.0), np.arange(999.0)), 0.01)
    # A hundred thousand scores of fifty runs are fifty runs, half of them for each side.
    many = clustered(*np.random.default_rng(0).normal(size=(2, 50, 1000)))
    assert counted_runs(many) == 25
    with pytest.raises(ValueError, match="got 25"):
        joint_statement(many, 0.1)
    one = np.zeros(3000, dtype=int)
    alone = ScoresByRun.of(np.arange(3000.0), np.arange(3000.0), one, one)
    assert counted_runs(alone) == 0
    with pytest.raises(ValueError, match="got 0"):
        joint_statement(alone, 0.01)


@pytest.mark.parametrize(("name", "rate", "alpha"), [("rate", 0.0, 0.05), ("rate", 1.0, 0.05), ("alpha", 0.1, 1.0)])
def test_rates_and_levels_are_probabilities(name, rate, alpha):
    with pytest.raises(ValueError, match=f"{name} must lie in"):
        joint_statement(ScoresByRun.of(np.arange(200.0), np.arange(200.0)), rate, alpha)


def test_statements_about_nothing_fire_where_naive_bounds_do_often():
    """200 repeats without any leak: at most 19 may fire; the true chance is .002, that of a bound on the TPR at the
    empirical threshold alone .15.
    """
    rng = np.random.default_rng(4)
    fired = naive = 0
    for _ in range(200):
        member, nonmember = rng.normal(size=(2, 1000))
        fired += joint_statement(ScoresByRun.of(member, nonmember), 0.01).exceeds(lambda fpr: fpr)
        missed = round(1000 * (1 - tpr_at(member, nonmember, 0.01)))
        naive += 1 - float(upper_bound(missed, 1000, 0.05)) > 0.01
    assert fired <= 19
    assert naive >= 20


def test_both_rates_hold_jointly_as_often_as_stated():
    """Wrong in .035 to .05 of repeats at alpha .05; more than 40 of 500 come less than once in 500 seeds."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(500):
        said = joint_statement(ScoresByRun.of(rng.normal(1, 1, 300), rng.normal(0, 1, 300)), 0.1)
        wrong += norm.sf(said.threshold) > said.fpr_high or norm.sf(said.threshold - 1) < said.tpr_low
    assert wrong <= 40


@pytest.mark.simulations
def test_scores_of_one_noise_draw_counted_as_trials_fire_without_a_leak():
    """Planted bug: 100 + 100 runs of 50 scores that share their noise; each score as a trial fires in .3 of repeats."""
    rng = np.random.default_rng(6)
    fired = as_trials = 0
    for _ in range(100):
        shared = 2 * rng.normal(size=(200, 1))
        sides = clustered(*(shared + rng.normal(size=(2, 200, 50))))
        fired += joint_statement(sides, 0.1).exceeds(lambda fpr: fpr)
        as_trials += joint_statement(sides.one_side_per_run.given_the_runs, 0.01).exceeds(lambda fpr: fpr)
    assert fired <= 5
    assert as_trials >= 15


def test_a_leak_is_stated():
    rng = np.random.default_rng(7)
    said = joint_statement(ScoresByRun.of(rng.normal(2, 1, 1000), rng.normal(0, 1, 1000)), 0.01)
    assert said.exceeds(lambda fpr: fpr)
    # It reaches .4 at .01: no claim of epsilon 1 allows that.
    assert said.exceeds(lambda fpr: math.e * fpr + 1e-5)
    assert not said.exceeds(lambda fpr: math.exp(6) * fpr)
