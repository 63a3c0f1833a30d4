"""The anytime audit: its bets are fair under the claim and the best against it, and valid at every stopping time."""

import math

import numpy as np
import pytest
from fedassay.audit.betting import allowed, best_mixture, growth, payments, pays, tangents_of
from fedassay.audit.curve import GaussianCurve, ProfileCurve, mu_from_epsilon
from fedassay.audit.estimators.hockey_stick import MechanismOutputs
from fedassay.audit.estimators.sequential import anytime_bound, capital, learned_scores, sequential
from fedassay.audit.power import gaussian_points
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

LEVEL = math.log(20)
MU = mu_from_epsilon(1, 1e-5)
PURE = ProfileCurve((1.0,), (0.0,), (0.0,))
TWO_SIDED = ProfileCurve((0.5, 2.0), (0.3, 0.01), (0.2, 0.0))


@pytest.fixture
def outputs_of(scores_of):
    """(member, nonmember) -> outputs of independent runs."""
    setting = scores_of([0.0], [0.0]).setting
    return lambda member, nonmember: MechanismOutputs(member, nonmember, setting)


@pytest.mark.parametrize("curve", [GaussianCurve(0.3), GaussianCurve(3.0), PURE, TWO_SIDED], ids=str)
def test_no_right_guess_pays_more_than_two_in_a_pair_under_the_claim_and_some_pay_two(curve):
    fpr = np.linspace(0, 1, 100_001)
    right = np.stack([1 - curve.fnr(fpr), 1 - fpr])
    most = (pays(tangents_of(curve)) @ right).max(axis=1)
    assert most.max() <= 2 + 1e-12
    assert most.min() > 2 - 1e-3


def test_a_one_sided_claim_is_tested_in_either_direction():
    # P1 may lie further above P0 than P0 above P1.
    tangents = tangents_of(TWO_SIDED)
    assert {one.complement for one in tangents} == {True, False}
    assert {one.delta for one in tangents if not one.complement} <= {0.3, 0.01}
    assert {one.delta for one in tangents if one.complement} <= {0.2, 0.0}


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.integers(1, 6), st.lists(st.integers(0, 30), min_size=12, max_size=12), st.floats(0.1, 3.0))
def test_every_mixture_earns_at_most_what_is_allowed_whatever_two_laws_keep_the_claim(cells, counts, mu):
    # Cells of a Gaussian mechanism at the claim, cut anywhere: the mean of the two arms' pay is at most 1.
    paid = payments(cells, pays(tangents_of(GaussianCurve(mu))))
    counted = np.array(counts, dtype=float).reshape(2, 6)[:, :cells]
    shares = best_mixture(counted, paid, np.array([0.5, 8.0]))
    assert shares.sum(axis=0) == pytest.approx([1, 1])
    assert (shares > 0).all()
    edges = norm.cdf(np.linspace(-2, 2, cells - 1)[:, np.newaxis] - [mu, 0.0]).reshape(cells - 1, 2)
    laws = np.diff(np.concatenate([[[0.0, 0.0]], edges, [[1.0, 1.0]]]), axis=0).T
    assert ((laws[:, :, np.newaxis] * (paid @ shares)).sum(axis=(0, 1)) <= 2 + 1e-9).all()


def test_the_best_mixture_is_that_of_slow_multiplicative_updates():
    rng = np.random.default_rng(0)
    paid = payments(4, pays(tangents_of(GaussianCurve(0.5))))
    counts = rng.integers(1, 40, (2, 4)).astype(float)
    shares = best_mixture(counts, paid, np.array([2.0]), iterations=40)[:, 0]
    rows, naive = paid.reshape(8, -1), np.full(paid.shape[2], 1 / paid.shape[2])
    for _ in range(20_000):
        naive = naive * (rows.T @ (counts.ravel() / (rows @ naive)))
        naive[:2] += 1
        naive /= naive.sum()
    np.testing.assert_allclose(rows @ shares, rows @ naive, rtol=2e-3)


def test_the_best_growth_is_that_of_the_projection_of_randomised_response():
    # Right with .9 where the claim allows e / (1 + e): two Kullback-Leibler divergences per pair.
    right, most = 0.9, math.e / (1 + math.e)
    expected = 2 * (right * math.log(right / most) + (1 - right) * math.log((1 - right) / (1 - most)))
    assert growth(np.array([0.1]), np.array([0.1]), PURE) == pytest.approx(expected, rel=1e-6)
    assert growth(np.array([1 - most]), np.array([1 - most]), PURE) == 0


def test_the_best_growth_against_pure_epsilon_is_that_of_betting_on_the_arm_given_every_score():
    # Given a score with log-likelihood ratio l > 1, the arm is a coin of 1 / (1 + e^-l) where the claim allows e/(1+e).
    scores, mu, most = np.linspace(-8, 10, 100_001), 2.0, math.e / (1 + math.e)
    with_it, without = norm.pdf(scores - mu), norm.pdf(scores)
    share = np.maximum(with_it, without) / (with_it + without)
    lost = np.where(share > most, share * np.log(share / most) + (1 - share) * np.log((1 - share) / (1 - most)), 0.0)
    expected = float(((with_it + without) * lost).sum() * (scores[1] - scores[0]))
    points = gaussian_points(mu)
    assert growth(points.fpr, points.fnr, PURE) == pytest.approx(expected, rel=0.02)


def test_bets_that_are_fair_at_one_epsilon_may_gain_at_larger_ones():
    paid = pays(tangents_of(ProfileCurve((1.0,), (1e-3,), (1e-3,))))
    found = [float(allowed(np.array([0.3, 0.4]), paid, epsilon, 1e-3)) for epsilon in (0.0, 1.0, 1.5, 3.0)]
    assert found[:2] == pytest.approx([1, 1])
    # By hand: a right guess in one arm pays 2 / (e + delta), in the other e times as much; .7 of the money is staked.
    rate = (math.exp(3) + 1e-3) / (1 + math.exp(3))
    assert found[3] == pytest.approx(0.3 + 0.7 * rate * (1 + math.e) / (math.e + 1e-3))
    assert 1 < found[2] < found[3]


BOUNDARIES = {
    "Gaussian": (GaussianCurve(1.0), lambda rng, n: (rng.normal(1, 1, n), rng.normal(0, 1, n))),
    "randomised response": (PURE, lambda rng, n: (rng.random(n) < 0.7310585, rng.random(n) < 0.2689415)),
    "Laplace": (PURE, lambda rng, n: (rng.laplace(1, 1, n), rng.laplace(0, 1, n))),
}


@pytest.mark.simulations
@pytest.mark.parametrize("name", BOUNDARIES)
def test_at_every_stopping_time_the_boundary_is_refuted_no_oftener_than_alpha(most_false_alarms, name):
    # benchmarks/sequential_stopping.py repeats this 2000 times.
    curve, draw = BOUNDARIES[name]
    rng, alarms = np.random.default_rng(1), 0
    for _ in range(100):
        arms = tuple(np.asarray(side, dtype=float) for side in draw(rng, 100))
        alarms += bool(capital([arms], tangents_of(curve)).path().max() >= LEVEL)
    assert alarms <= most_false_alarms(100, 0.05)


def test_the_bet_on_a_pair_depends_on_earlier_pairs_alone():
    rng = np.random.default_rng(2)
    rows = rng.normal(1, 1, (60, 3)), rng.normal(0, 1, (60, 3))
    whole = capital(learned_scores(*rows), tangents_of(GaussianCurve(MU))).path()
    part = capital(learned_scores(rows[0][:37], rows[1][:37]), tangents_of(GaussianCurve(MU))).path()
    np.testing.assert_allclose(whole[:37], part)


def test_half_of_the_noise_is_refuted_within_tens_of_pairs_at_epsilon_4_and_in_either_direction():
    # At best bets 21 pairs; against epsilon alone and one threshold over 100,000.
    mu, rng, times = mu_from_epsilon(4, 1e-5), np.random.default_rng(8), []
    for sign in (1, -1) * 10:
        arms = sign * rng.normal(2 * mu, 1, 120), sign * rng.normal(0, 1, 120)
        reached = np.flatnonzero(capital([arms], tangents_of(GaussianCurve(mu))).path() >= LEVEL)
        times.append(reached[0] + 1 if len(reached) else math.inf)
    points = gaussian_points(2 * mu)
    assert LEVEL / growth(points.fpr, points.fnr, GaussianCurve(mu)) == pytest.approx(20.9, abs=0.1)
    assert np.median(times) < 60


def test_scores_that_were_simulated_beforehand_spare_the_runs_that_learn():
    mu, rng = mu_from_epsilon(8, 1e-5), np.random.default_rng(9)
    expected, tangents = (rng.normal(2 * mu, 1, 4000), rng.normal(0, 1, 4000)), tangents_of(GaussianCurve(mu))
    gained = []
    for _ in range(10):
        arms = rng.normal(2 * mu, 1, 20), rng.normal(0, 1, 20)
        known = capital([arms], tangents, expected=[expected]).path()[-1]
        gained.append(known - capital([arms], tangents).path()[-1])
    assert np.median(gained) > 1


def test_what_no_classifier_of_coordinates_sees_a_kernel_does(outputs_of):
    # Signs that agree with the canary and differ without it: every coordinate alone, and its square, has one law.
    rng = np.random.default_rng(3)
    signs = rng.choice([-1.0, 1.0], (150, 1))
    within, out = signs * [1.0, 1.0], rng.choice([-1.0, 1.0], (150, 1)) * [1.0, -1.0]
    rows = (within + rng.normal(0, 0.3, (150, 2)), out + rng.normal(0, 0.3, (150, 2)))
    found = sequential(outputs_of(*rows), delta=1e-5, alpha=0.05, curve=GaussianCurve(1.0), epsilon=4.0)
    assert found.below_curve
    same = sequential(outputs_of(rows[0], rows[0][::-1]), delta=1e-5, alpha=0.05, curve=GaussianCurve(1.0), epsilon=4.0)
    assert not same.below_curve


def test_the_bound_closes_in_on_the_truth_from_below():
    rng = np.random.default_rng(4)
    member, nonmember = (np.asarray(rng.random(8000) < p, dtype=float) for p in (0.7310585, 0.2689415))
    bounds = [anytime_bound([(member[:n], nonmember[:n])], delta=0.0, alpha=0.05) for n in (50, 500, 8000)]
    assert bounds == sorted(bounds)
    assert 0.85 < bounds[-1] < 1


def test_no_evidence_is_zero_and_no_error_is_finite():
    some, none = np.ones(200), np.zeros(200)
    levels = {"delta": 0.0, "alpha": 0.05}
    assert anytime_bound([(some, some)], **levels) == 0
    assert anytime_bound([(some[:1], none[:1])], **levels) == 0
    assert 3 < anytime_bound([(some, none)], **levels) < math.log(200)
    assert anytime_bound([(some, none)], **levels, epsilon=2.0) > 2


def test_a_measurement_shares_alpha_between_the_curve_and_epsilon(outputs_of):
    rng = np.random.default_rng(5)
    scores = outputs_of(rng.normal(2.5, 1, (200, 1)), rng.normal(0, 1, (200, 1)))
    seen = sequential(scores, delta=1e-5, alpha=0.05, curve=GaussianCurve(1.0), epsilon=4.0)
    assert (seen.n0, seen.n1, seen.alpha, seen.below_curve) == (200, 200, 0.05, True)
    alone = sequential(scores, delta=1e-5, alpha=0.05, epsilon=4.0)
    assert (alone.below_curve, alone.tangent) == (None, None)
    assert 0 < seen.epsilon_low < alone.epsilon_low < alone.ceiling
    assert seen.tangent in tangents_of(GaussianCurve(1.0))


def test_a_tiny_claimed_epsilon_takes_no_tiny_steps_above_it():
    bound = anytime_bound([(np.ones(60), np.zeros(60))], delta=1e-5, alpha=0.05, epsilon=1e-9)
    assert bound == pytest.approx(anytime_bound([(np.ones(60), np.zeros(60))], delta=1e-5, alpha=0.05), rel=0.05)
