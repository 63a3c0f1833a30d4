"""Lower bounds on composed losses: little below known epsilons, and never above them."""

from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.curve import delta_from_mu, epsilon_from_mu
from fedassay.defenses.accounting.below import Pair, composed, gaussian_pair
from fedassay.defenses.accounting.gaussian import SampledGaussian
from fedassay.defenses.accounting.pure import composed_epsilon


def epsilon_of(pair, delta, *, reach):
    return max(composed([one], reach=reach).epsilon(delta) for one in (pair, pair.swapped()))


@pytest.mark.parametrize(("mu", "releases"), [(3.0, 1), (0.3, 10), (0.1, 100)])
def test_gaussian_releases(mu, releases):
    exact = epsilon_from_mu(mu * releases**0.5, 1e-5)
    found = epsilon_of(replace(gaussian_pair(mu), releases=releases), 1e-5, reach=exact)
    assert 0.99 * exact < found <= exact
    losses = composed([replace(gaussian_pair(mu), releases=releases)], reach=exact)
    for epsilon in (0.0, 0.5, 2.0):
        assert 0.97 * delta_from_mu(mu * releases**0.5, epsilon) < losses.delta(epsilon)
        assert losses.delta(epsilon) <= delta_from_mu(mu * releases**0.5, epsilon) + 1e-12


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(0.5, 0.5, 1), (1.0, 0.1, 100), (0.8, 0.01, 300)])
def test_sampled_releases(sigma, rate, steps):
    stated = SampledGaussian(sigma=sigma, rate=rate, steps=steps).epsilon(1e-5)
    found = epsilon_of(replace(gaussian_pair(1 / sigma, rate=rate), releases=steps), 1e-5, reach=stated)
    assert 0.98 * stated < found <= stated


def test_a_replaced_row_is_twice_as_far():
    assert epsilon_of(gaussian_pair(0.5, replaced=True), 1e-5, reach=4) == pytest.approx(
        epsilon_of(gaussian_pair(1.0), 1e-5, reach=4), rel=5e-3
    )


def test_randomised_response_composes_to_its_exact_epsilon():
    chances = np.array([np.e, 1.0]) / (1 + np.e)
    pair = Pair(chances, chances[::-1], releases=20)
    exact = composed_epsilon(1.0, releases=20, delta=1e-3)
    assert 0.99 * exact < epsilon_of(pair, 1e-3, reach=exact) <= exact


def test_a_release_that_is_seldom_made_costs_its_share():
    pair, share = gaussian_pair(1.0), 0.2
    whole, seldom = (composed([replace(pair, share=chance)], reach=4) for chance in (1.0, share))
    for epsilon in (0.1, 1.0, 3.0):
        assert seldom.delta(epsilon) == pytest.approx(share * whole.delta(epsilon), rel=1e-6)


def test_a_hidden_chance_costs_less_than_a_seen_one():
    hidden = composed([gaussian_pair(1.0, hidden=0.2)], reach=4)
    assert hidden.delta(0.5) < 0.2 * delta_from_mu(1.0, 0.5)


def test_outcomes_that_only_one_input_produces_are_infinite_losses():
    pair = Pair(np.array([0.1, 0.9]), np.array([0.0, 1.0]), releases=3)
    assert composed([pair], reach=1).epsilon(0.2) == np.inf
    assert composed([pair], reach=1).delta(5.0) == pytest.approx(1 - 0.9**3)
    assert composed([pair.swapped()], reach=1).epsilon(0.5) == 0.0


def test_a_composition_of_what_is_composed_is_the_composition():
    pair = replace(gaussian_pair(0.4), releases=6)
    once = composed([pair], reach=2)
    again = composed([replace(composed([replace(pair, releases=2)], reach=2).pair, releases=3)], reach=2)
    assert again.delta(1.0) == pytest.approx(once.delta(1.0), rel=0.02)
