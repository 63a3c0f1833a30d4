"""The anytime audit: valid at every stopping time, a confidence sequence, and how early it stops."""

import math

import numpy as np
import pytest
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.estimators.sequential import anytime_bound, log_wealth, sequential
from fedassay.audit.power import power_at
from fedassay.audit.threshold import FixedThreshold
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

REPEATS = 2000
LEVEL = math.log(20)
MU = 2 * mu_from_epsilon(1, 1e-5)
"""A halved sigma behind a claim of (1, 1e-5): the truth is 2.15."""
CUT = 2.5


def wealth(member, nonmember, epsilon, delta=0.0):
    return log_wealth(member, nonmember, epsilon=epsilon, stakes_for=epsilon, delta=delta)


def naive_wealth(member, nonmember, epsilon, top, delta):
    """One trial after the other; the stake is fixed before the trial is looked at."""
    squares = 10 * (1 + math.exp(2 * top))
    gains, product, path = squares * 0.2 / (math.exp(top) + delta), 1.0, []
    for x, y in zip(member, nonmember, strict=True):
        stake = min(max(gains / squares, 0.0), 0.5 / (math.exp(top) + delta))
        product *= 1 + stake * (x - math.exp(epsilon) * y - delta)
        tuned = x - math.exp(top) * y - delta
        gains, squares = gains + tuned, squares + tuned**2
        path.append(math.log(product))
    return path


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40), st.floats(0, 3), st.floats(0, 0.2))
def test_the_wealth_is_that_of_betting_trial_by_trial(pairs, epsilon, delta):
    member, nonmember = (np.array(side) for side in zip(*pairs, strict=True))
    path = log_wealth(member, nonmember, epsilon=epsilon, stakes_for=epsilon + 0.1, delta=delta)
    expected = naive_wealth(member, nonmember, epsilon, epsilon + 0.1, delta)
    np.testing.assert_allclose(path, expected, rtol=1e-9, atol=1e-9)


def test_the_first_stake_by_hand():
    # No expectation: .2 / e^eps of a wealth of 1. A hit in arm 1 alone, then one in arm 0 alone.
    path = wealth(np.array([True]), np.array([False]), epsilon=0.0)
    assert path[0] == pytest.approx(math.log(1.2))
    assert wealth(np.array([False]), np.array([True]), epsilon=0.0)[0] == pytest.approx(math.log(0.8))


BOUNDARIES = {
    "null at epsilon 0": (0.0, 0.0, 0.5, 0.5),
    "randomised response": (1.0, 0.0, 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))),
    "rare event": (1.0, 0.0, 0.05 * math.e, 0.05),
    "with delta": (1.0, 0.05, 0.1 * math.e + 0.05, 0.1),
}


@pytest.mark.parametrize("name", BOUNDARIES)
def test_at_every_stopping_time_the_boundary_is_refuted_no_oftener_than_alpha(most_false_alarms, name):
    # 2000 repeats of 1500 trials, looked at after each: at most 131 may ever reach 1 / alpha = 20.
    epsilon, delta, tpr, fpr = BOUNDARIES[name]
    rng, alarms = np.random.default_rng(1), 0
    for _ in range(8):
        member, nonmember = rng.random((250, 1500)) < tpr, rng.random((250, 1500)) < fpr
        alarms += np.sum(wealth(member, nonmember, epsilon, delta).max(axis=-1) >= LEVEL)
    assert alarms <= most_false_alarms(REPEATS, 0.05) == 131


def test_the_bound_closes_in_on_the_truth_from_below():
    rng = np.random.default_rng(4)
    member, nonmember = rng.random(20_000) < 1 / (1 + math.exp(-1)), rng.random(20_000) < 1 / (1 + math.e)
    bounds = [anytime_bound(member[:n], nonmember[:n], delta=0.0, alpha=0.05) for n in (100, 1000, 20_000)]
    assert bounds == sorted(bounds)
    assert 0.9 < bounds[-1] < 1


def test_no_evidence_is_zero_and_no_error_is_finite():
    some = np.ones(1000, dtype=bool)
    assert anytime_bound(some, some, delta=0.0, alpha=0.05) == 0
    assert anytime_bound(~some, some, delta=0.0, alpha=0.05) == 0
    assert anytime_bound(some[:1], ~some[:1], delta=0.0, alpha=0.05) == 0
    assert 4 < anytime_bound(some, ~some, delta=0.0, alpha=0.05) < math.log(1000)


def test_a_measurement_counts_what_was_seen(scores_of):
    rng = np.random.default_rng(5)
    scores = scores_of(rng.normal(2, 1, 300), rng.normal(0, 1, 300))
    seen = sequential(scores, delta=1e-5, alpha=0.05, threshold=FixedThreshold(1.5))
    hits = scores.member > 1.5, scores.nonmember > 1.5
    assert (seen.n0, seen.n1, seen.false_positives) == (300, 300, int(hits[1].sum()))
    assert 0 < seen.epsilon_low == anytime_bound(*hits, delta=1e-5, alpha=0.05) < seen.estimate < seen.ceiling + 3
    assert (seen.fpr_high, seen.below_curve) == (None, None)


def test_a_halved_sigma_is_refuted_sooner_than_by_a_fixed_number_of_trials():
    # Claim 1, truth 2.15, alpha .05, 200 repeats. Clopper-Pearson at its best threshold needs 9300 for 50 %.
    rng, times = np.random.default_rng(8), []
    for _ in range(200):
        member, nonmember = rng.random(20_000) < norm.sf(CUT - MU), rng.random(20_000) < norm.sf(CUT)
        reached = np.flatnonzero(wealth(member, nonmember, 1.0, 1e-5) >= LEVEL)
        times.append(reached[0] + 1 if len(reached) else math.inf)
    assert np.median(times) < 9300
    levels = {"alpha": 0.05, "delta": 1e-5, "curve": None, "epsilon": 1.0}
    best = max(power_at(norm.sf(t), norm.cdf(t - MU), n0=9300, n1=9300, **levels) for t in (2.2, 2.35, 2.5, 2.65))
    assert best == pytest.approx(0.5, abs=0.04)
