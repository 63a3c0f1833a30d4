"""Beliefs under a claim: the overview's figures, exact mechanisms that reach the bounds, and what delta adds."""

import itertools
import math

import numpy as np
import pytest
from fedassay.audit.posterior import group_privacy, posterior_bounds, right_guesses
from hypothesis import given
from hypothesis import strategies as st

PROBABILITIES, EPSILONS = st.floats(0, 1), st.floats(0, 20)


@pytest.mark.parametrize(
    ("prior", "epsilon", "low", "high"),
    [
        (0.5, 0.0, 0.5, 0.5),
        (0.5, math.log(3), 0.25, 0.75),
        (0.2, math.log(4), 1 / 17, 0.5),
        (0.5, 4.0, 0.0180, 0.9820),
        (0.0, 5.0, 0.0, 0.0),
        (1.0, 5.0, 1.0, 1.0),
        (0.3, math.inf, 0.0, 1.0),
        (0.5, 1000.0, 0.0, 1.0),
    ],
)
def test_the_bounds_are_those_of_bayes_rule(prior, epsilon, low, high):
    assert posterior_bounds(prior, epsilon) == pytest.approx((low, high), abs=5e-5)


@given(prior=st.floats(0.01, 0.99), epsilon=st.floats(0, 10))
def test_randomised_response_reaches_both_bounds(prior, epsilon):
    """A bit that is kept with probability e^epsilon / (1 + e^epsilon)."""
    kept = 1 / (1 + math.exp(-epsilon))
    after_yes = prior * kept / (prior * kept + (1 - prior) * (1 - kept))
    after_no = prior * (1 - kept) / (prior * (1 - kept) + (1 - prior) * kept)
    assert posterior_bounds(prior, epsilon) == pytest.approx((after_no, after_yes))


@given(prior=PROBABILITIES, epsilon=EPSILONS)
def test_the_bounds_hold_the_prior_and_are_each_others_complement(prior, epsilon):
    low, high = posterior_bounds(prior, epsilon)
    assert 0 <= low <= prior * (1 + 1e-12)
    assert prior * (1 - 1e-12) <= high <= 1
    assert posterior_bounds(1 - prior, epsilon)[0] == pytest.approx(1 - high, abs=1e-9)


@given(prior=PROBABILITIES, epsilon=st.floats(0, 8), delta=st.floats(0, 0.5))
def test_the_best_guess_on_the_extreme_mechanism_is_right_as_often_as_stated(prior, epsilon, delta):
    """Four outputs: two that name the data set (delta each), and a randomised bit; every rule of guessing is tried."""
    kept = (1 - delta) / (1 + math.exp(-epsilon))
    first, second = np.array([delta, kept, 1 - delta - kept, 0]), np.array([0, 1 - delta - kept, kept, delta])
    best = max(
        sum((prior * first[i], (1 - prior) * second[i])[choice] for i, choice in enumerate(rule))
        for rule in itertools.product((0, 1), repeat=4)
    )
    assert right_guesses(prior, epsilon, delta) == pytest.approx(best, abs=1e-12)


def test_with_even_odds_and_delta_0_the_share_of_right_guesses_is_the_largest_belief():
    assert right_guesses(0.5, 4.0) == pytest.approx(posterior_bounds(0.5, 4.0)[1])
    assert right_guesses(0.5, 4.0, 0.1) > right_guesses(0.5, 4.0)
    assert right_guesses(0.9, 0.0) == 0.9


def exact_delta(one, other, epsilon):
    return max(float(np.maximum(a - np.exp(epsilon) * b, 0).sum()) for a, b in ((one, other), (other, one)))


@pytest.mark.parametrize("units", [1, 2, 3, 5])
def test_the_groups_delta_is_reached_by_a_mechanism_and_the_single_delta_is_not_enough(units):
    """Data sets with 0, 1, ... units; output 0 has probability x, e^eps x + delta, and so on: every step is tight."""
    epsilon, delta, chain = 0.4, 0.01, [0.02]
    for _ in range(units):
        chain.append(math.exp(epsilon) * chain[-1] + delta)
    outputs = [np.array([share, 1 - share]) for share in chain]
    assert all(exact_delta(a, b, epsilon) <= delta + 1e-12 for a, b in itertools.pairwise(outputs))
    together, joint = group_privacy(epsilon, delta, units)
    assert together == pytest.approx(units * epsilon)
    assert exact_delta(outputs[0], outputs[-1], together) == pytest.approx(joint)
    if units > 1:
        assert joint > units * delta > delta


@given(epsilon=st.floats(0, 5), delta=st.floats(0, 1e-3), units=st.integers(1, 12))
def test_the_groups_delta_is_the_definition_applied_once_per_unit(epsilon, delta, units):
    found = 0.0
    for _ in range(units):
        found = math.exp(epsilon) * found + delta
    assert group_privacy(epsilon, delta, units)[1] == pytest.approx(min(1.0, found), rel=1e-9)


def test_a_group_without_delta_has_none_and_a_large_one_has_no_guarantee():
    assert group_privacy(2.0, 0.0, 1000) == (2000.0, 0.0)
    assert group_privacy(2.0, 1e-9, 1000) == (2000.0, 1.0)
    assert group_privacy(0.0, 1e-3, 5) == pytest.approx((0.0, 5e-3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: posterior_bounds(1.1, 1.0), "prior must lie in"),
        (lambda: posterior_bounds(0.5, -1.0), "epsilon must be >= 0"),
        (lambda: posterior_bounds(0.5, math.nan), "epsilon must be >= 0"),
        (lambda: right_guesses(0.5, 1.0, 2.0), "delta must lie in"),
        (lambda: group_privacy(1.0, 0.1, 0), "units .* whole number"),
        (lambda: group_privacy(1.0, 0.1, True), "units .* whole number"),
        (lambda: group_privacy(1.0, -0.1, 2), "delta must lie in"),
    ],
)
def test_numbers_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
