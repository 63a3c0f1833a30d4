"""Plan: public sizes and rates, and what a canary client counts as."""

from dataclasses import replace

import pytest
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.layout import Layout
from fedassay.fl.plan import Plan
from fedassay.fl.sampling import Epoch, FixedSize, Full, Poisson

PLAN = Plan(
    sizes=(2, 10, 3),
    rounds=4,
    cohort=Poisson(0.5),
    lot=Poisson(0.1),
    algorithm=FedAvg(learning_rate=1.0, local_steps=5),
    layout=Layout(names=("bias",), shapes=((4,),)),
)


def test_cohorts_and_steps_are_counted_in_expectation():
    assert (PLAN.clients, PLAN.cohort_rate, PLAN.expected_cohort, PLAN.steps) == (3, 0.5, 1.5, 20)
    fixed = replace(PLAN, cohort=FixedSize(2))
    assert (fixed.cohort_rate, fixed.expected_cohort) == (2 / 3, 2.0)
    assert replace(PLAN, cohort=FixedSize(9)).expected_cohort == 3


def test_in_passes_over_all_clients_a_client_takes_part_once_per_pass():
    passes = replace(PLAN, cohort=Epoch(3))
    assert (PLAN.participations, passes.participations) == (4, 2)
    assert passes.expected_cohort == pytest.approx(1)
    # An audit of fewer clients keeps the number of times that a client takes part.
    assert passes.resized((5,)).participations == 2


@pytest.mark.parametrize(
    ("rounds", "first", "last", "count"),
    [(1, (1,), (1,), 1), (4, (1, 2), (3, 4), 4), (45, (2, 4), (44, 45), 23), (400, (20, 40), (380, 400), 20)],
)
def test_curves_have_about_twenty_marks_and_always_the_last_round(rounds, first, last, count):
    marks = replace(PLAN, rounds=rounds).marks
    assert marks[:2] == first or rounds == 1
    assert marks[-len(last) :] == last
    assert len(marks) == count


@pytest.mark.parametrize(
    ("lot", "expected", "of_a_canary"),
    [
        (Full(), [2, 10, 3], 5),
        (Poisson(0.1), [0.2, 1.0, 0.3], 0.5),
        (FixedSize(4), [2, 4, 3], 3),
    ],
)
def test_a_lot_is_as_large_as_its_client_allows_and_a_canary_client_counts_as_the_mean_one(lot, expected, of_a_canary):
    plan = replace(PLAN, lot=lot)
    assert [plan.expected_lot(client) for client in range(3)] == pytest.approx(expected)
    assert plan.expected_lot(3) == pytest.approx(of_a_canary)


def test_a_client_weighs_its_samples_and_a_canary_client_the_mean():
    assert [PLAN.weight(client) for client in range(4)] == [2, 10, 3, 5]


def test_a_resized_plan_changes_nothing_but_the_sizes():
    smaller = PLAN.resized((10, 3))
    assert smaller == replace(PLAN, sizes=(10, 3))
    assert smaller.expected_cohort == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": ()}, "sizes must list at least one client"),
        ({"sizes": (3, 0)}, r"each with at least one sample, got \(3, 0\)"),
        ({"rounds": 0}, "rounds must be >= 1, got 0"),
        ({"lot": Epoch(3)}, "lot must be full, Poisson or of fixed size"),
    ],
)
def test_a_plan_without_clients_samples_or_rounds_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(PLAN, **change)
