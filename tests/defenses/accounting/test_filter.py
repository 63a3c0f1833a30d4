"""Filter and odometer: nothing beyond the budget, asked before the release, and never below what was spent.

Conversions: against the library, against the exact Gaussian, and what cannot be converted.
"""

import math

import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.rdp import RdpAccountant
from fedassay.audit.claim import Adjacency
from fedassay.audit.curve import epsilon_from_mu
from fedassay.defenses.accounting.accountant import (
    epsilon_at_best_order,
    epsilon_from_rdp,
    epsilon_from_zcdp,
    gaussian_steps,
    renyi_budget,
)
from fedassay.defenses.accounting.filter import RenyiFilter, planned_filter
from hypothesis import given, settings
from hypothesis import strategies as st

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
DELTA = 1e-5


def released_within(account, releases):
    done, spent = [], 0.0
    for event in releases:
        spent += account.cost(event)
        if spent > account.budget:
            break
        done.append(event)
    return done


def test_the_budget_is_the_divergence_that_converts_to_epsilon():
    account = RenyiFilter(epsilon=2.0, delta=DELTA, order=12.0, adjacency=ADD)
    back = account.budget + math.log1p(-1 / 12) - math.log(DELTA * 12) / 11
    assert back == pytest.approx(2.0)


@settings(max_examples=15)
@given(st.lists(st.floats(3.0, 60.0), min_size=5, max_size=60))
def test_whatever_the_noises_were_the_library_agrees_that_the_budget_holds(noises):
    account = planned_filter(epsilon=1.0, delta=DELTA, release=GaussianDpEvent(20.0), adjacency=ADD)
    done = released_within(account, [GaussianDpEvent(noise) for noise in noises])
    accountant = RdpAccountant()
    for event in done:
        accountant.compose(event)
    mu = math.sqrt(sum(event.noise_multiplier**-2 for event in done))
    assert epsilon_from_mu(mu, DELTA) <= 1.0
    assert accountant.get_epsilon(DELTA) <= 1.02


def test_a_filter_for_equal_releases_permits_nearly_what_renyi_accounting_does():
    release = gaussian_steps(sigma=1.1, rate=0.013, steps=1)
    account = planned_filter(epsilon=2.25, delta=DELTA, release=release, adjacency=ADD)
    permitted = int(account.budget / account.cost(release))
    assert permitted == pytest.approx(1000, abs=5)


def test_replace_one_counts_noise_over_the_replace_one_sensitivity():
    account = planned_filter(epsilon=3.0, delta=DELTA, release=GaussianDpEvent(10.0), adjacency=REPLACE)
    assert account.cost(GaussianDpEvent(2.0)) == pytest.approx(account.order / 8)


def test_a_plan_that_fits_not_once_is_refused():
    with pytest.raises(ValueError, match=r"epsilon must be large enough for one planned release, got 0.1"):
        planned_filter(epsilon=0.1, delta=DELTA, release=GaussianDpEvent(1.0), adjacency=ADD)


def test_an_order_without_a_budget_is_refused():
    with pytest.raises(
        ValueError, match=r"Renyi order must allow a positive divergence within epsilon 0.1, delta 1e-05, got order 2"
    ):
        RenyiFilter(epsilon=0.1, delta=DELTA, order=2.0, adjacency=ADD)
    with pytest.raises(ValueError, match="order must be > 1 and finite, got 1"):
        RenyiFilter(epsilon=1.0, delta=DELTA, order=1.0, adjacency=ADD)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, DELTA), (1.0, 0.0), (math.nan, DELTA)])
def test_a_budget_that_is_none_is_refused(epsilon, delta):
    with pytest.raises(ValueError, match=r"(epsilon|delta) must be"):
        RenyiFilter(epsilon=epsilon, delta=delta, order=10.0, adjacency=ADD)
    with pytest.raises(ValueError, match=r"(epsilon|delta) must be"):
        planned_filter(epsilon=epsilon, delta=delta, release=GaussianDpEvent(10.0), adjacency=ADD)


@given(st.floats(1e-3, 5), st.sampled_from([1e-4, 1e-6, 1e-9]))
def test_a_gaussians_zcdp_epsilon_lies_above_the_exact_one_by_little(mu, delta):
    exact, converted = epsilon_from_mu(mu, delta), epsilon_from_zcdp(mu**2 / 2, delta)
    assert exact <= converted <= 1.35 * exact + 0.01


def test_rdp_converts_by_the_tight_formula_at_its_best_order():
    # A divergence at order 5 alone: 1 + ln(4/5) - (ln 1e-5 + ln 5) / 4.
    expected = 1 + math.log(0.8) - (math.log(1e-5) + math.log(5)) / 4
    assert epsilon_from_rdp(lambda order: 1.0 if order == 5 else math.inf, DELTA) == pytest.approx(expected)


@given(st.floats(0.01, 30), st.sampled_from([1e-4, 1e-9]))
def test_a_renyi_budget_is_spent_by_the_gaussian_that_it_allows(epsilon, delta):
    budget = renyi_budget(epsilon, delta)
    spent = epsilon_at_best_order(lambda order: budget.rdp / budget.order * order, delta)
    assert 0.97 * epsilon <= spent <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("convert", "message"),
    [
        (lambda: epsilon_from_zcdp(0.1, 0.0), r"delta must be in \(0, 1\), got 0.0"),
        (lambda: epsilon_from_zcdp(-0.1, DELTA), "rho must be >= 0 and finite, got -0.1"),
        (lambda: epsilon_from_rdp(lambda order: order, 1.0), r"delta must be in \(0, 1\), got 1.0"),
    ],
)
def test_what_cannot_be_converted_is_refused(convert, message):
    with pytest.raises(ValueError, match=message):
        convert()
