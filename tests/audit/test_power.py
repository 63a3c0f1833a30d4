"""How many trials a bug needs: the reference's numbers, simulation, and what no number of trials can show."""

import math

import numpy as np
import pytest
from fedassay.audit.binomial import epsilon_low, largest_certifiable_epsilon, upper_bound
from fedassay.audit.curve import GaussianCurve, ProfileCurve, mu_from_epsilon
from fedassay.audit.power import (
    effect_trials_needed,
    fewest_trials,
    gaussian_points,
    minimum_detectable_epsilon,
    power_at,
    sequential_trials_needed,
    simulated_points,
    trials_needed,
)
from scipy.stats import binom, norm

MU = mu_from_epsilon(4, 1e-5)


def design(n, alpha, fpr, curve=None, epsilon=None):
    return {"n0": n, "n1": n, "alpha": alpha, "delta": 1e-5, "fpr": fpr, "curve": curve, "epsilon": epsilon}


def power_against_gaussian(mu, *, fpr, **arguments):
    """The power when the mechanism is exactly mu-GDP and the attack optimal."""
    return power_at(fpr, float(GaussianCurve(mu).fnr(fpr)), **arguments)


def naive_power(fnr, *, n0, n1, alpha, delta, fpr, curve, epsilon):
    """Every pair of error counts, one at a time, by the auditor's own words."""
    total = 0.0
    for fp in range(n0 + 1):
        for fn in range(n1 + 1):
            if curve is None:
                refuted = epsilon_low(fp, fn, n0, n1, delta, alpha) > epsilon
            else:
                refuted = upper_bound(fn, n1, alpha / 2) < curve.fnr(upper_bound(fp, n0, alpha / 2))
            total += binom.pmf(fp, n0, fpr) * binom.pmf(fn, n1, fnr) * bool(refuted)
    return total


@pytest.mark.parametrize(
    ("curve", "epsilon"), [(GaussianCurve(0.5), None), (None, 0.7), (ProfileCurve((0.4,), (0.02,), (0.0,)), 0.1)]
)
def test_power_is_the_sum_over_all_error_counts(curve, epsilon):
    arguments = design(31, 0.1, 0.2, curve, epsilon) | {"n1": 23}
    fnr = float(norm.cdf(norm.isf(0.2) - 2.5))
    expected = naive_power(fnr, **arguments)
    assert power_at(fnr=fnr, **arguments) == pytest.approx(expected, rel=1e-10)
    assert power_against_gaussian(2.5, **arguments) == pytest.approx(expected, rel=1e-10)
    assert 0.01 < expected < 0.999


def test_the_detectable_epsilon_has_the_power_it_promises():
    for curve, epsilon in ((GaussianCurve(MU), None), (None, 4.0)):
        arguments = design(1000, 0.05, 0.05, curve, epsilon)
        mu = mu_from_epsilon(minimum_detectable_epsilon(**arguments), 1e-5)
        assert power_against_gaussian(mu, **arguments) == pytest.approx(0.9, abs=1e-6)
        assert power_against_gaussian(mu * 0.99, **arguments) < 0.9 < power_against_gaussian(mu * 1.01, **arguments)


def test_the_stated_curve_detects_far_less_than_the_bare_bound():
    curve = minimum_detectable_epsilon(**design(1000, 0.05, 0.3, GaussianCurve(MU)))
    bare = minimum_detectable_epsilon(**design(1000, 0.05, 0.3, None, 4.0))
    assert curve == pytest.approx(5.24, abs=0.005)
    assert bare == pytest.approx(18.55, abs=0.005)


def test_a_design_that_reaches_nothing_gives_none():
    assert minimum_detectable_epsilon(**design(10, 0.05, 0.3, None, 4.0)) is None
    assert minimum_detectable_epsilon(**design(1000, 0.05, 0.3)) is None


def test_at_delta_zero_the_truth_is_the_worst_pure_mechanism():
    arguments = {"n0": 500, "n1": 500, "alpha": 0.05, "delta": 0.0, "fpr": 0.2, "curve": None, "epsilon": 0.5}
    found = minimum_detectable_epsilon(**arguments)
    fnr = max(1 - math.exp(found) * 0.2, math.exp(-found) * 0.8)
    assert 0.5 < found < 1.5
    assert power_against_gaussian(norm.isf(0.2) - norm.ppf(fnr), **arguments) == pytest.approx(0.9, abs=1e-6)


@pytest.mark.parametrize(("n", "fpr"), [(20, 0.5), (200, 0.02), (200, 0.8), (5000, 0.1), (5000, 0.3)])
def test_a_correct_mechanism_is_refuted_no_oftener_than_alpha_exactly(n, fpr):
    # Exact, at every threshold: the joint point spends less than a tenth of its alpha.
    assert power_against_gaussian(MU, **design(n, 0.05, fpr, GaussianCurve(MU))) < 0.05 / 10
    assert power_against_gaussian(MU, **design(n, 0.05, fpr, None, 4.0)) < 0.05 / 10
    assert power_against_gaussian(0.0, **design(n, 0.05, fpr, None, 1e-9)) < 0.05 / 10


def test_more_trials_detect_less_and_never_below_the_claim():
    found = [
        minimum_detectable_epsilon(**design(n, 0.05, 0.3, GaussianCurve(MU))) for n in (100, 1000, 10**4, 10**5, 10**6)
    ]
    assert found == sorted(found, reverse=True)
    assert 4 < found[-1] < 4.05


DELTA = 1e-5
MU_ONE = mu_from_epsilon(1.0, DELTA)
AGAINST_EPSILON = {"curve": None, "epsilon": 1.0, "delta": DELTA, "alpha": 0.05}


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("share", "power", "expected"),
    # Bare bounds, alpha .05, one-step Gaussian with this share of its noise; the reference says 9.3e3, 1.8e4, 8.6e6.
    [(0.5, 0.5, 9.5e3), (0.5, 0.9, 2.0e4), (0.9, 0.5, 8.7e6)],
)
def test_trials_to_refute_missing_noise_by_epsilon_alone(share, power, expected):
    plan = trials_needed(gaussian_points(MU_ONE / share), power=power, **AGAINST_EPSILON)
    assert plan.trials == pytest.approx(expected, rel=0.01)
    assert plan.power == pytest.approx(power, abs=0.01)


def test_the_stated_curve_refutes_a_halved_noise_from_253_runs():
    # DP-FedAvg, mu .925, alpha .002, power .999.
    found = trials_needed(
        gaussian_points(2 * 0.925), curve=GaussianCurve(0.925), epsilon=4, delta=DELTA, alpha=0.002, power=0.999
    )
    assert found.trials == 253


@pytest.mark.parametrize(("share", "power", "expected"), [(0.5, 0.5, 75), (0.5, 0.9, 238), (0.9, 0.5, 6100)])
def test_the_effect_size_needs_far_fewer(share, power, expected):
    assert effect_trials_needed(MU_ONE / share, MU_ONE, alpha=0.05, power=power) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("curve", "expected"), [(None, 3041), (GaussianCurve(MU_ONE), 181)])
def test_the_e_process_stops_earlier_at_the_median(curve, expected):
    # Against epsilon by the projection of both arms onto the claim; bets of one event need 7.5e3.
    found = sequential_trials_needed(gaussian_points(2 * MU_ONE), curve=curve, epsilon=1, delta=DELTA, alpha=0.05)
    assert found == pytest.approx(expected, rel=0.02)


def test_what_keeps_the_claim_is_never_refuted():
    correct = gaussian_points(MU_ONE)
    assert trials_needed(correct, curve=GaussianCurve(MU_ONE), epsilon=1, delta=DELTA, alpha=0.05, limit=10**7) is None
    assert trials_needed(correct, limit=10**7, **AGAINST_EPSILON) is None
    assert sequential_trials_needed(correct, curve=GaussianCurve(MU_ONE), epsilon=1, delta=DELTA, alpha=0.05) is None
    assert effect_trials_needed(MU_ONE, MU_ONE, alpha=0.05) is None


def test_the_planned_power_is_what_simulation_finds():
    """2000 audits at the planned n: at power .9 fewer than 1743 refute with probability 1e-12."""
    curve, rng = GaussianCurve(1.0), np.random.default_rng(0)
    plan = trials_needed(gaussian_points(2.0), curve=curve, epsilon=4, delta=DELTA, alpha=0.01)
    n = plan.trials
    fpr_high = upper_bound(rng.binomial(n, plan.fpr, 2000), n, 0.005)
    fnr_high = upper_bound(rng.binomial(n, plan.fnr, 2000), n, 0.005)
    refuted = np.count_nonzero(fnr_high < curve.fnr(fpr_high))
    assert 1743 <= refuted <= 1900


def test_points_of_simulated_scores_are_their_error_rates():
    points = simulated_points([0.0, 1.0, 2.0, 3.0], [2.0, 3.0, 4.0, 5.0])
    at = {float(t): (float(a), float(b)) for t, a, b in zip(points.thresholds, points.fpr, points.fnr, strict=True)}
    # Above 2 lie one score of arm 0 and three of arm 1; a rate of none counts as half of one in four.
    assert at[2.0] == (0.25, 0.25)
    assert at[3.0] == (0.125, 0.5)


@pytest.mark.parametrize(("epsilon", "delta", "alpha"), [(4.0, 1e-5, 0.05), (1.0, 0.0, 0.01), (8.0, 1e-6, 0.001)])
def test_the_fewest_trials_are_where_the_ceiling_passes_the_claim(epsilon, delta, alpha):
    n = fewest_trials(curve=None, epsilon=epsilon, delta=delta, alpha=alpha)
    assert (
        largest_certifiable_epsilon(n, n, delta, alpha)
        > epsilon
        >= largest_certifiable_epsilon(n - 1, n - 1, delta, alpha)
    )


def test_a_curve_is_refutable_from_few_trials_and_one_that_allows_everything_from_none():
    assert fewest_trials(curve=GaussianCurve(1.0), epsilon=4, delta=DELTA, alpha=0.05) == 10
    assert fewest_trials(curve=ProfileCurve((0.0,), (1.0,), (1.0,)), epsilon=4, delta=DELTA, alpha=0.05) is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gaussian_points(0.0), "mu must be > 0"),
        (
            lambda: power_against_gaussian(1.0, **design(10, 0.05, 0.5)),
            "its trade-off curve or its epsilon, got neither",
        ),
        (lambda: minimum_detectable_epsilon(**design(10, 0.05, 0.0, GaussianCurve(1.0))), "fpr must lie in"),
        (lambda: minimum_detectable_epsilon(**design(10, 0.05, np.nan, GaussianCurve(1.0))), "fpr must lie in"),
        (lambda: minimum_detectable_epsilon(**design(10, 0.0, 0.5, GaussianCurve(1.0))), "alpha must lie in"),
        (lambda: power_at(fnr=1.5, **design(10, 0.05, 0.5, GaussianCurve(1.0))), "fnr must lie in .0, 1., got 1.5"),
        (lambda: simulated_points([], [1.0]), "out must be"),
        (lambda: simulated_points([0.0], [np.nan]), "within must be"),
        (lambda: trials_needed(gaussian_points(1.0), power=1.0, **AGAINST_EPSILON), "power must lie in"),
        (lambda: trials_needed(gaussian_points(1.0), **AGAINST_EPSILON | {"alpha": 0.0}), "alpha must lie in"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("epsilon", [709.0, 720.0, 1e9])
def test_a_claim_beyond_all_numbers_is_out_of_reach_of_every_estimator(epsilon):
    bug = gaussian_points(3.0)
    assert sequential_trials_needed(bug, curve=None, epsilon=epsilon, delta=DELTA, alpha=0.05) is None
    assert trials_needed(bug, curve=None, epsilon=epsilon, delta=DELTA, alpha=0.05, limit=1000) is None
    assert fewest_trials(curve=None, epsilon=epsilon, delta=DELTA, alpha=0.05) is None
