"""Filter and odometer: nothing beyond the budget, asked before the release, and never below what was spent."""

import math

import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.rdp import RdpAccountant
from fedassay.audit.claim import Adjacency
from fedassay.audit.curve import epsilon_from_mu
from fedassay.defenses.accounting.accountant import gaussian_steps
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
