"""The exact test of a ratio of two rates: valid at the boundary, close to the best that the counts allow."""

import math

import numpy as np
import pytest
from fedassay.audit.binomial import epsilon_low
from fedassay.audit.claim import Claim
from fedassay.audit.estimators.counted import Contrast, _refutes, event_ratio_of_counts, ratio_low
from fedassay.audit.estimators.pairwise_event import EventCounts
from fedassay.audit.evidence import Setting
from scipy.stats import binom

SETTING = Setting.claimed(Claim.stated(1.0))


def test_a_million_trials_show_more_than_two_separate_bounds_and_less_than_a_normal_approximation():
    n, p1, p0 = 10**6, 0.5, 0.5 * math.exp(-0.1)
    shown = ratio_low(round(n * p1), n, round(n * p0), n, weight=p1 / p0, delta=0, alpha=0.1)
    normal = 0.1 - 1.2816 * math.sqrt(((1 - p1) / p1 + (1 - p0) / p0) / n)
    assert epsilon_low(round(n * p0), round(n * (1 - p1)), n, n, 0, 0.1) + 0.001 < shown < normal


@pytest.mark.simulations
@pytest.mark.parametrize(("epsilon", "delta", "rate"), [(0.5, 0.0, 0.3), (0.0, 0.1, 0.2), (1.0, 0.0, 0.1)])
def test_at_the_boundary_the_chance_of_a_refutation_is_at_most_alpha_by_exact_sums(epsilon, delta, rate):
    # Each count on one input has a smallest count on the other that refutes; 40 trials per input, weight 2.
    n, alpha, high = 40, 0.1, math.exp(epsilon) * rate + delta
    wrong = 0.0
    for k0 in range(int(binom.ppf(1e-4, n, rate)), int(binom.ppf(1 - 1e-4, n, rate)) + 1):
        least, most = 0, n + 1
        while least < most:
            k1 = (least + most) // 2
            refuted = _refutes(k1, n, k0, n, epsilon, weight=2.0, delta=delta, alpha=alpha, every=1)
            least, most = (least, k1) if refuted else (k1 + 1, most)
        wrong += binom.pmf(k0, n, rate) * binom.sf(least - 1, n, high)
    assert 0 < wrong <= alpha


@pytest.mark.simulations
def test_the_bound_is_right_in_simulations_at_the_boundary(most_false_alarms):
    rng = np.random.default_rng(0)
    drawn = zip(rng.binomial(500, 0.3 * math.e**0.5, 60), rng.binomial(500, 0.3, 60), strict=True)
    wrong = sum(ratio_low(int(k1), 500, int(k0), 500, weight=1.6, delta=0, alpha=0.1) > 0.5 for k1, k0 in drawn)
    assert wrong <= most_false_alarms(60, 0.1)


@pytest.mark.simulations
def test_the_complement_exchanges_the_inputs():
    counts = EventCounts(hits_in=900, n1=1000, hits_out=400, n0=1000, setting=SETTING)
    shown = [
        event_ratio_of_counts(counts, contrast=Contrast(weight=2.0, complement=side), delta=0.0, alpha=0.05)
        for side in (False, True)
    ]
    assert shown[0].estimate == pytest.approx(math.log(900 / 400))
    assert shown[1].estimate == pytest.approx(math.log(600 / 100))
    assert all(0 < one.epsilon_low < one.estimate for one in shown)


def test_equal_counts_show_nothing_and_a_weight_is_positive():
    assert ratio_low(500, 1000, 500, 1000, weight=1.0, delta=0, alpha=0.05) == 0
    with pytest.raises(ValueError, match="weight must be > 0 and finite, got 0"):
        Contrast(weight=0)
