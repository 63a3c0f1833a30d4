"""Factors of the privacy losses of an event: randomised response stays randomised response."""

import math

import pytest
from fedassay.checks.events import cautious_rates, likely_counts, smallest_factor


def rate(epsilon):
    return 1 / (1 + math.exp(-epsilon))


@pytest.mark.parametrize("wanted", [1.0, 1.3, 2.0])
def test_randomised_response_of_scaled_losses_has_so_many_times_the_epsilon(wanted):
    """At epsilon e, the test refutes from the rates of epsilon ``wanted * e`` on."""
    limit = rate(0.8 * wanted)
    found = smallest_factor(rate(0.8), rate(-0.8), lambda p, q: p >= limit - 1e-9 and q <= 1 - limit + 1e-9)
    assert wanted - 1e-9 <= found <= 1.05 * wanted + 1e-9


def test_an_event_that_tells_nothing_has_no_factor():
    assert smallest_factor(0.5, 0.5, lambda p, q: True) is None
    assert smallest_factor(0.6, 0.4, lambda p, q: False) is None


def test_cautious_rates_lie_between_the_seen_ones_and_likely_counts_beside_their_means():
    low, high = cautious_rates(90, 10, 100)
    assert 0.8 < low < 0.9
    assert 0.1 < high < 0.2
    within, out = likely_counts(0.9, 0.1, 1000)
    assert 870 < within < 900
    assert 100 < out < 130
