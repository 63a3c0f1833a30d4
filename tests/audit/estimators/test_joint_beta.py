"""The joint-Beta credible interval: known answer, Monte Carlo and quadrature references, and its limits."""

import math

import numpy as np
import pytest
from fedassay.audit.estimators.joint_beta import POSTERIOR, ErrorRatePosterior, joint_beta
from fedassay.audit.finding import Verdict, judge
from fedassay.audit.measurement import Kind
from fedassay.audit.threshold import BonferroniThresholds, FixedThreshold
from scipy.integrate import quad
from scipy.stats import beta

PUBLISHED = ErrorRatePosterior(true_in=487, true_out=1, false_in=512, false_out=0)


def region(fnr, epsilon, delta):
    """As it is printed."""
    low = np.maximum(0, np.maximum(1 - delta - math.exp(epsilon) * fnr, math.exp(-epsilon) * (1 - delta - fnr)))
    high = np.minimum(1, 1 + (delta - fnr) * math.exp(-epsilon))
    return low, np.minimum(high, delta + math.exp(epsilon) * (1 - fnr))


def test_the_published_example():
    low, high = PUBLISHED.interval(delta=1e-5, alpha=0.1)
    assert low == pytest.approx(0.1439, abs=5e-5)
    assert high == pytest.approx(6.4156, abs=5e-5)


@pytest.mark.parametrize(
    ("counts", "epsilon", "delta"),
    [((40, 35, 5, 10), 0.3, 0.0), ((20, 20, 0, 0), 1.5, 1e-5), ((3, 50, 10, 30), 3.0, 0.1), ((0, 0, 8, 8), 1.5, 0.0)],
)
def test_the_probability_of_a_region_is_its_double_integral(counts, epsilon, delta):
    posterior = ErrorRatePosterior(true_in=counts[0], true_out=counts[1], false_in=counts[2], false_out=counts[3])
    fnr, fpr = beta(posterior.false_out + 0.5, counts[0] + 0.5), beta(posterior.false_in + 0.5, counts[1] + 0.5)

    def allowed(share):
        low, high = region(fnr.ppf(share), epsilon, delta)
        return max(0.0, fpr.cdf(high) - fpr.cdf(low))

    corner = fnr.cdf([(1 - delta) / (1 + math.exp(epsilon)), 1 - (1 - delta) / (1 + math.exp(epsilon)), 1 - delta])
    naive = quad(allowed, 0, 1, points=sorted(corner), limit=400)[0]
    assert posterior.probability(epsilon, delta=delta) == pytest.approx(naive, abs=2e-5)


def test_the_ends_hold_their_share_of_posterior_samples():
    # 400,000 draws: three standard errors of a share of .05 are .001.
    rng = np.random.default_rng(0)
    fnr, fpr = rng.beta(0.5, 487.5, 400_000), rng.beta(512.5, 1.5, 400_000)
    for end, share in zip(PUBLISHED.interval(delta=1e-5, alpha=0.1), (0.05, 0.95), strict=True):
        low, high = region(fnr, end, 1e-5)
        assert np.mean((low <= fpr) & (fpr <= high)) == pytest.approx(share, abs=0.0011)


def test_it_is_labelled_credible_and_never_refutes(scores_of, claim_of):
    seen = joint_beta(scores_of(np.ones(500), np.zeros(500)), delta=1e-5, alpha=0.05, threshold=FixedThreshold(0.5))
    assert (seen.kind, seen.epsilon_low, seen.ceiling, seen.estimate) == (Kind.CREDIBLE, 0.0, 0.0, None)
    assert seen.assumption == POSTERIOR
    low, high = seen.credible
    assert 6 < low < high
    finding = judge(claim_of(epsilon=1.0), seen)
    assert finding.verdict is Verdict.UNDERPOWERED
    assert "95 % credible interval of eps 6.22 to 15.21, which is not a bound" in finding.line()


def test_of_several_thresholds_each_has_its_share(scores_of):
    rng = np.random.default_rng(1)
    scores = scores_of(rng.normal(2, 1, 100), rng.normal(0, 1, 100))
    best = joint_beta(scores, delta=1e-5, alpha=0.1, threshold=BonferroniThresholds((-3.0, 1.0)))
    alone = joint_beta(scores, delta=1e-5, alpha=0.05, threshold=FixedThreshold(1.0))
    assert (best.threshold, best.credible, best.comparisons) == (1.0, alone.credible, 2)


def test_its_errors_are_oftener_than_a_bound_is_allowed(most_false_alarms):
    # Randomised response exactly at epsilon 4, 500 trials per arm, alpha .05 in all: about a tenth miss.
    rng, wrong = np.random.default_rng(2), 1 / (1 + math.exp(4))
    counts, times = np.unique(rng.binomial(500, wrong, (1000, 2)), axis=0, return_counts=True)
    missed = 0
    for (fp, fn), repeats in zip(counts, times, strict=True):
        posterior = ErrorRatePosterior(true_in=500 - fn, true_out=500 - fp, false_in=fp, false_out=fn)
        missed += repeats * (not 0.025 <= posterior.probability(4.0, delta=0.0) <= 0.975)
    assert missed > most_false_alarms(1000, 0.05)
