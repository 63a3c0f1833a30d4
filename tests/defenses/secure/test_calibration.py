"""Calibration: noise and budgets against closed forms, hand-computed bounds and exact distributions."""

import math

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from fedassay.defenses.secure.calibration import (
    binomial_epsilon,
    binomial_sigma,
    discrete_gaussian_rho,
    discrete_gaussian_sigma,
    epsilon_of_rdp,
    gaussian_sigma,
    skellam_rdp,
    skellam_sigma,
    zcdp_budget,
)
from scipy import stats

BUDGET = {"epsilon": 4.377178, "delta": 1e-5}


def test_continuous_shares_need_the_noise_of_the_analytic_gaussian():
    """Sigma 1 at this budget (Balle and Wang 2018); sixteen rounds need four times it."""
    assert gaussian_sigma(1.0, rounds=1, **BUDGET) == pytest.approx(1.0, abs=1e-4)
    assert gaussian_sigma(300.0, rounds=16, **BUDGET) == pytest.approx(1200.0, rel=1e-4)


def test_the_zcdp_of_a_wide_discrete_gaussian_is_half_the_squared_ratio():
    assert discrete_gaussian_rho(50.0, 10.0, dim=1000, shares=10) == pytest.approx(0.02)


def test_narrow_shares_pay_for_their_sum_being_no_discrete_gaussian():
    """By hand: two shares of variance .5, tau = 10 exp(-2 pi^2 .5 / 2), norm over sigma 1, one coordinate."""
    tau = 10 * math.exp(-(math.pi**2) / 2)
    expected = min(1 + tau / 2, (1 + tau) ** 2) / 2
    assert discrete_gaussian_rho(1.0, 1.0, dim=1, shares=2) == pytest.approx(expected)
    assert expected > 0.5


def test_one_share_is_a_discrete_gaussian_and_pays_nothing():
    assert discrete_gaussian_rho(1.0, 1.0, dim=5, shares=1) == 0.5


def test_the_theorem_bounds_the_exact_divergence_of_a_sum_of_three_shares():
    """The largest of (KL-like) Renyi divergences over alpha, of the convolution against itself moved by one."""
    values = np.arange(-40, 41)
    one = np.exp(-np.square(values) / (2 * 0.6))
    one /= one.sum()
    three = np.convolve(np.convolve(one, one), one)
    moved, still = three[1:-1][1:], three[1:-1][:-1]
    kept = (moved > 1e-30) & (still > 1e-30)
    ratios = [
        math.log(float((moved[kept] ** a * still[kept] ** (1 - a)).sum())) / (a - 1) / a for a in (1.5, 2.0, 4.0, 8.0)
    ]
    bound = discrete_gaussian_rho(math.sqrt(3 * 0.6), 1.0, dim=1, shares=3)
    assert 0.9 / (2 * 3 * 0.6) < max(ratios) <= bound


def test_skellam_divergences_take_both_sensitivities():
    """By hand at order 2, variance 4, L2 sensitivity 1 and L1 sensitivity 3: .25 + min((3 + 18) / 64, 9 / 8)."""
    assert skellam_rdp(2.0, 1.0, 3.0)[0] == pytest.approx(0.25 + 21 / 64)
    assert skellam_rdp(2.0, 1.0, 1.0)[0] < skellam_rdp(2.0, 1.0, 3.0)[0]


def test_the_theorem_bounds_the_exact_divergences_of_skellam_noise():
    values = np.arange(-120, 121)
    still, moved = (stats.skellam.pmf(values - shift, 8.0, 8.0) for shift in (0, 2))
    kept = (still > 1e-200) & (moved > 1e-200)
    for number, order in enumerate((2, 3, 4)):
        exact = math.log(float((moved[kept] ** order * still[kept] ** (1.0 - order)).sum())) / (order - 1)
        assert exact <= skellam_rdp(4.0, 2.0, 2.0)[number] <= 1.2 * exact


def test_fine_grids_need_the_noise_of_a_gaussian_by_the_same_conversion():
    """Both discrete laws meet at a thousand steps; they ask for a little more than the exact Gaussian."""
    common = {"rounds": 3, "dim": 50, **BUDGET}
    gaussian = gaussian_sigma(1000.0, rounds=3, **BUDGET)
    discrete = discrete_gaussian_sigma(1000.0, shares=7, **common)
    skellam = skellam_sigma(1000.0, **common)
    assert skellam == pytest.approx(discrete, rel=2e-3)
    assert gaussian < discrete < 1.12 * gaussian


@pytest.mark.parametrize("sigma_of", [discrete_gaussian_sigma, skellam_sigma])
def test_the_noise_keeps_the_budget_and_a_little_less_would_not(sigma_of):
    more = {"shares": 7} if sigma_of is discrete_gaussian_sigma else {}
    sigma = sigma_of(20.0, rounds=2, dim=30, **more, **BUDGET)

    def epsilon(noise):
        if more:
            rho = 2 * discrete_gaussian_rho(noise, 20.0, dim=30, shares=7)
            return math.inf if rho > zcdp_budget(**BUDGET) * (1 + 1e-9) else BUDGET["epsilon"]
        return epsilon_of_rdp(2 * skellam_rdp(noise, 20.0, 30**0.5 * 20), BUDGET["delta"])

    assert epsilon(sigma) <= BUDGET["epsilon"] < epsilon(0.999 * sigma)


def test_concentrated_dp_is_converted_better_than_by_the_textbook_formula():
    """rho + 2 sqrt(rho log(1/delta)) (Bun and Steinke 2016) is the upper bound."""
    rho = zcdp_budget(4.0, 1e-5)
    assert rho + 2 * math.sqrt(rho * math.log(1e5)) == pytest.approx(4.4, abs=0.3)
    assert rho + 2 * math.sqrt(rho * math.log(1e5)) > 4.0


def test_the_binomial_bound_is_the_papers_by_hand():
    """d 10, delta 1e-5, norm 2 (L1 at most 4), variance 10,000."""
    gaussian = 2 * math.sqrt(2 * math.log(1.25e5)) / 100
    second = (2 * 7 * math.sqrt(2) / 4 * math.sqrt(math.log(1e6)) + 4 / 3) / (1 - 1e-6)
    third = 2 * (2 / 3) * (math.log(1.25e5) + math.log(2e7) * math.log(1e6))
    assert binomial_epsilon(100.0, 2.0, delta=1e-5, dim=10) == pytest.approx(gaussian + (second + third) / 10_000)


def test_outside_its_range_the_binomial_theorem_says_nothing():
    least = 23 * math.log(10 * 10 / 1e-5)
    assert binomial_epsilon(math.sqrt(least) - 0.01, 1.0, delta=1e-5, dim=10) == math.inf
    assert binomial_epsilon(math.sqrt(least) + 0.01, 1.0, delta=1e-5, dim=10) < math.inf


def test_the_binomial_bound_covers_the_exact_epsilon_of_its_noise():
    """One coordinate, 4000 coins, moved by 5: delta at the bound's epsilon, summed exactly, is below 1e-5."""
    coins, shift = 4000, 5
    values = np.arange(coins + 1)
    still, moved = stats.binom.pmf(values, coins, 0.5), stats.binom.pmf(values - shift, coins, 0.5)
    epsilon = binomial_epsilon(math.sqrt(coins / 4), shift, delta=1e-5, dim=1)
    assert np.maximum(moved - math.exp(epsilon) * still, 0).sum() < 1e-5


def test_a_round_of_a_large_budget_gets_the_binomial_noise_of_epsilon_1():
    """Where the theorem says 10, a sum of that noise, nearly Gaussian at a million steps, does not keep 10."""
    small, large = (binomial_sigma(9.0, epsilon=epsilon, delta=1e-5, rounds=1, dim=9) for epsilon in (1.0, 50.0))
    assert small == large
    sigma = 1e6 * math.sqrt(2 * math.log(1.25e5)) / 10
    assert binomial_epsilon(sigma, 1e6, delta=1e-5, dim=1) == pytest.approx(10, abs=0.01)
    assert get_epsilon_gaussian(sigma / 1e6, 1e-5) > 10.3


def test_binomial_rounds_share_the_budget_evenly():
    assert binomial_sigma(5.0, epsilon=2.0, delta=1e-5, rounds=2, dim=9) == pytest.approx(
        binomial_sigma(5.0, epsilon=1.0, delta=5e-6, rounds=1, dim=9)
    )
