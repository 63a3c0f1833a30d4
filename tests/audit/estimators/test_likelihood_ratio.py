import math

import numpy as np
import pytest
from fedassay.audit.curve import ProfileCurve
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.estimators.likelihood_ratio import (
    effect_z,
    laplace,
    likelihood_ratio,
    subsampled_gaussian,
)
from fedassay.audit.estimators.release_tests import BrokenRelease, GaussianRelease, draw_projections, release_scores
from fedassay.audit.finding import Verdict, judge
from fedassay.audit.threshold import FixedThreshold
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

SAMPLED = {"sigma": 0.948, "rate": 0.1, "steps": 1, "rounds": 20}


def simulate(*, sigma, rate, steps, rounds, arm, n, rng, noise_factor=1.0):
    """(n,) log-likelihood ratios of the claimed law, from runs whose noise is scaled by ``noise_factor``."""
    release = GaussianRelease(sigma=sigma, rate=rate, steps=steps, rounds=rounds)
    runs = draw_projections(release, BrokenRelease(noise=noise_factor), arm=arm, n=n, rng=rng)
    return release_scores(runs, release, BrokenRelease())


def threshold_at(fpr, *, rng, n=200_000, **law):
    """The claimed law's own (1 - fpr) quantile without the canary."""
    return float(np.quantile(simulate(**law, arm=0, n=n, rng=rng), 1 - fpr))


def naive_ratio(o, sigma, rate, steps):
    """Both densities written out."""
    scale = sigma * math.sqrt(steps)
    inside = sum(binom.pmf(j, steps, rate) * norm.pdf(o, j, scale) for j in range(steps + 1))
    return math.log(inside / norm.pdf(o, 0, scale))


@settings(derandomize=True, deadline=None)
@given(st.floats(-6, 10), st.floats(0.7, 3), st.floats(0, 1), st.integers(1, 7))
def test_many_steps_are_the_ratio_of_both_densities(o, sigma, rate, steps):
    ratio = subsampled_gaussian(np.array(o), sigma=sigma, rate=rate, steps=steps)
    assert ratio == pytest.approx(naive_ratio(o, sigma, rate, steps), rel=1e-8, abs=1e-8)


def test_far_projections_neither_overflow_nor_vanish():
    far = subsampled_gaussian(np.array([-1e6, 1e6]), sigma=0.3, rate=0.1, steps=5)
    assert far[0] == pytest.approx(5 * math.log(0.9))
    assert far[1] == pytest.approx(5 * math.log(0.1) + (10 * 1e6 - 25) / (2 * 5 * 0.09))


def test_a_canary_never_sampled_shows_nothing_and_one_always_sampled_is_gaussian():
    o = np.linspace(-4, 9, 12).reshape(3, 4)
    np.testing.assert_array_equal(subsampled_gaussian(o, sigma=1.0, rate=0.0, steps=3), np.zeros((3, 4)))
    np.testing.assert_allclose(subsampled_gaussian(o, sigma=2.0, rate=1.0, steps=3), (o - 1.5) / 4)


def test_simulated_scores_of_a_gaussian_law_have_its_moments():
    # LLR ~ N(+-mu^2 / 2, mu^2) with mu^2 = rounds * steps / sigma^2 = 2.5; four standard errors at 40,000 draws.
    law = {"sigma": 2.0, "rate": 1.0, "steps": 2, "rounds": 5, "n": 40_000, "rng": np.random.default_rng(0)}
    for arm, mean in ((0, -1.25), (1, 1.25)):
        scores = simulate(**law, arm=arm)
        assert scores.mean() == pytest.approx(mean, abs=4 * math.sqrt(2.5 / 40_000))
        assert scores.std() == pytest.approx(math.sqrt(2.5), rel=4 / math.sqrt(80_000))


def test_the_bound_is_clopper_pearson_on_the_same_scores(scores_of):
    rng = np.random.default_rng(4)
    scores = scores_of(rng.normal(1, 1, 100), rng.normal(0, 1, 100))
    levels = {"delta": 1e-5, "alpha": 0.05, "threshold": FixedThreshold(0.5), "epsilon": 1.0}
    seen = likelihood_ratio(scores, **levels, sigma=4.0, rate=1.0, steps=3, rounds=20)
    plain = clopper_pearson(scores, **levels)
    assert (seen.epsilon_low, seen.detectable, seen.assumption) == (
        plain.epsilon_low,
        plain.detectable,
        plain.assumption,
    )
    assert (seen.estimator, plain.effect_z) == ("likelihood_ratio", None)
    assert seen.effect_z == effect_z(scores.member, scores.nonmember, math.sqrt(60) / 4)


def test_no_z_where_the_law_is_not_gaussian(scores_of):
    scores = scores_of([1.0, 2.0], [0.0, 1.0])
    seen = likelihood_ratio(scores, delta=1e-5, alpha=0.05, threshold=FixedThreshold(0.5), **SAMPLED)
    assert seen.effect_z is None


def test_z_by_hand():
    # Means 3 and 1, both variances 1 (n - 1 below): effect 2; at mu 1 the error is sqrt(1/3 + 1/3 + 1/12).
    member, nonmember = np.array([2.0, 3.0, 4.0]), np.array([0.0, 1.0, 2.0])
    assert effect_z(member, nonmember, 1.0) == pytest.approx(1 / math.sqrt(0.75))
    assert effect_z(member * 7 + 3, nonmember * 7 + 3, 1.0) == pytest.approx(1 / math.sqrt(0.75))


def test_z_is_not_blind_to_a_halved_sigma():
    # Exactly what a z over the claimed deviation misses: the means are those of the claim.
    law = {"sigma": 1 / 0.925, "rate": 1.0, "steps": 1, "rounds": 1, "n": 300, "rng": np.random.default_rng(5)}
    correct = effect_z(simulate(**law, arm=1), simulate(**law, arm=0), 0.925)
    broken_in, broken_out = (simulate(**law, arm=arm, noise_factor=0.5) for arm in (1, 0))
    claimed = (broken_in.mean() - broken_out.mean() - 0.925**2) / (0.925 * math.sqrt(2 / 300))
    assert abs(correct) < 3
    assert abs(claimed) < 3
    assert effect_z(broken_in, broken_out, 0.925) > 5


@pytest.mark.simulations
def test_a_halved_sigma_in_twenty_sampled_rounds_needs_620_trials(scores_of, claim_of):
    # q .1, T 20, epsilon 4: exact power .9999 at alpha .002, exact false alarm below 1e-5. 25 repeats of each.
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    rng, knots = np.random.default_rng(7), np.linspace(0, 10, 400)
    losses = pld.from_gaussian_mechanism(SAMPLED["sigma"], sampling_prob=0.1, value_discretization_interval=1e-3)
    deltas = tuple(losses.self_compose(20).get_delta_for_epsilon(knots))
    claim = claim_of(curve=ProfileCurve(tuple(knots), deltas, deltas))
    levels = {"delta": 1e-5, "alpha": 0.002, "threshold": FixedThreshold(threshold_at(0.6, **SAMPLED, rng=rng))}
    for noise_factor, verdict in ((0.5, Verdict.REFUTED), (1.0, Verdict.NOT_REFUTED)):
        for _ in range(25):
            arms = [simulate(**SAMPLED, arm=arm, n=620, rng=rng, noise_factor=noise_factor) for arm in (1, 0)]
            seen = likelihood_ratio(scores_of(*arms), **levels, **SAMPLED, curve=claim.curve, epsilon=claim.epsilon)
            assert judge(claim, seen).verdict is verdict


def test_rounds_that_are_not_the_evidence_and_impossible_laws_are_refused(scores_of):
    scores, levels = scores_of([1.0], [0.0]), {"delta": 1e-5, "alpha": 0.05, "threshold": FixedThreshold(0.5)}
    with pytest.raises(ValueError, match="rounds must equal the number of rounds in the evidence, 20, got 3"):
        likelihood_ratio(scores, **levels, **(SAMPLED | {"rounds": 3}))
    for change, words in [
        ({"sigma": 0.0}, "sigma .*must be > 0 and finite, got 0.0"),
        ({"sigma": math.nan}, "sigma .*must be > 0 and finite, got nan"),
        ({"rate": 1.5}, r"rate .*must lie in \[0, 1\], got 1.5"),
        ({"steps": 0}, "steps .*must be >= 1, got 0"),
    ]:
        with pytest.raises(ValueError, match=words):
            subsampled_gaussian([0.0], **({"sigma": 1.0, "rate": 0.5, "steps": 1} | change))


@settings(derandomize=True, deadline=None)
@given(st.lists(st.floats(-9, 9), min_size=2, max_size=2), st.floats(0.3, 3))
def test_laplace_is_the_ratio_of_both_densities_and_epsilon_at_most(release, scale):
    canary = np.array([1.0, -0.5])
    naive = sum(abs(o) / scale - abs(o - c) / scale for o, c in zip(release, canary, strict=True))
    ratio = float(laplace(release, canary, scale=scale))
    assert ratio == pytest.approx(naive, abs=1e-9)
    assert abs(ratio) <= 1.5 / scale + 1e-12


def test_a_laplace_release_reaches_its_epsilon_on_the_tail(scores_of):
    # Scale 1, sensitivity 1: every release above 1 has ratio e^1; a million trials, expected bound .99.
    rng = np.random.default_rng(10)
    arms = [laplace(rng.laplace(size=(10**6, 1)) + arm, [1.0], scale=1.0) for arm in (1.0, 0.0)]
    seen = clopper_pearson(scores_of(*arms), delta=0.0, alpha=0.05, threshold=FixedThreshold(1 - 1e-9))
    assert 0.98 < seen.epsilon_low < 1
