"""The Poisson-binomial mechanism's cost, against divergences summed outcome by outcome."""

import itertools
import math

import numpy as np
import pytest
from fedassay.defenses.accounting.poisson_binomial import poisson_binomial_rdp
from hypothesis import given, settings
from hypothesis import strategies as st


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: poisson_binomial_rdp(2, clients=1000, trials=16, theta=0.1), "must be <= 4000 to be enumerated"),
        (lambda: poisson_binomial_rdp(2, clients=2, trials=1, theta=0.5), r"theta must be in \(0, 1/2\), got 0.5"),
        (lambda: poisson_binomial_rdp(2, clients=0, trials=1, theta=0.2), "clients must be a whole number >= 1"),
    ],
)
def test_what_no_theorem_covers_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
