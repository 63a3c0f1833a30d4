"""The exact test of a ratio of two rates: valid at the boundary, close to the best that the counts allow."""

import math
from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.binomial import ErrorCounts, epsilon_low
from fedassay.audit.claim import Claim
from fedassay.audit.curve import GaussianCurve, Tangent
from fedassay.audit.estimators.event_ratio import (
    Contrast,
    _refutes,
    event_ratio_of_counts,
    ratio_low,
    refuted_fnr,
    refuted_point,
    under_tangent,
)
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
def test_the_complement_exchanges_the_inputs():
    counts = ErrorCounts(threshold=None, false_positives=400, false_negatives=100, n0=1000, n1=1000, alpha=0.05)
    shown = [
        event_ratio_of_counts(counts, setting=SETTING, contrast=Contrast(weight=2.0, complement=side), delta=0.0)
        for side in (False, True)
    ]
    assert shown[0].estimate == pytest.approx(math.log(900 / 400))
    assert shown[1].estimate == pytest.approx(math.log(600 / 100))
    assert all(0 < one.epsilon_low < one.estimate for one in shown)


def test_equal_counts_show_nothing_and_a_weight_is_positive():
    assert ratio_low(500, 1000, 500, 1000, weight=1.0, delta=0, alpha=0.05) == 0
    with pytest.raises(ValueError, match="weight must be > 0 and finite, got 0"):
        Contrast(weight=0)


def share_refuted(refuted, rates, n, alpha, seed):
    """The share of 100 experiments with these two error rates whose counts are ``refuted``."""
    rng = np.random.default_rng(seed)
    errors = zip(*(rng.binomial(n, rate, 100) for rate in rates), strict=True)
    shared = {"threshold": None, "n0": n, "n1": n, "alpha": alpha}
    found = [ErrorCounts(false_positives=int(one), false_negatives=int(other), **shared) for one, other in errors]
    return float(np.mean([refuted(counts) for counts in found]))


@pytest.mark.simulations
@pytest.mark.long
@pytest.mark.parametrize("fpr", [0.5, 0.1, 0.03])
def test_a_tangent_refutes_true_claims_at_its_level_and_more_false_ones_than_two_bounds(fpr):
    curve, n, alpha = GaussianCurve(1.3), 20_000, 1e-6
    tangent = Tangent.at(curve, fpr)

    def by_tangent(counts):
        return under_tangent(counts, tangent)

    def by_two_bounds(counts):
        return counts.fnr_high < curve.fnr(counts.fpr_high)

    # More than 13 of 100 true claims at level .05 have probability 2e-4.
    assert share_refuted(by_tangent, (fpr, float(curve.fnr(fpr))), n, 0.05, seed=0) <= 0.13
    rates = fpr, refuted_fnr(tangent, fpr, n, alpha)
    # The stated power is .9.
    assert 0.8 <= share_refuted(by_tangent, rates, n, alpha, seed=1) < 1
    assert share_refuted(by_two_bounds, rates, n, alpha, seed=1) < 0.5


@pytest.mark.parametrize("complement", [False, True])
def test_the_point_that_refuted_a_curve_lies_between_the_counts_and_the_curve(complement, measurement_of):
    curve = GaussianCurve(1.0)
    # At these rates of false alarms the curve allows false-negative rates of 0.611 and 0.0562.
    fpr, fnr = (0.1, 0.5) if not complement else (0.72, 0.03)
    tangent, n = Tangent.at(curve, fpr), 20_000
    assert tangent.complement == complement
    counts = {"false_positives": round(fpr * n), "false_negatives": round(fnr * n), "n0": n, "n1": n, "alpha": 0.01}
    found = measurement_of(**counts, below_curve=True, tangent=tangent, fpr_high=None, fnr_high=None)
    rate, bound = refuted_point(found)
    assert rate == fpr
    assert fnr < bound < float(curve.fnr(fpr))
    # Three standard errors of the contrast, at most.
    assert bound - fnr < 3 * math.sqrt((fnr * (1 - fnr) + math.exp(2 * tangent.epsilon) * fpr * (1 - fpr)) / n)
    assert refuted_point(replace(found, below_curve=False)) is None
    # Bets over a whole audit count no errors.
    assert refuted_point(replace(found, false_positives=None, false_negatives=None)) is None
    assert refuted_point(measurement_of(below_curve=True)) == (0.0209, 0.0355)
