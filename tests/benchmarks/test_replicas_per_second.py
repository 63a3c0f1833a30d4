"""The ways of running many federations compute the same models without chance, and as spread ones with it."""

import pytest
import torch
from replica_job import Job, plain_loop
from replicas_per_second import differences, spreads


def numbers(found):
    """The figures of the ways whose library is installed."""
    assert all("not installed" in value for value in found.values() if isinstance(value, str)), found
    return {name: value for name, value in found.items() if isinstance(value, float)}


@pytest.mark.simulations
@pytest.mark.parametrize(("model", "hidden"), [("logistic", 0), pytest.param("mlp", 5, marks=pytest.mark.long)])
def test_all_ways_train_the_models_of_the_plain_loop(model, hidden):
    found = numbers(differences(model, hidden=hidden))
    assert {"plain loop", "engine, one by one"} < set(found)
    assert all(apart < 1e-5 for apart in found.values()), found


@pytest.mark.simulations
def test_lots_and_noise_spread_the_models_as_in_the_plain_loop():
    found = numbers(spreads("logistic", rounds=2, replicas=40))
    # The mean of 650 sample variances, each of 39 degrees of freedom: standard error .009, twice.
    assert all(abs(spread - 1) < 0.05 for spread in found.values()), found


def test_noise_is_most_of_the_spread():
    """Else the spread would say little about the noise."""
    quiet, noisy = (Job(model="logistic", rounds=2, noise_multiplier=scale) for scale in (0.0, 1.0))
    spread = [torch.stack([plain_loop(job, seed) for seed in range(20)]).var(0).mean() for job in (quiet, noisy)]
    assert float(spread[0] / spread[1]) < 0.2


def test_the_plain_loop_leaves_the_first_model_as_it_is():
    job = Job(model="logistic", rounds=1)
    before = job.initial.clone()
    plain_loop(job, 0)
    assert torch.equal(job.initial, before)
