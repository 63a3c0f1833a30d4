import math

import numpy as np
import pytest
from fedassay.audit.binomial import epsilon_low, upper_bound
from fedassay.audit.curve import GaussianCurve, ProfileCurve, delta_from_mu, epsilon_from_mu, mu_from_epsilon
from fedassay.audit.power import minimum_detectable_epsilon, power_at
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


def test_more_trials_detect_less_and_never_below_the_claim():
    found = [
        minimum_detectable_epsilon(**design(n, 0.05, 0.3, GaussianCurve(MU))) for n in (100, 1000, 10**4, 10**5, 10**6)
    ]
    assert found == sorted(found, reverse=True)
    assert 4 < found[-1] < 4.05


def test_the_stated_curve_detects_far_less_than_the_bare_bound():
    curve = minimum_detectable_epsilon(**design(1000, 0.05, 0.3, GaussianCurve(MU)))
    bare = minimum_detectable_epsilon(**design(1000, 0.05, 0.3, None, 4.0))
    assert curve == pytest.approx(5.24, abs=0.005)
    assert bare == pytest.approx(18.55, abs=0.005)


def test_a_fine_profile_detects_what_the_exact_curve_detects():
    knots = tuple(np.linspace(0, 8, 500))
    deltas = tuple(delta_from_mu(MU, knot) for knot in knots)
    profile = minimum_detectable_epsilon(**design(1000, 0.05, 0.3, ProfileCurve(knots, deltas, deltas)))
    assert profile == pytest.approx(minimum_detectable_epsilon(**design(1000, 0.05, 0.3, GaussianCurve(MU))), abs=0.02)


def test_a_design_that_reaches_nothing_gives_none():
    assert minimum_detectable_epsilon(**design(10, 0.05, 0.3, None, 4.0)) is None
    assert minimum_detectable_epsilon(**design(1000, 0.05, 0.3)) is None


def test_at_delta_zero_the_truth_is_the_worst_pure_mechanism():
    arguments = {"n0": 500, "n1": 500, "alpha": 0.05, "delta": 0.0, "fpr": 0.2, "curve": None, "epsilon": 0.5}
    found = minimum_detectable_epsilon(**arguments)
    fnr = max(1 - math.exp(found) * 0.2, math.exp(-found) * 0.8)
    assert 0.5 < found < 1.5
    assert power_against_gaussian(norm.isf(0.2) - norm.ppf(fnr), **arguments) == pytest.approx(0.9, abs=1e-6)


def test_500_trials_always_catch_a_halved_sigma_behind_a_claim_of_four():
    # Threshold mu / 2; halving the noise doubles mu and moves the false-positive rate to Phi(-mu).
    broken = power_against_gaussian(2 * MU, **design(500, 0.01 / 6, norm.sf(MU), GaussianCurve(MU)))
    correct = power_against_gaussian(MU, **design(500, 0.01 / 6, norm.sf(MU / 2), GaussianCurve(MU)))
    assert broken == pytest.approx(1.0, abs=1e-6)
    assert correct < 1e-5
    # The bare bound at a thousand trials is far from the claim.
    assert power_against_gaussian(2 * MU, **design(1000, 0.05, norm.sf(MU), None, 4.0)) < 1e-6


def test_253_trials_catch_it_with_999_in_1000_at_alpha_002_and_240_do_not():
    powers = {n: power_against_gaussian(2 * MU, **design(n, 0.002, norm.sf(MU), GaussianCurve(MU))) for n in (240, 253)}
    assert powers[253] > 0.999 > powers[240]


@pytest.mark.parametrize("fpr", [0.02, 0.1, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("n", [20, 200, 5000])
def test_a_correct_mechanism_is_refuted_no_oftener_than_alpha_exactly(n, fpr):
    # Exact, at every threshold: the joint point spends less than a tenth of its alpha.
    assert power_against_gaussian(MU, **design(n, 0.05, fpr, GaussianCurve(MU))) < 0.05 / 10
    assert power_against_gaussian(MU, **design(n, 0.05, fpr, None, 4.0)) < 0.05 / 10
    assert power_against_gaussian(0.0, **design(n, 0.05, fpr, None, 1e-9)) < 0.05 / 10


def test_the_epsilon_is_read_from_the_mu():
    found = minimum_detectable_epsilon(**design(300, 0.05, 0.4, GaussianCurve(1.0)), power=0.5)
    assert power_against_gaussian(mu_from_epsilon(found, 1e-5), **design(300, 0.05, 0.4, GaussianCurve(1.0))) == (
        pytest.approx(0.5, abs=1e-6)
    )
    assert found > epsilon_from_mu(1, 1e-5)


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(ValueError, match="its curve or its epsilon, got neither"):
        power_against_gaussian(1.0, **design(10, 0.05, 0.5))
    for fpr in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"fpr must lie in \(0, 1\)"):
            minimum_detectable_epsilon(**design(10, 0.05, fpr, GaussianCurve(1.0)))
    with pytest.raises(ValueError, match=r"fnr must lie in \[0, 1\], got 1.5"):
        power_at(fnr=1.5, **design(10, 0.05, 0.5, GaussianCurve(1.0)))
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 1\)"):
        minimum_detectable_epsilon(**design(10, 0.0, 0.5, GaussianCurve(1.0)))
