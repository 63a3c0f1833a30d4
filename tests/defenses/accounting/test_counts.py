"""Counts: laws by enumeration, divergences by definition, and the epsilon of a bit among others."""

import itertools
import math

import numpy as np
import pytest
from fedassay.defenses.accounting.counts import CountLaw, CountPair, binomial, bit_among, poisson_binomial
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binom

chances = st.floats(0, 1)


@given(st.lists(chances, max_size=7))
def test_the_number_of_successes_has_the_law_that_enumeration_gives(probabilities):
    expected = np.zeros(len(probabilities) + 1)
    for outcome in itertools.product((0, 1), repeat=len(probabilities)):
        chance = math.prod(p if hit else 1 - p for p, hit in zip(probabilities, outcome, strict=True))
        expected[sum(outcome)] += chance
    law = poisson_binomial(probabilities)
    full = np.zeros_like(expected)
    full[law.first : law.first + law.pmf.size] = law.pmf
    np.testing.assert_allclose(full, expected, atol=1e-15)


def test_equal_chances_give_the_binomial_in_the_far_tail_too():
    law, expected = poisson_binomial(np.full(3000, 0.37)), binomial(3000, 0.37)
    inside = law.values.astype(int)
    relevant = binom.pmf(inside, 3000, 0.37) > 1e-20
    np.testing.assert_allclose(law.pmf[relevant], binom.pmf(inside[relevant], 3000, 0.37), rtol=1e-11)
    assert law.lost < 1e-27
    assert expected.lost < 1e-29


@given(st.integers(0, 3000), chances)
def test_a_window_leaves_out_no_more_than_it_states(trials, probability):
    law = binomial(trials, probability)
    outside = binom.cdf(law.first - 1, trials, probability) + binom.sf(law.values[-1], trials, probability)
    assert outside <= law.lost
    assert law.pmf.sum() == pytest.approx(1, abs=1e-11)


def test_delta_is_the_larger_hockey_stick_of_both_directions():
    pair = CountPair(np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.3, 0.4]))
    assert pair.delta(0.0) == pytest.approx(0.2)
    # At e^eps = 1.5: .5 - .45 one way, .4 - .3 the other.
    assert pair.delta(math.log(1.5)) == pytest.approx(0.1)


@given(st.floats(0.1, 4), st.floats(1e-9, 0.4))
def test_randomised_response_alone_keeps_the_epsilon_of_its_closed_form(epsilon, delta):
    truth = expit(epsilon)
    exact = max(0.0, math.log(max(truth - delta, 1e-300) / (1 - truth)))
    assert bit_among(binomial(0, 0.5), epsilon=epsilon).epsilon(delta) == pytest.approx(exact, abs=2e-9)


@given(st.integers(1, 60), st.floats(0.2, 3), st.floats(0.2, 3))
def test_epsilon_and_delta_are_inverse(others, own, theirs):
    pair = bit_among(binomial(others, float(expit(-theirs))), epsilon=own)
    epsilon = pair.epsilon(1e-3)
    assert pair.delta(epsilon) <= 1e-3
    assert epsilon == 0 or pair.delta(max(0.0, epsilon - 2e-9)) >= 1e-3


def test_mass_that_one_side_alone_has_cannot_be_bought_by_epsilon():
    pair = CountPair(np.array([0.1, 0.9, 0.0]), np.array([0.0, 0.9, 0.1]))
    with pytest.raises(
        ValueError, match=r"delta must be above 0.1, the probability of a privacy failure at every epsilon, got 0.05"
    ):
        pair.epsilon(0.05)
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\), got 0"):
        pair.epsilon(0.0)


def test_what_a_window_lost_counts_as_leaked():
    law = CountLaw(0, np.array([0.5, 0.5 - 1e-3]), lost=1e-3)
    assert bit_among(law, epsilon=1.0).delta(5.0) == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        (lambda: binomial(-1, 0.5), "trials must be a whole number >= 0, got -1"),
        (lambda: binomial(2, 1.5), r"probabilities must be .* in \[0, 1\]"),
        (lambda: poisson_binomial([0.5, math.nan]), r"probabilities must be .* in \[0, 1\]"),
    ],
)
def test_laws_that_are_none_are_refused(law, message):
    with pytest.raises(ValueError, match=message):
        law()
