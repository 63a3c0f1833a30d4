"""Integer noise: what a budget takes, against the analytic Gaussian, exact distributions and closed forms."""

import math

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from fedassay.defenses.accounting.accountant import epsilon_at_best_order, epsilon_from_rdp
from fedassay.defenses.accounting.counts import CountPair
from fedassay.defenses.accounting.gaussian import gaussian_noise
from fedassay.defenses.accounting.integer_noise import (
    binomial_noise,
    binomial_noise_epsilon,
    discrete_gaussian_noise,
    discrete_gaussian_rdp,
    published_binomial_noise,
    skellam_noise,
    skellam_rdp,
    whole_share,
)
from scipy import stats
from scipy.special import gammaln

BUDGET = {"epsilon": 4.377178, "delta": 1e-5}


def noise_of(law, norm, *, rounds=1, dimension=1, shares=1, **budget):
    more = {} if law is skellam_noise else {"shares": shares}
    return law(norm, rounds=rounds, dimension=dimension, **more, **(budget or BUDGET))


LAWS = [discrete_gaussian_noise, skellam_noise, binomial_noise]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("rounds", [1, 16])
def test_fine_grids_take_the_noise_of_a_gaussian_by_the_same_conversion(law, rounds):
    """All laws meet at 3000 steps, seven parts in a hundred above the exact Gaussian."""
    ratio = noise_of(law, 3000.0, rounds=rounds, dimension=650, shares=50) / 3000
    assert ratio == pytest.approx(1.07 * gaussian_noise(releases=rounds, **BUDGET), rel=2e-3)


def moved(law, sigma, shift):
    """The exact laws of one coordinate's noise, still and moved."""
    values = np.arange(-math.ceil(14 * sigma) - shift, math.ceil(14 * sigma) + shift + 1)
    if law is binomial_noise:
        coins = round(4 * sigma**2)
        chance = [stats.binom.pmf(values - by + coins // 2, coins, 0.5) for by in (0, shift)]
    elif law is skellam_noise:
        chance = [stats.skellam.pmf(values - by, sigma**2 / 2, sigma**2 / 2) for by in (0, shift)]
    else:
        weights = [np.exp(-((values - by) ** 2) / (2 * sigma**2)) for by in (0, shift)]
        chance = [weight / weight.sum() for weight in weights]
    return np.array(chance)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("norm", "shifts"), [(5.0, (3, 4)), (5.0, (5, 0)), (1.0, (1, 0)), (2**0.5, (1, 1))])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_the_noise_keeps_its_budget_exactly_and_on_a_finer_grid_half_of_it_would_not(law, norm, shifts, epsilon):
    """Two coordinates, outcome by outcome, on grids as coarse as one step."""
    sigma = noise_of(law, norm, dimension=2, epsilon=epsilon, delta=1e-5)

    def delta(noise):
        both = [moved(law, noise, shift) for shift in shifts]
        return CountPair(*(np.outer(both[0][side], both[1][side]).ravel() for side in (0, 1))).delta(epsilon)

    assert delta(sigma) <= 1e-5
    assert norm < 5 or delta(0.5 * sigma) > 1e-5


def test_what_is_found_keeps_the_budget_by_its_divergences_and_a_little_less_does_not():
    norm, dimension = 20.0, 30
    length = math.sqrt(dimension) * norm
    sigma = noise_of(skellam_noise, norm, rounds=2, dimension=dimension)
    least = [
        epsilon_from_rdp(lambda a, s=s: 2 * skellam_rdp(a, l1=length, l2=norm, variance=s**2), 1e-5)
        for s in (sigma, 0.999 * sigma)
    ]
    assert least[0] <= BUDGET["epsilon"] < least[1]


def test_narrow_shares_pay_for_their_sum_being_no_discrete_gaussian():
    """4000 shares of variance 1 would be enough for a continuous Gaussian; they take the next whole variance."""
    norm = math.sqrt(4000) / 1.0697 * 0.9999
    sigma = noise_of(discrete_gaussian_noise, norm, dimension=10**6, shares=4000)
    assert sigma**2 == pytest.approx(8000)

    def spent(variance):
        law = {"l2": norm, "sigma": math.sqrt(variance), "shares": 4000, "dimension": 10**6}
        return epsilon_at_best_order(lambda order: discrete_gaussian_rdp(order, **law), 1e-5)

    assert spent(2) <= BUDGET["epsilon"] < spent(1)


def test_binomial_noise_takes_a_quarter_of_what_equal_parts_of_the_published_theorem_take():
    budget = {"epsilon": 4.0, "delta": 1e-5, "rounds": 20, "dimension": 650, "shares": 50}
    ours, published = binomial_noise(800.0, **budget) / 800, published_binomial_noise(800.0, **budget) / 800
    assert ours == pytest.approx(5.18, abs=0.01)
    assert published == pytest.approx(27.2, abs=0.05)


def test_advanced_composition_allows_no_round_of_the_published_theorem_a_larger_part():
    """Twenty rounds of epsilon .2 at slack 1e-5: Dwork et al. 2010, and both closed forms of Kairouz et al. 2015."""
    rounds, part, slack = 20, 0.2, 1e-5
    drift = rounds * part * (math.exp(part) - 1) / (math.exp(part) + 1)
    logs = (math.log(1 / slack), math.log(math.e + math.sqrt(rounds) * part / slack))
    for log in logs:
        assert drift + part * math.sqrt(2 * rounds * log) > rounds * part
    assert part * math.sqrt(2 * rounds * logs[0]) + rounds * part * (math.exp(part) - 1) > rounds * part


def exact_binomial_delta(*, trials, shift, epsilon):
    """The delta of Bin(trials, 1/2) against the same moved by ``shift``, by its probabilities one by one."""
    spread = 6 * math.sqrt(trials)
    values = np.arange(int(trials / 2 - spread), int(trials / 2 + spread))
    logs = gammaln(trials + 1) - gammaln(values + 1) - gammaln(trials - values + 1) - trials * math.log(2)
    probabilities = np.exp(logs)
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-6)
    moved = np.concatenate([np.zeros(shift), probabilities[:-shift]])
    return float(np.maximum(moved - math.exp(epsilon) * probabilities, 0).sum())


def test_the_published_binomial_theorem_does_not_hold_at_epsilon_10():
    """Calibrated to 10 at delta 1e-5: on a grid of ten thousand steps the exact epsilon is 10.3, in the limit 10.39."""
    budget = {"epsilon": 10.0, "delta": 1e-5, "rounds": 1, "dimension": 1, "shares": 2}
    trials = round(4 * published_binomial_noise(1e4, **budget) ** 2)
    assert trials == 95_092_644
    assert exact_binomial_delta(trials=trials, shift=10_000, epsilon=10.0) > 1.9e-5
    assert exact_binomial_delta(trials=trials, shift=10_000, epsilon=10.3) > 1e-5
    assert get_epsilon_gaussian(published_binomial_noise(1e6, **budget) / 1e6, 1e-5) == pytest.approx(10.39, abs=0.005)
    assert get_epsilon_gaussian(binomial_noise(1e6, **budget) / 1e6, 1e-5) < 10


@pytest.mark.parametrize(("epsilon", "holds"), [(8.4, True), (8.5, False)])
def test_the_classic_gaussian_formula_holds_up_to_epsilon_8_4(epsilon, holds):
    noise = math.sqrt(2 * math.log(1.25 / 1e-5)) / epsilon
    assert (get_epsilon_gaussian(noise, 1e-5) <= epsilon) is holds


def test_published_rounds_share_the_budget_evenly():
    two, one = (
        published_binomial_noise(9.0, epsilon=rounds, delta=5e-6 * rounds, rounds=rounds, dimension=9, shares=2)
        for rounds in (2, 1)
    )
    assert two == one


def test_a_share_is_rounded_up_unless_it_is_whole():
    assert [whole_share(total, 4) for total in (0.1, 4.0, math.sqrt(12) ** 2, 12.1)] == [1, 1, 3, 4]


@pytest.mark.parametrize("law", LAWS)
def test_a_budget_that_is_none_is_refused(law):
    with pytest.raises(ValueError, match=r"epsilon must be a number > 0, got 0\.0"):
        noise_of(law, 1.0, epsilon=0.0, delta=1e-5)


def test_binomial_noise_is_worth_the_budget_that_it_was_calibrated_to_and_half_of_it_more():
    law = {"delta": 1e-5, "rounds": 20, "dimension": 650}
    sigma = binomial_noise(800.0, epsilon=4.0, shares=50, **law)
    assert binomial_noise_epsilon(800.0, sigma=sigma, **law) == pytest.approx(4.0, rel=1e-3)
    assert binomial_noise_epsilon(800.0, sigma=sigma / 2, **law) > 8
    assert binomial_noise_epsilon(800.0, sigma=5.0, **law) == math.inf
