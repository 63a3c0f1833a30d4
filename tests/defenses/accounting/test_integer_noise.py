"""Discrete noise: each bound against the divergence summed outcome by outcome.

The Poisson-binomial mechanism's cost, against divergences summed outcome by outcome.

Integer noise: what a budget takes, against the analytic Gaussian, exact distributions and closed forms.
"""

import math

import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian
from dp_accounting.pld.privacy_loss_distribution import from_discrete_gaussian_mechanism
from fedassay.audit.curve import epsilon_from_mu
from fedassay.defenses.accounting.accountant import epsilon_at_best_order, epsilon_from_rdp
from fedassay.defenses.accounting.counts import CountPair
from fedassay.defenses.accounting.gaussian import gaussian_noise
from fedassay.defenses.accounting.integer_noise import (
    LARGEST_BIAS,
    binomial_epsilon,
    binomial_noise,
    binomial_noise_epsilon,
    binomial_rdp,
    binomial_tail,
    discrete_gaussian_noise,
    discrete_gaussian_rdp,
    fair_coins,
    largest_bias,
    published_binomial_noise,
    row_rdp,
    skellam_noise,
    skellam_rdp,
    whole_share,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import gammaln
from scipy.stats import binom, skellam

DELTA = 1e-5


def binomial_pair(*, trials, shift):
    """Bin(trials, 1/2) on an integer that is moved by ``shift``: one coordinate, exactly."""
    law = binom.pmf(np.arange(trials + 1), trials, 0.5)
    return CountPair(np.append(law, np.zeros(shift)), np.append(np.zeros(shift), law))


WIDE = np.arange(-400, 401)


def renyi(order, p, q):
    """By definition, over one list of outcomes."""
    seen = (p > 0) & (q > 0)
    return math.log(np.sum(np.exp(order * np.log(p[seen]) + (1 - order) * np.log(q[seen])))) / (order - 1)


def discrete_gaussian(values, sigma):
    weights = np.exp(-(values**2) / (2 * sigma**2))
    return weights / weights.sum()


@pytest.mark.parametrize("order", [2, 8, 24])
@pytest.mark.parametrize("sigma", [1.0, 3.0])
def test_one_discrete_gaussian_costs_its_divergence(order, sigma):
    exact = renyi(order, discrete_gaussian(WIDE - 1, sigma), discrete_gaussian(WIDE, sigma))
    assert exact == pytest.approx(discrete_gaussian_rdp(order, l2=1.0, sigma=sigma), rel=1e-6)


@pytest.mark.parametrize("order", [2, 8])
@pytest.mark.parametrize("sigma", [0.5, 0.7, 1.0])
def test_a_sum_of_two_discrete_gaussians_costs_less_than_its_bound(order, sigma):
    values = np.arange(-40, 41)
    one = discrete_gaussian(values, sigma)
    total = np.convolve(one, one)
    exact = max(renyi(order, total[1:], total[:-1]), renyi(order, total[:-1], total[1:]))
    bound = discrete_gaussian_rdp(order, l2=1.0, sigma=sigma, shares=2, l1=1.0, dimension=1)
    assert exact <= bound
    assert bound <= exact * (1.01 if sigma == 1.0 else 3)


@pytest.mark.parametrize(
    ("sensitivities", "least"), [({"l2": 4.0}, 24.0921), ({"l2": 0.2}, 1.58734), ({"l2": 0.2, "l1": 0.2}, 1.32045)]
)
def test_three_shares_in_five_dimensions_by_hand(sensitivities, least):
    """Sigma .6, order 3: tau = 10 (exp(-.36 pi^2) + exp(-.48 pi^2)) = .37398; each bound is once the least."""
    law = {"sigma": 0.6, "shares": 3, "dimension": 5}
    assert discrete_gaussian_rdp(3, **law, **sensitivities) == pytest.approx(least, rel=1e-5)


def test_the_library_finds_less_than_the_divergences_epsilon():
    exact = from_discrete_gaussian_mechanism(2.0).get_epsilon_for_delta(DELTA)
    bound = epsilon_from_rdp(lambda order: discrete_gaussian_rdp(order, l2=1.0, sigma=2.0), DELTA)
    assert exact <= bound <= 1.1 * exact
    assert epsilon_from_mu(0.5, DELTA) <= bound


@pytest.mark.parametrize("order", [2, 5, 16])
@pytest.mark.parametrize(("shift", "variance"), [(1, 4.0), (1, 40.0), (3, 40.0)])
def test_skellam_noise_costs_less_than_its_theorem(order, shift, variance):
    law = skellam.pmf(WIDE, variance / 2, variance / 2)
    law[law < 1e-280] = 0
    exact = renyi(order, law[: -shift or None], law[shift:])
    bound = skellam_rdp(order, l1=shift, l2=shift, variance=variance)
    assert exact <= bound <= (2.5 if variance < 10 else 1.3) * exact


def test_skellam_needs_both_sensitivities_and_the_survey_has_one():
    # By hand, order 2, l1 = 4, l2 = 2, variance 100: 8 / 200 + min((12 + 24) / 40000, 12 / 200).
    assert skellam_rdp(2, l1=4.0, l2=2.0, variance=100.0) == pytest.approx(0.04 + 0.0009)
    survey = skellam_rdp(2, l1=2.0, l2=2.0, variance=100.0)
    assert survey < skellam_rdp(2, l1=4.0, l2=2.0, variance=100.0)


@pytest.mark.parametrize(("trials", "shift"), [(10_000, 1), (4_000, 2)])
def test_the_binomial_theorem_lies_above_the_exact_epsilon(trials, shift):
    exact = binomial_pair(trials=trials, shift=shift).epsilon(DELTA)
    printed = binomial_epsilon(trials=trials, scale=1.0, l1=shift, l2=shift, largest=shift, dimension=1, delta=DELTA)
    gauss = epsilon_from_mu(shift / math.sqrt(trials / 4), DELTA)
    assert exact == pytest.approx(gauss, rel=0.05)
    assert exact <= printed <= 6 * exact


def test_the_binomial_theorem_by_hand():
    """Variance 1e4, step .5, four dimensions, delta 1e-6: .317928 + .006362 + .081960."""
    printed = binomial_epsilon(trials=40_000, scale=0.5, l1=6.0, l2=3.0, largest=2.0, dimension=4, delta=1e-6)
    assert printed == pytest.approx(0.406249, abs=1e-6)


@pytest.mark.parametrize("order", [1.5, 3, 12])
@pytest.mark.parametrize(("trials", "shift", "width"), [(40, 1, 4), (400, 1, 6), (400, 6, 6), (400_000, 300, 8)])
def test_binomial_noise_in_a_window_costs_its_divergence_and_little_less_than_its_bound(order, trials, shift, width):
    """The moment of the loss over the window, outcome by outcome; its bound is within 1 % where the grid is fine
    and the order looks at no noise beyond the window.
    """
    window, half = width * math.sqrt(trials) / 2, trials // 2
    noise = np.arange(-half, half - shift + 1)
    inside = noise[abs(noise) <= window]
    still, moved = (binom.logpmf(inside + by + half, trials, 0.5) for by in (0, shift))
    exact = np.log(np.sum(np.exp(order * still + (1 - order) * moved))) / (order - 1)
    bound = binomial_rdp(order, l1=shift, l2=shift, largest=shift, trials=trials, window=window)
    assert exact <= bound <= exact * (1.01 if trials == 400_000 and order < 5 else 6)
    outside = 1 - np.exp(binom.logpmf(noise[abs(noise) <= window] + half, trials, 0.5)).sum()
    assert outside <= binomial_tail(trials=trials, window=window, dimension=1) + 1e-12


def test_a_window_as_wide_as_the_coins_costs_everything():
    assert binomial_rdp(2, l1=1.0, l2=1.0, largest=1.0, trials=40, window=20.0) == math.inf


def test_binomial_noise_that_is_too_little_for_delta_is_refused():
    with pytest.raises(ValueError, match=r"delta must be above .* privacy fails at any epsilon"):
        binomial_pair(trials=8, shift=1).epsilon(1e-3)


LAW = {"scale": 1.0, "l1": 1.0, "l2": 1.0, "largest": 1.0, "dimension": 1, "delta": DELTA}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: binomial_epsilon(trials=100, **LAW),
            "trials, the number of coin tosses, must be >= 1272 for the theorem of binomial noise to hold, got 100",
        ),
        (lambda: binomial_epsilon(trials=10_000, **(LAW | {"delta": 0.0})), "delta must be in"),
        (lambda: skellam_rdp(2, l1=0.0, l2=1.0, variance=1.0), "l1 must be"),
        (
            lambda: skellam_rdp(2.5, l1=1.0, l2=1.0, variance=1.0),
            "order must be a whole number for Skellam noise, got 2.5",
        ),
        (lambda: discrete_gaussian_rdp(2, l2=1.0, sigma=1.0, shares=3), "several noise shares needs a dimension"),
        (
            lambda: discrete_gaussian_rdp(2, l2=1.0, sigma=0.3, shares=3, dimension=1),
            "sigma >= 0.5, got dimension 1 and sigma 0.3",
        ),
        (lambda: discrete_gaussian_rdp(1, l2=1.0, sigma=1.0), "order must be > 1 and finite, got 1"),
    ],
)
def test_what_no_theorem_covers_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def coins(number, chance):
    return binom.pmf(np.arange(number + 1), number, chance)


@settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(0, 200),
    st.floats(0.01, 0.45),
    st.floats(0.05, 1),
    st.sampled_from([2, 2.5, 4, 9, 25]),
)
def test_no_row_of_one_coordinate_costs_more_than_its_bound_in_either_direction(trials, fair, theta, x, order):
    there, zero = np.convolve(coins(fair, 0.5), coins(trials, 0.5 + theta * x)), coins(fair + trials, 0.5)
    exact = max(renyi(order, there, zero), renyi(order, zero, there))
    # Tiny divergences are sums that cancel.
    assert exact <= x**2 * row_rdp(order, trials=trials, fair=fair, theta=theta) * (1 + 1e-9) + 1e-12


def test_the_bound_on_a_row_is_near_what_it_costs_where_coins_are_many():
    exact = renyi(6, np.convolve(coins(900, 0.5), coins(100, 0.56)), coins(1000, 0.5))
    assert exact <= row_rdp(6, trials=100, fair=900, theta=0.06) <= 1.15 * exact


def test_two_coordinates_of_one_row_cost_no_more_than_one():
    law = {"trials": 20, "fair": 60, "theta": 0.2}
    for first in (0.1, 0.4, 2**-0.5):
        exact = sum(
            renyi(5, np.convolve(coins(60, 0.5), coins(20, 0.5 + 0.2 * x)), coins(80, 0.5))
            for x in (first, math.sqrt(1 - first**2))
        )
        assert exact <= row_rdp(5, **law)


@pytest.mark.parametrize(("number", "theta"), [(50, 0.2), (5000, 0.01), (5000, 0.25)])
def test_fewer_coins_than_counted_on_are_fair_as_seldom_as_said(number, theta):
    fair = fair_coins(number, theta=theta, nats=12.0)
    assert binom.cdf(math.ceil(fair) - 1, number, 1 - 2 * theta) <= math.exp(-12)
    assert fair_coins(number, theta=theta, nats=8.0) > fair


COIN_BUDGET = {"rounds": 1, "dimension": 1, "delta": 1e-5}


def worst_delta(clients, trials, theta, epsilon):
    """Over every number of the others' coins at the upper end."""
    own, zero, rest = coins(trials, 0.5 + theta), coins(trials, 0.5), (clients - 1) * trials
    found = 0.0
    for upper in range(rest + 1):
        others = np.convolve(coins(upper, 0.5 + theta), coins(rest - upper, 0.5 - theta))
        found = max(found, CountPair(np.convolve(others, own), np.convolve(others, zero)).delta(epsilon))
    return found


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
@pytest.mark.parametrize(("clients", "trials"), [(1, 60), (4, 24), (10, 12)])
def test_whatever_the_others_hold_a_row_keeps_its_budget(clients, trials, epsilon):
    """Outcome by outcome. With the coins of three times as many clients counted on it would not."""
    law = {"trials": trials, "epsilon": epsilon} | COIN_BUDGET
    theta = largest_bias(clients=clients, **law)
    assert worst_delta(clients, trials, theta, epsilon) <= 1e-5
    bold = largest_bias(clients=3 * clients, **law)
    assert bold == LARGEST_BIAS or worst_delta(clients, trials, bold, epsilon) > 1e-5


def test_rounds_and_coordinates_are_paid_for():
    law = {"clients": 10, "trials": 1000, "epsilon": 2.0, "delta": 1e-5}
    once = largest_bias(rounds=1, dimension=1, **law)
    assert largest_bias(rounds=16, dimension=1, **law) == pytest.approx(once / 4, rel=0.05)
    # Only in the chance that coins are fair.
    assert 0.98 * once < largest_bias(rounds=1, dimension=1000, **law) < once


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: row_rdp(2, trials=1, fair=2, theta=0.5), r"theta, .*, must be in \(0, 1/2\), got 0.5"),
        (
            lambda: row_rdp(1.5, trials=2, fair=2, theta=0.1),
            "order must be >= 2 for the Poisson-binomial bound, got 1.5",
        ),
        (lambda: largest_bias(clients=0, trials=2, epsilon=1.0, **COIN_BUDGET), "clients must be a whole number >= 1"),
        (lambda: largest_bias(clients=2, trials=2, epsilon=0.0, **COIN_BUDGET), "epsilon must be a number > 0"),
    ],
)
def test_coins_that_no_theorem_covers_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


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
