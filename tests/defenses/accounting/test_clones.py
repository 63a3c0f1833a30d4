"""Amplification by shuffling: the reference's figures, enumeration for few clients, and an order that must hold."""

import math

import numpy as np
import pytest
from fedassay.defenses.accounting.counts import binomial
from fedassay.defenses.accounting.shuffled import ClonePair, shuffled, shuffled_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binom


def enumerated(clients, epsilon0, epsilon, clone=None):
    """The hockey-stick divergence of (A + D, C + 1 - A - D) from its mirror image, outcome by outcome."""
    truth, clone = expit(epsilon0), math.exp(-epsilon0) if clone is None else clone
    laws = np.zeros((2, clients + 1, clients + 1))
    for copies in range(clients):
        for ones in range(copies + 1):
            chance = binom.pmf(copies, clients - 1, clone) * binom.pmf(ones, copies, 0.5)
            for side, own in ((0, truth), (1, 1 - truth)):
                laws[side, ones + 1, copies - ones] += chance * own
                laws[side, ones, copies - ones + 1] += chance * (1 - own)
    return np.maximum(laws[0] - math.exp(epsilon) * laws[1], 0).sum()


@pytest.mark.parametrize(
    ("clients", "epsilon0", "delta", "epsilon"), [(10_000, 1.0, 1e-8, 0.0688804), (1000, 2.0, 1e-6, 0.5454980)]
)
def test_the_clones_give_the_reference_to_all_its_digits(clients, epsilon0, delta, epsilon):
    assert shuffled(clients=clients, epsilon0=epsilon0).epsilon(delta) == pytest.approx(epsilon, abs=5.1e-8)


@pytest.mark.parametrize(
    ("clients", "epsilon0", "delta", "epsilon"), [(10_000, 1.0, 1e-8, 0.0470096), (1000, 2.0, 1e-6, 0.3232790)]
)
def test_shuffled_bits_give_the_lower_bound_of_the_reference(clients, epsilon0, delta, epsilon):
    assert shuffled_bits(clients=clients, epsilon0=epsilon0).epsilon(delta) == pytest.approx(epsilon, abs=5.1e-8)


@pytest.mark.parametrize(
    ("clients", "epsilon0", "epsilon"), [(1000, 1, 0.1054), (1000, 2, 0.2718), (1000, 4, 1.3592), (100, 2, 1.3417)]
)
def test_shuffled_bits_keep_the_epsilons_of_the_reference_at_delta_1e_5(clients, epsilon0, epsilon):
    assert shuffled_bits(clients=clients, epsilon0=epsilon0).epsilon(1e-5) == pytest.approx(epsilon, abs=5e-5)


@settings(max_examples=30)
@given(st.integers(1, 14), st.floats(0.1, 4), st.floats(0, 4))
def test_delta_is_what_enumeration_finds(clients, epsilon0, epsilon):
    pair = shuffled(clients=clients, epsilon0=epsilon0)
    assert pair.delta(epsilon) == pytest.approx(enumerated(clients, epsilon0, epsilon), rel=1e-9, abs=1e-14)


@settings(max_examples=25)
@given(st.integers(2, 3000), st.floats(0.1, 5), st.sampled_from([1e-4, 1e-6, 1e-8]))
def test_lower_bound_and_bound_stand_in_order_below_the_local_epsilon(clients, epsilon0, delta):
    low = shuffled_bits(clients=clients, epsilon0=epsilon0).epsilon(delta)
    certified = shuffled(clients=clients, epsilon0=epsilon0).epsilon(delta)
    assert low <= certified + 2e-9
    assert certified <= epsilon0


@settings(max_examples=20)
@given(st.integers(2, 2000), st.floats(0.1, 4), st.sampled_from([1e-5, 1e-8]))
def test_more_clients_and_smaller_budgets_never_leak_more(clients, epsilon0, delta):
    here = shuffled(clients=clients, epsilon0=epsilon0).epsilon(delta)
    assert shuffled(clients=2 * clients, epsilon0=epsilon0).epsilon(delta) <= here + 2e-9
    assert shuffled(clients=clients, epsilon0=0.8 * epsilon0).epsilon(delta) <= here + 2e-9


def test_one_client_alone_is_not_amplified():
    assert shuffled(clients=1, epsilon0=1.3).epsilon(1e-12) == pytest.approx(1.3, abs=1e-6)


def test_a_hundred_thousand_clients_are_counted_exactly():
    pair, coarse = shuffled(clients=100_000, epsilon0=1.0), binomial(99_999, math.exp(-1))
    assert coarse.lost < 1e-29
    # Ten times the clients divide epsilon by a little more than the root of ten.
    assert 0.9 < pair.epsilon(1e-8) / (0.0688804 / math.sqrt(10)) < 1


@pytest.mark.parametrize("bound", [shuffled, shuffled_bits])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"clients": 0, "epsilon0": 1.0}, "clients must be a whole number >= 1, got 0"),
        ({"clients": 2.5, "epsilon0": 1.0}, "clients must be a whole number >= 1, got 2.5"),
        ({"clients": 10, "epsilon0": 0.0}, "epsilon0 must be a number > 0, got 0.0"),
    ],
)
def test_a_crowd_or_budget_that_is_none_is_refused(bound, bad, message):
    with pytest.raises(ValueError, match=message):
        bound(**bad)


@pytest.mark.parametrize("delta", [0.0, 1.0])
def test_a_delta_that_is_none_is_refused(delta):
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\)"):
        shuffled(clients=10, epsilon0=1.0).epsilon(delta)


def test_a_delta_below_what_the_window_resolves_is_refused():
    pair = ClonePair(epsilon0=1.0, clones=binomial(10_000, 0.4))
    with pytest.raises(ValueError, match="delta must be above"):
        pair.epsilon(1e-40)
