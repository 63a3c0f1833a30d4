"""Rounds: one round is itself, many are between their bounds, and the textbook's formula is looser."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from fedassay.defenses.accounting.clones import shuffled, shuffled_bits
from fedassay.defenses.accounting.composition import advanced_composition, composed_curve, composed_epsilon
from fedassay.defenses.accounting.counts import CountPair, binomial, bit_among
from scipy.special import expit
from scipy.stats import binom

DELTA = 1e-6


@pytest.mark.parametrize("release", [shuffled(clients=1000, epsilon0=2.0), shuffled_bits(clients=1000, epsilon0=2.0)])
def test_one_round_is_the_release_itself_rounded_up(release):
    exact = release.epsilon(DELTA)
    assert exact <= composed_epsilon(release, rounds=1, delta=DELTA, interval=1e-4) <= exact + 1.1e-4


def test_randomised_response_twice_is_what_enumeration_gives():
    once = bit_among(binomial(0, 0.5), epsilon=1.0)
    twice = CountPair(np.outer(once.p, once.p).ravel(), np.outer(once.q, once.q).ravel())
    assert composed_epsilon(once, rounds=2, delta=0.01) == pytest.approx(twice.epsilon(0.01), abs=3e-5)


def test_the_clones_distribution_is_the_librarys_own_from_all_outcomes():
    clients, epsilon0, interval = 8, 1.2, 1e-4
    truth, laws = expit(epsilon0), ({}, {})
    for copies in range(clients):
        for ones in range(copies + 2):
            weight = binom.pmf(copies, clients - 1, math.exp(-epsilon0))
            own, other = weight * binom.pmf(ones - 1, copies, 0.5), weight * binom.pmf(ones, copies, 0.5)
            laws[0][copies, ones] = math.log((1 - truth) * own + truth * other)
            laws[1][copies, ones] = math.log(truth * own + (1 - truth) * other)
    library = privacy_loss_distribution.from_two_probability_mass_functions(
        *laws, value_discretization_interval=interval
    ).self_compose(5)
    ours = shuffled(clients=clients, epsilon0=epsilon0).losses(interval).self_compose(5)
    for epsilon in (0.0, 0.5, 1.0, 2.5):
        assert ours.get_delta_for_epsilon(epsilon) == pytest.approx(library.get_delta_for_epsilon(epsilon), rel=1e-6)


@pytest.mark.parametrize("rounds", [3, 30])
def test_rounds_cost_more_than_one_and_less_than_their_sum_and_the_printed_formula(rounds):
    release = shuffled(clients=2000, epsilon0=1.0)
    one, many = release.epsilon(DELTA), composed_epsilon(release, rounds=rounds, delta=DELTA)
    assert one * math.sqrt(rounds) * 0.8 < many < one * rounds
    each = release.epsilon(DELTA / (2 * rounds))
    assert many < advanced_composition(epsilon=each, releases=rounds, slack=DELTA / 2)


def test_what_a_window_lost_is_leaked_in_every_round():
    pair = CountPair(np.array([0.49, 0.5]), np.array([0.5, 0.49]), lost=0.01)
    assert pair.losses(1e-4).self_compose(3).get_delta_for_epsilon(5.0) == pytest.approx(1 - 0.99**3)


def test_finer_losses_only_lower_the_bound():
    release = shuffled(clients=500, epsilon0=1.0)
    coarse, fine = (composed_epsilon(release, rounds=20, delta=DELTA, interval=step) for step in (1e-3, 1e-4))
    assert fine < coarse < fine + 20 * 1e-3


def test_twenty_rounds_of_the_lower_bound_stay_below_twenty_of_the_clones():
    low, high = (
        composed_epsilon(kind(clients=500, epsilon0=1.0), rounds=20, delta=DELTA, interval=1e-4)
        for kind in (shuffled_bits, shuffled)
    )
    assert low < high


def test_the_composed_curve_promises_its_own_delta():
    release = shuffled(clients=500, epsilon0=1.0)
    epsilon = composed_epsilon(release, rounds=10, delta=DELTA, interval=1e-4)
    curve = composed_curve(release, rounds=10, reach=epsilon, interval=1e-4)
    assert curve.delta_remove[curve.epsilons.index(epsilon)] == pytest.approx(DELTA, rel=1e-4)
    assert curve.delta_add == curve.delta_remove


def test_the_textbooks_formula_by_hand():
    # .1 sqrt(2 * 10 ln 1e5) + 10 * .1 * (e^.1 - 1) = 1.51743 + .10517.
    assert advanced_composition(epsilon=0.1, releases=10, slack=1e-5) == pytest.approx(1.62260, abs=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"rounds": 0, "delta": DELTA}, "rounds must be a whole number >= 1, got 0"),
        ({"rounds": 2, "delta": 0.0}, r"delta must be in \(0, 1\), got 0.0"),
        ({"rounds": 2, "delta": 1e-14}, "delta must be >= 1e-12 to be composed over rounds, got 1e-14"),
        ({"rounds": 2, "delta": DELTA, "interval": 0.0}, "interval must be a number > 0"),
    ],
)
def test_rounds_that_are_none_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        composed_epsilon(shuffled(clients=5, epsilon0=1.0), **call)


@pytest.mark.parametrize(
    "bad", [{"epsilon": 0.0}, {"releases": 0}, {"releases": 1.5}, {"slack": 0.0}, {"slack": 1.0}], ids=str
)
def test_a_formula_without_its_terms_is_refused(bad):
    with pytest.raises(ValueError, match="must be"):
        advanced_composition(**({"epsilon": 0.1, "releases": 2, "slack": 1e-5} | bad))
