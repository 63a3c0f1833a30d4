"""Bounds on shuffled reports before the clones: by hand, by plain sums, and between the bounds that must hold."""

import math

import numpy as np
import pytest
from fedassay.defenses.accounting.shuffled import shuffled, shuffled_bits
from scipy.stats import binom

BENCHMARK = "amplification"
DELTA = 1e-8
SETTINGS = [(0.1, 2_000), (0.5, 10_000), (1.0, 1_000), (1.0, 10_000), (1.0, 100_000)]


def test_the_closed_form_of_erlingsson_by_hand_and_where_it_is_proved(benchmark):
    # 12 x .4 x sqrt(18.4207 / 10,000).
    assert benchmark.swap(0.4, 10_000) == pytest.approx(0.20601, abs=1e-5)
    assert benchmark.swap_holds(0.4999, 10_000)
    assert not any(benchmark.swap_holds(epsilon, n) for epsilon, n in ((0.5, 10_000), (0.4, 1000)))
    assert not benchmark.swap_holds(0.4, 10_000, delta=0.01)


def test_a_renyi_divergence_of_order_two_and_three_by_hand(benchmark):
    # n' = floor(9999 / 5.4366) + 1 = 1840; (e - 1)^2 / (1840 e) = 2.95249 / 5001.64; the last term is e^-457.
    second = 2.95249 / 5001.64
    assert benchmark.renyi_divergence(2, 1.0, 10_000) == pytest.approx(math.log(1 + second), rel=1e-5)
    # C(3,3) 3 Gamma(3/2) ((e^2 - 1)^2 / (2 e^2 1840))^(3/2) = 3 x .886227 x (40.8200 / 27191.5)^1.5.
    third = 3 * 0.886227 * (40.8200 / 27191.5) ** 1.5
    assert benchmark.renyi_divergence(3, 1.0, 10_000) == pytest.approx(math.log(1 + 3 * second + third) / 2, rel=1e-5)


def test_with_few_clients_the_renyi_bound_is_that_of_too_few_clones(benchmark):
    """At 11 clients and eps0 = 1 the term for fewer clones than half the expected ones is e^(2 - 10 / (8 e))."""
    few, second = math.exp(2 - 10 / (8 * math.e)), (math.e - 1) ** 2 / (2 * math.e)
    assert benchmark.renyi_divergence(2, 1.0, 11) == pytest.approx(math.log(1 + second + few))


@pytest.mark.parametrize(("epsilon0", "clients"), SETTINGS)
def test_the_sums_over_the_blanket_are_those_of_a_loop(benchmark, epsilon0, clients):
    epsilon = epsilon0 / 3
    gamma, mean = math.exp(-epsilon0), math.exp(epsilon) - 1
    m = np.arange(clients + 1)
    weights = binom.pmf(m, clients, gamma) / (gamma * clients)
    spread = (math.exp(epsilon) + 1) * (math.exp(epsilon0) - math.exp(-epsilon0))
    # The integral over t > 0 of exp(-2 (t + m a)^2 / (m b^2)) is at most b^2 / (4 a) exp(-2 m a^2 / b^2).
    plain = weights @ (spread**2 / (4 * mean) * np.exp(-2 * m * mean**2 / spread**2))
    assert benchmark.hoeffding(epsilon, epsilon0, clients) == pytest.approx(plain, rel=1e-6)
    most = math.exp(epsilon0) * (1 - math.exp(epsilon - 2 * epsilon0))
    square = math.exp(epsilon0) * (math.exp(2 * epsilon) + 1) - 2 * gamma * math.exp(epsilon - 2 * epsilon0)
    beta = mean * most / square
    phi = (1 + beta) * math.log(1 + beta) - beta
    plain = weights[1:] @ (most / math.log(1 + beta) * np.exp(-m[1:] * square / most**2 * phi))
    assert benchmark.bennett(epsilon, epsilon0, clients) == pytest.approx(plain, rel=1e-6)


@pytest.mark.simulations
@pytest.mark.parametrize(("epsilon0", "clients"), SETTINGS)
def test_no_bound_lies_below_shuffled_coins_and_the_clones_are_the_smallest(benchmark, epsilon0, clients):
    coins = shuffled_bits(clients=clients, epsilon0=epsilon0)
    least = next(epsilon for epsilon in np.linspace(0, epsilon0, 2000) if coins.delta(epsilon) <= DELTA)
    clones = shuffled(clients=clients, epsilon0=epsilon0).epsilon(DELTA)
    bounds = [bound(epsilon0, clients) for bound in (benchmark.blanket, benchmark.renyi)]
    assert least - epsilon0 / 1000 <= clones <= min(bounds)
    assert max(bounds) <= epsilon0
    if benchmark.swap_holds(epsilon0, clients):
        assert clones < benchmark.swap(epsilon0, clients)


@pytest.mark.simulations
def test_bounds_fall_with_the_root_of_the_clients_and_with_the_budget(benchmark):
    for bound in (benchmark.blanket, benchmark.renyi, benchmark.swap):
        few, many = bound(0.4, 100_000), bound(0.4, 400_000)
        assert few / many == pytest.approx(2, abs=0.1)
        assert bound(0.2, 100_000) < few / 1.9
    # Without a crowd nothing is amplified.
    assert benchmark.blanket(1.0, 10) == benchmark.renyi(1.0, 10) == 1.0
