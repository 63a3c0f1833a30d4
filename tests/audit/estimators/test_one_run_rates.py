"""Error rates of canaries at a threshold that others chose: coverage, tightness, and what it takes."""

from functools import lru_cache

import numpy as np
import pytest
from fedassay.audit.binomial import upper_bound
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import epsilon_from_mu, mu_from_epsilon
from fedassay.audit.estimators.gaussian_dp import mu_from_rates
from fedassay.audit.estimators.one_run_rates import mu_from_counts, one_run_rates
from fedassay.audit.evidence import CanaryScores, Design, Setting
from fedassay.audit.measurement import INDEPENDENT_GAUSSIAN
from fedassay.audit.observer import UPLOADS
from fedassay.audit.threshold import FixedThreshold, SplitThreshold
from scipy.stats import norm

SETTING = Setting(unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=UPLOADS, rounds=1, design=Design.ONE_RUN)
MU = mu_from_epsilon(4.0, 1e-5)


def drawn(mu, canaries, seed=0, scale=lambda scores: scores):
    rng = np.random.default_rng(seed)
    included = rng.random(canaries) < 0.5
    return CanaryScores(scale(mu * included + rng.standard_normal(canaries)), included, SETTING)


@pytest.mark.parametrize(("mu", "cut"), [(0.0, 0.0), (0.5, 0.25), (0.5, 1.5), (2.0, -0.5)])
def test_the_truth_is_exceeded_at_the_level_at_any_threshold(mu, cut):
    # 2,000 repeats at level .05: 100 expected at most, standard deviation 9.7.
    rng, bound = np.random.default_rng(1), lru_cache(mu_from_counts)
    counts = rng.binomial(60, norm.sf(cut), 2000), rng.binomial(60, norm.sf(cut - mu), 2000)
    assert sum(bound(int(a), 60, int(h), 60, alpha=0.05) > mu for a, h in zip(*counts, strict=True)) <= 140


def test_the_bound_is_larger_than_that_of_two_separate_bounds_on_rates():
    alarms, hits = 160, 340
    highs = [float(upper_bound(count, 500, 0.025)) for count in (alarms, 500 - hits)]
    assert mu_from_counts(alarms, 500, hits, 500, alpha=0.05) > mu_from_rates(*highs) + 0.05


@pytest.mark.parametrize("scale", [lambda scores: scores, np.exp], ids=["Gaussian", "likelihood ratios"])
def test_1000_canaries_prove_most_of_epsilon_4_whatever_the_scale_of_scores(scale):
    found = one_run_rates(
        drawn(MU, 1000, scale=scale),
        delta=1e-5,
        alpha=0.05,
        threshold=SplitThreshold(0.5),
        epsilon=4.0,
    )
    assert 2.8 < found.epsilon_low < 4
    assert (found.assumption, found.canaries, found.made) == (INDEPENDENT_GAUSSIAN, 1000, 900)
    assert found.detectable > 4


def test_perfect_scores_prove_the_most_that_so_many_can():
    rng = np.random.default_rng(4)
    for _ in range(20):
        included = rng.random(200) < 0.5
        scores = CanaryScores(included.astype(float), included, SETTING)
        found = one_run_rates(scores, delta=1e-5, alpha=0.05, threshold=SplitThreshold(0.5), epsilon=4.0)
        assert found.epsilon_low == pytest.approx(found.ceiling)
        assert found.epsilon_low > 8


def test_it_takes_canaries_on_both_sides():
    scores = CanaryScores(np.arange(40.0), np.ones(40, dtype=bool), SETTING)
    with pytest.raises(ValueError, match="included canaries and left-out canaries"):
        one_run_rates(scores, delta=1e-5, alpha=0.05, threshold=FixedThreshold(1.0))
    with pytest.raises(ValueError, match="delta must be > 0"):
        one_run_rates(scores, delta=0.0, alpha=0.05, threshold=FixedThreshold(1.0))
    with pytest.raises(ValueError, match="counts must lie in"):
        mu_from_counts(3, 2, 1, 2, alpha=0.05)
    assert epsilon_from_mu(mu_from_counts(0, 1, 1, 1, alpha=0.05), 1e-5) == 0
