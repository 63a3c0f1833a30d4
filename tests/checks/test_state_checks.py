"""A release together with noised numbers of the public state: budgets that are not split are found."""

from dataclasses import dataclass

import pytest
import torch
from fedassay.audit.check import TOGETHER
from fedassay.checks.claim_checks import hook_runs
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import normal
from toy_federation import toy_plan, toy_task

ROUNDS = 6


@pytest.fixture(scope="module")
def task():
    return toy_task((4, 9, 6, 5), side=4, inert=1)


@dataclass(frozen=True, kw_only=True)
class Moments(DPFedAvgProtection):
    """Releases the sum, the sum of squares and their total, each with noise as if it were alone."""

    louder = 1.0

    def aggregate(self, received, context, state, rng):
        total = received.values.sum(1)
        noise = self.louder * self.noise_multiplier * self.clip_norm * normal(rng, tuple(total.shape))
        return (total + noise) / context.plan.expected_cohort

    def query(self, received, context, state, rng):
        squares = received.values.square()
        bound = self.louder * self.noise_multiplier * self.clip_norm**2
        second = squares.sum(1) + bound * normal(rng, (len(squares), squares.shape[-1]))
        energy = squares.sum((1, 2)) + bound * normal(rng, (len(squares),))
        return {"second": second, "energy": energy}


class Split(Moments):
    """Three releases with the noise of three."""

    louder = 3**0.5


class LastSum(DPFedAvgProtection):
    """The public state repeats what was released, its length, and the sum of all rounds."""

    def initial_state(self, plan):
        zeros = torch.zeros(1, plan.layout.dim)
        return {"last": zeros, "momentum": zeros, "length": torch.zeros(1)}

    def close_round(self, aggregate, context, state):
        momentum = 0.9 * state["momentum"] + aggregate
        return {"last": 3 * aggregate, "momentum": momentum, "length": torch.linalg.vector_norm(aggregate, dim=-1)}


class NoiseInState(DPFedAvgProtection):
    """Noise without data."""

    def query(self, received, context, state, rng):
        return {"other": normal(rng, (len(received.values), 5))}


def checked(task, kind, *, law, seed=0, **changes):
    plan = toy_plan(task, rounds=ROUNDS, **changes)
    prepared = DPFedAvg(epsilon=4.0).prepare(plan)
    hidden = {} if law else {"law": lambda self, observer, plan, client: None}
    protection = type(kind.__name__, (kind,), hidden)(**vars(prepared.protection))
    found = hook_runs(task, plan, protection, prepared.claims[0], seed=seed).checks()
    return [one for one in found if one.name == TOGETHER]


@pytest.mark.simulations
@pytest.mark.parametrize("changes", [{}, {"cohort": Poisson(0.5)}])
@pytest.mark.parametrize("law", [True, False])
def test_a_budget_that_each_release_takes_for_itself_is_found(law, changes, task):
    (found,) = checked(task, Moments, law=law, **changes)
    assert found.passed is False, found.words
    assert "second, energy" in found.words


@pytest.mark.simulations
@pytest.mark.parametrize("law", [True, False])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [Split, LastSum, NoiseInState, DPFedAvgProtection])
def test_a_split_budget_and_functions_of_the_release_pass(kind, seed, law, task):
    assert all(one.passed for one in checked(task, kind, law=law, seed=seed))
