"""Conversions: against the library, against the exact Gaussian, and what cannot be converted."""

import math

import pytest
from dp_accounting import ZCDpEvent
from dp_accounting.rdp import RdpAccountant
from fedassay.audit.curve import epsilon_from_mu
from fedassay.defenses.accounting.accountant import (
    epsilon_at_best_order,
    epsilon_from_rdp,
    epsilon_from_zcdp,
    renyi_budget,
)
from hypothesis import given
from hypothesis import strategies as st

DELTA = 1e-5


@given(st.floats(1e-3, 5), st.sampled_from([1e-4, 1e-6, 1e-9]))
def test_a_gaussians_zcdp_epsilon_lies_above_the_exact_one_by_little(mu, delta):
    exact, converted = epsilon_from_mu(mu, delta), epsilon_from_zcdp(mu**2 / 2, delta)
    assert exact <= converted <= 1.35 * exact + 0.01


@given(st.floats(0.005, 10), st.floats(0, 1))
def test_the_best_order_is_at_least_as_good_as_the_librarys_grid(rho, xi):
    library = RdpAccountant().compose(ZCDpEvent(rho=rho, xi=xi)).get_epsilon(DELTA)
    assert library - 0.02 * library - 0.01 <= epsilon_from_zcdp(rho, DELTA, xi) <= library * (1 + 1e-9)


def test_rdp_converts_by_the_tight_formula_at_its_best_order():
    # A divergence at order 5 alone: 1 + ln(4/5) - (ln 1e-5 + ln 5) / 4.
    expected = 1 + math.log(0.8) - (math.log(1e-5) + math.log(5)) / 4
    assert epsilon_from_rdp(lambda order: 1.0 if order == 5 else math.inf, DELTA) == pytest.approx(expected)


@given(st.floats(0.01, 3))
def test_whole_orders_lose_little_against_zcdp(rho):
    whole = epsilon_from_rdp(lambda order: rho * order, DELTA)
    assert epsilon_from_zcdp(rho, DELTA) * (1 - 1e-9) <= whole <= 1.05 * epsilon_from_zcdp(rho, DELTA)


@given(st.floats(0.01, 30), st.sampled_from([1e-4, 1e-9]))
def test_a_renyi_budget_is_spent_by_the_gaussian_that_it_allows(epsilon, delta):
    budget = renyi_budget(epsilon, delta)
    spent = epsilon_at_best_order(lambda order: budget.rdp / budget.order * order, delta)
    assert 0.97 * epsilon <= spent <= epsilon * (1 + 1e-9)


def test_nothing_released_costs_nothing():
    assert epsilon_from_zcdp(0.0, DELTA) == 0.0


@pytest.mark.parametrize(
    ("convert", "message"),
    [
        (lambda: epsilon_from_zcdp(0.1, 0.0), r"delta must be in \(0, 1\), got 0.0"),
        (lambda: epsilon_from_zcdp(-0.1, DELTA), "rho must be >= 0 and finite, got -0.1"),
        (lambda: epsilon_from_zcdp(0.1, DELTA, math.inf), "xi must be >= 0 and finite, got inf"),
        (lambda: epsilon_from_rdp(lambda order: order, 1.0), r"delta must be in \(0, 1\), got 1.0"),
    ],
)
def test_what_cannot_be_converted_is_refused(convert, message):
    with pytest.raises(ValueError, match=message):
        convert()
