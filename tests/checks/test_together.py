"""A release together with noised numbers of the public state or of arrays beside it: budgets not split are found."""

from dataclasses import dataclass, replace

import pytest
import torch
from fedassay.audit.check import TOGETHER
from fedassay.checks.claim_checks import _around, hook_runs
from fedassay.checks.given_rows import HookSetup
from fedassay.checks.sampled import Sampled
from fedassay.checks.searches import together_check
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import normal
from open_defenses import prepared_as
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
    found = hook_runs(task, plan, *prepared_as(DPFedAvg(epsilon=4.0), plan, kind, law=law), seed=seed).checks()
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


class SentTwice(LDPGaussianProtection):
    """The same clipped update with other noise."""

    def report(self, updates, context, state, rng):
        sent, again = (super(SentTwice, self).report(updates, context, state, rng) for _ in range(2))
        return replace(sent, side={"again": again.values})


class Halves(SentTwice):
    """The two copies have the noise of one together."""

    def report(self, updates, context, state, rng):
        loud = replace(self, noise_std=2**0.5 * self.noise_std)
        return SentTwice.report(loud, updates, context, state, rng)


class Copied(LDPGaussianProtection):
    """A copy of what is sent anyway shows nothing more."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        return replace(sent, side={"again": sent.values.clone()})


class Dither(LDPGaussianProtection):
    """Noise without data."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        other = super().report(updates.with_values(torch.zeros_like(updates.values)), context, state, rng)
        return replace(sent, side={"again": other.values})


@pytest.fixture(scope="module")
def together(task):
    """(class of the protection) -> the result of the check of reports."""

    def check(kind):
        plan = toy_plan(task, rounds=3)
        protection, claim = prepared_as(LDPGaussian(), plan, kind)
        setup = HookSetup(task=task, plan=plan, protection=protection, claim=claim, seed=0)
        return together_check(Sampled(setup=setup, around=_around(setup, rounds=3, runs=64)))

    return check


@pytest.mark.parametrize(("kind", "passed"), [(SentTwice, False), (Halves, True), (Copied, True)])
def test_two_copies_count_together(kind, passed, together):
    found = together(kind)
    assert (found.name, found.passed) == (TOGETHER, passed), found.words


@pytest.mark.parametrize("kind", [Dither, LDPGaussianProtection])
def test_a_release_alone_is_left_to_the_other_checks(kind, together):
    assert together(kind) is None
