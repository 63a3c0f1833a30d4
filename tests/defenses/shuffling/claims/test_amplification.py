"""What a shuffler makes of personal budgets against the number of clients: points of Figure 2(a) of Liu et al. 2023."""

import numpy as np
import pytest
from fedassay.defenses.accounting.counts import least_epsilon
from fedassay.defenses.accounting.shuffled import published_bound, shuffled
from fedassay.defenses.shuffling.claims import (
    AssuredCohort,
    among_unequal_laplace,
    among_unequals,
    deal,
    representative_clients,
)
from fedassay.fl.sampling import Epoch
from toy_federation import flat_plan

DELTA = 1e-8


def bounds(name, clients):
    """As published; for the largest budget by clip-Laplace and by Laplace; all clients at the largest."""
    budgets = deal(name, clients)
    most = representative_clients(budgets)[-1]
    own = [
        least_epsilon(
            hidden(client=most, budgets=budgets, cohort=AssuredCohort(others=clients - 1, failure=0)).delta, DELTA
        )
        for hidden in (among_unequals, among_unequal_laplace)
    ]
    equal = shuffled(clients=clients, epsilon0=max(budgets)).epsilon(DELTA)
    return [published_bound(budgets).epsilon(DELTA), *own, equal]


def test_bounds_fall_with_the_root_of_the_clients():
    few, many = bounds("uniform2", 1000), bounds("uniform2", 4000)
    assert few == pytest.approx([0.1908, 0.1991, 0.2679, 0.2304], abs=1e-4)
    assert [a / b for a, b in zip(few, many, strict=True)] == pytest.approx([2.0] * 4, abs=0.1)


@pytest.mark.parametrize("name", ["uniform2", "gauss2"])
def test_the_published_average_is_below_what_is_provable_and_classic_laplace_above_equal_budgets(name):
    published, clipped, laplace, equal = bounds(name, 1000)
    assert published < clipped < equal < laplace


def test_the_worst_cohort_takes_as_many_of_those_that_hide_least_as_its_bounds_allow():
    ranked = np.arange(10.0)
    assert AssuredCohort(others=3, failure=0.0).worst(ranked).tolist() == [0, 1, 2]
    # At most one of the first four, at most two of the first eight.
    bounded = AssuredCohort(others=4, failure=0.1, most_of=((4, 1), (8, 2)))
    assert bounded.worst(ranked).tolist() == [0, 4, 8, 8]


def test_a_random_batch_hides_more_than_the_worst_assured_one_as_often_as_promised():
    """In how many of 2,000 batches is some place below the bound that fails with probability .05?"""
    cohort = AssuredCohort.of(flat_plan(401, 3, cohort=Epoch(4)), 50.0, rounds=1, unequal=True)
    assert (cohort.others, cohort.failure) == (99, 0.05)
    rng, ranked = np.random.default_rng(0), np.arange(400.0)
    batches = np.sort(np.array([rng.choice(ranked, 99, replace=False) for _ in range(2000)]), axis=1)
    worse = (batches < cohort.worst(ranked)).any(axis=1).mean()
    # The union bound over 49 groups is loose, but the bounds are no wider than they must be.
    assert 0.005 < worse < 0.05
    assert cohort.worst(ranked).mean() < batches.mean()


def test_the_failure_is_shared_by_the_rounds_in_which_a_client_takes_part():
    few, many = (
        AssuredCohort.of(flat_plan(400, 3, rounds=4, cohort=Epoch(4)), 1e-5, rounds=rounds, unequal=True)
        for rounds in (4, 400)
    )
    assert few.failure == many.failure == pytest.approx(1e-8)
    assert all(a[1] <= b[1] for a, b in zip(few.most_of, many.most_of, strict=True))
    assert few.most_of != many.most_of


def test_in_a_batch_the_counts_of_the_groups_bring_back_most_of_what_the_worst_case_would_lose():
    """At the size of APES, batches of 500 of 10,000 clients: epsilon of one coordinate of the largest budget."""
    budgets = deal("uniform2", 10_000)
    most = representative_clients(budgets)[-1]
    plan = flat_plan(10_000, 3, rounds=20, cohort=Epoch(20))
    cohorts = [AssuredCohort.of(plan, DELTA, rounds=1, unequal=unequal) for unequal in (False, True)]
    found = [
        least_epsilon(hidden(client=most, budgets=budgets, cohort=cohort).delta, DELTA)
        for hidden in (among_unequals, among_unequal_laplace)
        for cohort in cohorts
    ]
    assert found == pytest.approx([0.3304, 0.2979, 0.8646, 0.4258], abs=2e-4)
