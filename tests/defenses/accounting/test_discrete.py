"""Discrete noise: each bound against the divergence summed outcome by outcome."""

import math

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_discrete_gaussian_mechanism
from fedassay.audit.curve import epsilon_from_mu
from fedassay.defenses.accounting.accountant import epsilon_from_rdp
from fedassay.defenses.accounting.counts import CountPair
from fedassay.defenses.accounting.integer_noise import (
    binomial_epsilon,
    binomial_rdp,
    binomial_tail,
    discrete_gaussian_rdp,
    skellam_rdp,
)
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
    with pytest.raises(ValueError, match=r"delta must be above .* privacy failure at every epsilon"):
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
