import json

import numpy as np
import pytest
from fedassay.audit.curve import GaussianCurve, ProfileCurve, Tangent, curve_from_dict, delta_from_mu
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

RATES = np.concatenate([[0.0], np.logspace(-8, 0, 400), 1 - np.logspace(-8, -0.5, 200)])


def profile_of(mu: float, epsilons: np.ndarray) -> ProfileCurve:
    deltas = tuple(delta_from_mu(mu, epsilon) for epsilon in epsilons)
    return ProfileCurve(tuple(epsilons), deltas, deltas)


def naive_fnr(curve: ProfileCurve, fpr: float) -> float:
    """Every knot in both directions, one at a time."""
    best = 0.0
    for epsilon, remove, add in zip(curve.epsilons, curve.delta_remove, curve.delta_add, strict=True):
        best = max(best, 1 - remove - np.exp(epsilon) * fpr, np.exp(-epsilon) * (1 - add - fpr))
    return best


def test_the_gaussian_curve_gives_the_errors_of_the_likelihood_ratio_test():
    thresholds = np.linspace(-3, 4, 50)
    fnr = GaussianCurve(1.3).fnr(norm.sf(thresholds))
    np.testing.assert_allclose(fnr, norm.cdf(thresholds - 1.3), rtol=1e-10)


def test_a_curve_that_leaks_nothing_is_the_coin():
    np.testing.assert_allclose(GaussianCurve(0).fnr(RATES), 1 - RATES, atol=1e-12)
    np.testing.assert_allclose(ProfileCurve((0.0,), (0.0,), (0.0,)).fnr(RATES), 1 - RATES, atol=1e-12)


def test_one_knot_is_the_curve_of_epsilon_delta():
    curve = ProfileCurve((1.0,), (0.1,), (0.1,))
    assert curve.fnr(0.1) == pytest.approx(1 - 0.1 - np.e * 0.1)
    assert curve.fnr(0.6) == pytest.approx((1 - 0.1 - 0.6) / np.e)
    assert curve.fnr(0.95) == 0


def test_the_directions_of_add_remove_are_not_exchanged():
    # In: always 1. Out: 1 with chance .9. Then P_out = .9 at TPR 1, and no event shows in over out above 1/.9.
    curve = ProfileCurve((0.0, np.log(1 / 0.9)), (0.1, 0.0), (0.1, 0.1))
    assert curve.fnr(0.9) == pytest.approx(0)
    assert curve.fnr(0.45) == pytest.approx(0.5)


@pytest.mark.parametrize("mu", [0.2, 0.925, 3.0])
def test_a_profile_lies_at_or_below_the_exact_curve_and_within_a_thousandth(mu):
    exact = GaussianCurve(mu).fnr(RATES)
    profile = profile_of(mu, np.linspace(0, mu * mu / 2 + 8 * mu, 1000)).fnr(RATES)
    assert np.all(profile <= exact + 1e-12)
    assert np.max(exact - profile) < 1e-3


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=6),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_a_profile_agrees_with_a_naive_one_falls_and_stays_below_the_coin(knots, first, second):
    curve = ProfileCurve(*map(tuple, zip(*knots, strict=True)))
    low, high = sorted((first, second))
    assert curve.fnr(low) == pytest.approx(naive_fnr(curve, low), abs=1e-9)
    assert 0 <= curve.fnr(high) <= curve.fnr(low) <= 1 - low + 1e-12


@pytest.mark.parametrize("curve", [GaussianCurve(1), ProfileCurve((0, 1.5), (0.3, 0.1), (0.2, 0.1))])
def test_a_curve_survives_json(curve):
    assert curve_from_dict(json.loads(json.dumps(curve.to_dict()))) == curve


@pytest.mark.parametrize("mu", [-1.0, float("nan"), float("inf")])
def test_mu_must_be_finite_and_not_negative(mu):
    with pytest.raises(ValueError, match="mu must be >= 0 and finite"):
        GaussianCurve(mu)


@pytest.mark.parametrize(
    ("knots", "says"),
    [
        (((), (), ()), "not empty"),
        (((1.0,), (0.1, 0.2), (0.1,)), r"equally long and not empty, got \[1, 2, 1\]"),
        (((-1.0,), (0.1,), (0.1,)), "epsilons must be >= 0 and finite, got -1.0"),
        (((float("inf"),), (0.1,), (0.1,)), "epsilons must be >= 0 and finite, got inf"),
        (((1.0,), (-0.1,), (0.1,)), r"deltas must lie in \[0, 1\], got -0.1"),
        (((1.0,), (0.1,), (float("nan"),)), r"deltas must lie in \[0, 1\], got nan"),
    ],
)
def test_a_profile_with_a_wrong_knot_is_refused(knots, says):
    with pytest.raises(ValueError, match=says):
        ProfileCurve(*knots)


def test_rates_outside_zero_and_one_and_unknown_families_are_refused():
    for curve in (GaussianCurve(1.0), ProfileCurve((1.0,), (0.1,), (0.1,))):
        for rate in (-0.1, 1.1, float("nan")):
            with pytest.raises(ValueError, match="fpr must lie in"):
                curve.fnr(rate)
    with pytest.raises(ValueError, match="curve family must be gaussian or profile, got 'gauss'"):
        curve_from_dict({"family": "gauss"})


@pytest.mark.parametrize("fpr", [1e-6, 0.02, 0.3, 0.6, 0.98])
@pytest.mark.parametrize(
    "curve", [GaussianCurve(1.3), ProfileCurve((0.2, 1.0, 3.0), (0.3, 0.1, 0.01), (0.25, 0.15, 0.02))], ids=str
)
def test_a_tangent_touches_its_curve_and_lies_nowhere_above_it(curve, fpr):
    tangent = Tangent.at(curve, fpr)
    assert float(tangent.fnr(fpr)) == pytest.approx(float(curve.fnr(fpr)), abs=1e-12)
    assert (tangent.fnr(RATES) <= curve.fnr(RATES) + 1e-12).all()
