"""How many trials a bug needs: the reference's numbers, simulation, and what no number of trials can show."""

import numpy as np
import pytest
from fedassay.audit.binomial import largest_certifiable_epsilon, upper_bound
from fedassay.audit.curve import GaussianCurve, ProfileCurve, mu_from_epsilon
from fedassay.audit.power import (
    OperatingPoints,
    effect_trials_needed,
    fewest_trials,
    gaussian_points,
    sequential_trials_needed,
    simulated_points,
    trials_needed,
)

DELTA = 1e-5
MU = mu_from_epsilon(1.0, DELTA)
AGAINST_EPSILON = {"curve": None, "epsilon": 1.0, "delta": DELTA, "alpha": 0.05}


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("share", "power", "expected"),
    # Bare bounds, alpha .05, one-step Gaussian with this share of its noise; the reference says 9.3e3, 1.8e4, 8.6e6.
    [(0.5, 0.5, 9.5e3), (0.5, 0.9, 2.0e4), (0.9, 0.5, 8.7e6)],
)
def test_trials_to_refute_missing_noise_by_epsilon_alone(share, power, expected):
    plan = trials_needed(gaussian_points(MU / share), power=power, **AGAINST_EPSILON)
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
    assert effect_trials_needed(MU / share, MU, alpha=0.05, power=power) == pytest.approx(expected, rel=0.03)


def test_the_e_process_stops_earlier_at_the_median():
    assert sequential_trials_needed(gaussian_points(2 * MU), epsilon=1, delta=DELTA, alpha=0.05) == pytest.approx(
        7.5e3, rel=0.01
    )


def test_what_keeps_the_claim_is_never_refuted():
    correct = gaussian_points(MU)
    assert trials_needed(correct, curve=GaussianCurve(MU), epsilon=1, delta=DELTA, alpha=0.05, limit=10**7) is None
    assert trials_needed(correct, limit=10**7, **AGAINST_EPSILON) is None
    assert sequential_trials_needed(correct, epsilon=1, delta=DELTA, alpha=0.05) is None
    assert effect_trials_needed(MU, MU, alpha=0.05) is None


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
    # Above 2 lie one score of world 0 and three of world 1; a rate of none counts as half of one in four.
    assert at[2.0] == (0.25, 0.25)
    assert at[3.0] == (0.125, 0.5)


def test_caution_raises_both_rates_and_so_the_plan():
    rng = np.random.default_rng(1)
    out, within = rng.normal(size=4000), rng.normal(2.0, size=4000)
    claim = {"curve": GaussianCurve(1.0), "epsilon": 4, "delta": DELTA, "alpha": 0.01}
    bold, cautious = (trials_needed(simulated_points(out, within, cautious=c), **claim).trials for c in (0.0, 2.0))
    assert bold < cautious < 2 * bold


def test_discrete_scores_are_cut_between_their_values():
    """Randomised response at epsilon 2 behind a claim of 1: the one event is the bit."""
    truth = 1 / (1 + np.exp(-2.0))
    out, within = np.repeat([0.0, 1.0], [8808, 1192]), np.repeat([0.0, 1.0], [1192, 8808])
    plan = trials_needed(simulated_points(out, within), curve=None, epsilon=1.0, delta=0.0, alpha=0.01, power=0.99)
    assert plan.threshold == 0.0
    assert (plan.fpr, plan.fnr) == (pytest.approx(1 - truth, abs=1e-4), pytest.approx(1 - truth, abs=1e-4))


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
        (lambda: gaussian_points(np.nan), "mu must be > 0"),
        (lambda: simulated_points([], [1.0]), "out must be"),
        (lambda: simulated_points([0.0], [np.nan]), "within must be"),
        (lambda: trials_needed(gaussian_points(1.0), power=1.0, **AGAINST_EPSILON), "power must lie in"),
        (lambda: trials_needed(gaussian_points(1.0), **AGAINST_EPSILON | {"alpha": 0.0}), "alpha must lie in"),
        (lambda: OperatingPoints([0.0], [0.5], [1.0]), "fpr must lie in"),
        (lambda: OperatingPoints([0.1, 0.2], [0.5], [1.0]), "must have one shape"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("epsilon", [709.0, 720.0, 1e9])
def test_a_claim_beyond_all_numbers_is_out_of_reach_of_every_estimator(epsilon):
    bug = gaussian_points(3.0)
    assert sequential_trials_needed(bug, epsilon=epsilon, delta=DELTA, alpha=0.05) is None
    assert trials_needed(bug, curve=None, epsilon=epsilon, delta=DELTA, alpha=0.05, limit=1000) is None
    assert fewest_trials(curve=None, epsilon=epsilon, delta=DELTA, alpha=0.05) is None
