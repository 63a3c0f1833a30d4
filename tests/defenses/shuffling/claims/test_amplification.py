"""What a shuffler makes of personal budgets against the number of clients: points of Figure 2(a) of Liu et al. 2023."""

import pytest
from fedassay.defenses.accounting.clones import shuffled
from fedassay.defenses.accounting.counts import least_epsilon
from fedassay.defenses.accounting.heterogeneous import published_bound
from fedassay.defenses.shuffling.claims.amplification import among_unequal_laplace, among_unequals
from fedassay.defenses.shuffling.claims.budgets import deal, representative_clients

DELTA = 1e-8


def bounds(name, clients):
    """As published; for the largest budget by clip-Laplace and by Laplace; all clients at the largest."""
    budgets = deal(name, clients)
    most = representative_clients(budgets)[-1]
    own = [
        least_epsilon(hidden(client=most, budgets=budgets, others=clients - 1).delta, DELTA)
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
