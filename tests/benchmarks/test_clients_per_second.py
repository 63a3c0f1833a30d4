"""The ways of the CIFAR-10 job compute the same model from the same lots, and another one from other lots."""

import pytest
import torch
from cifar_job import LOT, SAMPLES, STEPS, Draws, Job, plain_loop
from clients_per_second import differences


@pytest.mark.long
def test_all_ways_train_the_model_of_the_plain_loop():
    # One round: in later ones the order of a sum of floats may decide whether a unit of the network is active.
    found = differences(Job(clients=3, cohort=3, rounds=1))
    measured = {name: apart for name, apart in found.items() if isinstance(apart, float)}
    assert any(name.startswith("engine") for name in measured)
    assert all(apart < 1e-5 for apart in measured.values()), found
    assert all("not installed" in found[name] for name in found.keys() - measured.keys()), found


@pytest.mark.simulations
def test_other_lots_give_another_model():
    job = Job(clients=2, cohort=2, rounds=1)
    once, again = (plain_loop(job, lambda: None) for _ in range(2))
    lots = {(0, client): torch.arange(STEPS * LOT).view(STEPS, LOT) for client in range(2)}
    other = plain_loop(job, lambda: None, draws=Draws(clients=2, cohort=2, given=lots))
    assert torch.equal(once, again)
    moved = (once - plain_loop(Job(clients=2, cohort=2, rounds=0), lambda: None)).norm()
    assert float((other - once).norm() / moved) > 0.01


def test_the_job_has_the_shape_that_pfl_published():
    job = Job(clients=100, rounds=3)
    assert (SAMPLES, LOT, STEPS, job.cohort, job.plan.rounds) == (50, 10, 5, 50, 1500)
    assert job.task.network.layout.model_dim == 1_626_442
    assert set(job.task.sizes) == {SAMPLES}
    cohort = job.draws.cohort_of(2)
    assert len(set(cohort)) == 50
    assert cohort != job.draws.cohort_of(1)
    assert all(len(lot.unique()) == LOT for lot in job.draws.lots(0, 1))


@pytest.mark.parametrize("number", [1, 2])
def test_a_round_and_a_client_always_have_the_same_lots(number):
    job = Job(clients=100, rounds=3)
    assert torch.equal(job.draws.lots(number, 7), Job(clients=100, rounds=9).draws.lots(number, 7))
