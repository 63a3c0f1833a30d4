"""The Poisson-binomial mechanism's cost, against divergences summed outcome by outcome."""

import math

import numpy as np
import pytest
from fedassay.defenses.accounting.counts import CountPair
from fedassay.defenses.accounting.integer_noise import LARGEST_BIAS, fair_coins, largest_bias, row_rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom


def renyi(order, p, q):
    """By definition, over one list of outcomes."""
    return math.log(np.sum(np.exp(order * np.log(p) + (1 - order) * np.log(q)))) / (order - 1)


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


BUDGET = {"rounds": 1, "dimension": 1, "delta": 1e-5}


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
    law = {"trials": trials, "epsilon": epsilon} | BUDGET
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
        (lambda: largest_bias(clients=0, trials=2, epsilon=1.0, **BUDGET), "clients must be a whole number >= 1"),
        (lambda: largest_bias(clients=2, trials=2, epsilon=0.0, **BUDGET), "epsilon must be a number > 0"),
    ],
)
def test_what_no_theorem_covers_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
