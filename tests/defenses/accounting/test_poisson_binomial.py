"""The Poisson-binomial mechanism's cost, against divergences summed outcome by outcome."""

import itertools
import math

import numpy as np
import pytest
from fedassay.defenses.accounting.counts import CountPair
from fedassay.defenses.accounting.poisson_binomial import (
    LARGEST_BIAS,
    fair_coins,
    largest_bias,
    poisson_binomial_rdp,
    row_rdp,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom


def renyi(order, p, q):
    """By definition, over one list of outcomes."""
    return math.log(np.sum(np.exp(order * np.log(p) + (1 - order) * np.log(q)))) / (order - 1)


def all_bits(chances):
    law = np.ones(1)
    for chance in chances:
        law = np.convolve(law, [1 - chance, chance])
    return law


@settings(max_examples=10)
@given(st.integers(2, 4), st.integers(1, 3), st.floats(0.05, 0.45), st.sampled_from([1.5, 2, 7]))
def test_no_data_cost_the_poisson_binomial_more_than_it_says(clients, trials, theta, order):
    says, worst = poisson_binomial_rdp(order, clients=clients, trials=trials, theta=theta), 0.0
    grid = (-1.0, -0.4, 0.6, 1.0)
    for rest in itertools.combinations_with_replacement(grid, clients - 1):
        for here, there in itertools.permutations(grid, 2):
            laws = [all_bits([0.5 + theta * x for x in (*rest, own) for _ in range(trials)]) for own in (here, there)]
            worst = max(worst, renyi(order, *laws))
    # All four inputs stand on the grid, the worst ones among them.
    assert worst <= says * (1 + 1e-9)


def test_of_two_clients_with_one_bit_each_the_worst_case_is_attained():
    theta, order = 0.25, 2
    attained = max(renyi(order, all_bits([other, 0.75]), all_bits([other, 0.25])) for other in (0.25, 0.75))
    assert poisson_binomial_rdp(order, clients=2, trials=1, theta=theta) == pytest.approx(attained)


def test_many_poisson_binomial_clients_cost_what_a_gaussian_of_their_variance_does():
    """Moved by 2 theta m against a variance of n m (1/4 - theta^2): 1 % apart at 50 clients, order 2."""
    gauss = 2 * (2 * 0.1 * 16) ** 2 / (2 * 50 * 16 * (0.25 - 0.01))
    assert poisson_binomial_rdp(2, clients=50, trials=16, theta=0.1) == pytest.approx(gauss, rel=0.01)


def test_more_clients_cost_less():
    costs = [poisson_binomial_rdp(4, clients=clients, trials=4, theta=0.2) for clients in (2, 5, 20)]
    assert costs == sorted(costs, reverse=True)


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
        (lambda: poisson_binomial_rdp(2, clients=1000, trials=16, theta=0.1), "must be <= 4000 to be enumerated"),
        (lambda: poisson_binomial_rdp(2, clients=2, trials=1, theta=0.5), r"theta must be in \(0, 1/2\), got 0.5"),
        (lambda: poisson_binomial_rdp(2, clients=0, trials=1, theta=0.2), "clients must be a whole number >= 1"),
        (lambda: row_rdp(1.5, trials=2, fair=2, theta=0.1), "order must be >= 2 for this bound, got 1.5"),
        (lambda: largest_bias(clients=0, trials=2, epsilon=1.0, **BUDGET), "clients must be a whole number >= 1"),
        (lambda: largest_bias(clients=2, trials=2, epsilon=0.0, **BUDGET), "epsilon must be a number > 0"),
    ],
)
def test_what_no_theorem_covers_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
