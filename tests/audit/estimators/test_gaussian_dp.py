import math

import numpy as np
import pytest
from fedassay.audit.binomial import upper_bound
from fedassay.audit.curve import GaussianCurve, delta_from_mu, epsilon_from_mu, mu_from_epsilon
from fedassay.audit.estimators.gaussian_dp import gaussian_dp, mu_from_rates
from fedassay.audit.power import minimum_detectable_epsilon
from fedassay.audit.threshold import FixedThreshold
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm


def test_mu_one_is_4_3772_at_1e_5_and_4_887_at_1e_6():
    assert epsilon_from_mu(1, 1e-5) == pytest.approx(4.3772, abs=5e-5)
    assert epsilon_from_mu(1, 1e-6) == pytest.approx(4.887, abs=5e-4)


@pytest.mark.parametrize(("mu", "epsilon"), [(0.5, 0.3), (1.0, 2.0), (3.0, 4.0), (0.01, 0.0)])
def test_delta_is_the_hockey_stick_integral(mu, epsilon):
    def excess(x):
        return max(0.0, norm.pdf(x - mu) - math.exp(epsilon) * norm.pdf(x))

    kink = epsilon / mu + mu / 2
    naive = quad(excess, kink, kink + 12, epsabs=1e-14)[0]
    assert delta_from_mu(mu, epsilon) == pytest.approx(naive, rel=1e-7)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.floats(math.log(1e-4), math.log(50)), st.floats(math.log(1e-12), math.log(0.4)))
def test_the_inverses_agree_from_tiny_to_huge(log_mu, log_delta):
    mu, delta = math.exp(log_mu), math.exp(log_delta)
    epsilon = epsilon_from_mu(mu, delta)
    if epsilon == 0:
        assert math.erf(mu / math.sqrt(8)) <= delta * (1 + 1e-9)
        return
    assert delta_from_mu(mu, epsilon) == pytest.approx(delta, rel=1e-6)
    assert mu_from_epsilon(epsilon, delta) == pytest.approx(mu, rel=1e-6)


def test_numbers_at_the_edges():
    assert delta_from_mu(1e-4, 0) == pytest.approx(1e-4 / math.sqrt(2 * math.pi), rel=1e-8)
    assert delta_from_mu(50, 0) == pytest.approx(1)
    assert delta_from_mu(1e-4, 50) == 0
    assert delta_from_mu(50, 1250) == pytest.approx(0.5 - 0.5 * math.exp(1250 + norm.logcdf(-50) + math.log(2)))
    assert epsilon_from_mu(0, 1e-5) == 0
    assert epsilon_from_mu(1e-6, 1e-5) == 0
    assert epsilon_from_mu(1, 0) == math.inf
    assert mu_from_epsilon(1, 0) == 0
    for wrong in (lambda: delta_from_mu(-1, 1), lambda: epsilon_from_mu(1, 1.0), lambda: mu_from_epsilon(-1, 0.1)):
        with pytest.raises(ValueError, match="must"):
            wrong()


def test_rates_below_the_coin_show_no_mu():
    assert mu_from_rates(0.9, 0.9) == 0
    assert mu_from_rates(norm.sf(1.2), norm.cdf(1.2 - 2)) == pytest.approx(2)
    assert mu_from_rates(0.0, 0.5) == math.inf
    assert math.isnan(mu_from_rates(0.0, 1.0))


def test_the_bound_is_that_of_the_joint_point(scores_of):
    rng = np.random.default_rng(0)
    member, nonmember = rng.normal(1.5, 1, 300), rng.normal(0, 1, 300)
    seen = gaussian_dp(
        scores_of(member, nonmember), delta=1e-5, alpha=0.05, threshold=FixedThreshold(0.75), epsilon=1.0
    )
    fpr = float(upper_bound(np.sum(nonmember > 0.75), 300, 0.025))
    fnr = float(upper_bound(np.sum(member <= 0.75), 300, 0.025))
    assert seen.epsilon_low == pytest.approx(epsilon_from_mu(norm.isf(fpr) - norm.ppf(fnr), 1e-5))
    assert seen.estimate == pytest.approx(epsilon_from_mu(1.5, 1e-5), rel=0.2)
    # A Gaussian bound exceeds the claim just when the point lies under the claim's Gaussian curve.
    claimed = GaussianCurve(mu_from_epsilon(1.0, 1e-5))
    rate = (seen.false_positives + 0.5) / 301
    assert seen.detectable == minimum_detectable_epsilon(
        n0=300, n1=300, alpha=0.05, delta=1e-5, fpr=rate, curve=claimed, epsilon=None
    )
    assert seen.assumption == "trade-off curve of a mu-GDP mechanism"
