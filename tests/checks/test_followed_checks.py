"""Rows that follow releases are held against the claim: a clip or a noise that depends on releases is found."""

from dataclasses import dataclass

import pytest
import torch
from fedassay.audit.check import FOLLOWED
from fedassay.checks.claim_checks import _runs
from fedassay.checks.given_rows import HookSetup
from fedassay.checks.searches import followed_check
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from fedassay.fl.laws import clip
from fedassay.fl.streams import normal
from open_defenses import prepared_as
from toy_federation import toy_plan, toy_task

ROUNDS = 20


@pytest.fixture(scope="module")
def task():
    return toy_task((4, 9, 6, 5), side=6, inert=1)


@dataclass(frozen=True, kw_only=True)
class Sum(DPFedAvgProtection):
    """A sum of clipped rows with its noise, which keeps the last release and the sum of all."""

    def initial_state(self, plan):
        zeros = torch.zeros(1, plan.layout.dim)
        return {**super().initial_state(plan), "last": zeros, "total": zeros}

    def report(self, updates, context, state, rng):
        return updates.with_values(self.clipped(updates.values, state))

    def aggregate(self, received, context, state, rng):
        total = (received.values * received.present.unsqueeze(-1)).sum(1)
        noise = self.noise_multiplier * self.clip_norm * normal(rng, tuple(total.shape))
        return self.sent(total + self.scaled(noise, state), state) / context.plan.expected_cohort

    def close_round(self, aggregate, context, state):
        return {**state, "last": aggregate, "total": state["total"] + aggregate}

    def clipped(self, rows, state):
        return clip(rows, self.clip_norm)

    def scaled(self, noise, state):
        return noise

    def sent(self, noised, state):
        return noised


class LooseAlongTheLast(Sum):
    """Rows along the last aggregate pass with twice the clip norm."""

    def clipped(self, rows, state):
        last = state["last"].unsqueeze(1)
        cosine = torch.nn.functional.cosine_similarity(rows, last.expand_as(rows), dim=-1).unsqueeze(-1)
        return torch.where(cosine > 0.3, clip(rows, 2 * self.clip_norm), clip(rows, self.clip_norm))


class QuietWhereItMoved(Sum):
    """The tenth of the weights that moved most gets a quarter of the noise, and the others more."""

    def scaled(self, noise, state):
        total = state["total"].abs().expand_as(noise)
        least = total.quantile(0.9, dim=-1, keepdim=True)
        moved = (total >= least) & (total > 0)
        return noise * torch.where(moved, 0.25, 1.05)


class Momentum(Sum):
    """What is sent is the sum of all releases: post-processing."""

    def sent(self, noised, state):
        return noised + 0.9 * state["total"]


class Preconditioned(Sum):
    """Weights are scaled by public factors after the noise."""

    def sent(self, noised, state):
        return noised * torch.logspace(-1, 1, noised.shape[-1])


def found(kind, task, *, law, seed=0):
    plan = toy_plan(task, rounds=ROUNDS)
    protection, claim = prepared_as(DPFedAvg(epsilon=4.0), plan, kind, law=law)
    setup = HookSetup(task=task, plan=plan, protection=protection, claim=claim, seed=seed)
    return followed_check(_runs(setup))


@pytest.mark.parametrize("law", [True, False])
@pytest.mark.parametrize("kind", [LooseAlongTheLast, QuietWhereItMoved])
def test_a_clip_or_a_noise_that_depends_on_releases_is_found(kind, law, task):
    result = found(kind, task, law=law)
    assert result.name == FOLLOWED
    assert result.passed is False


@pytest.mark.simulations
@pytest.mark.parametrize("law", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_a_sum_passes(law, seed, task):
    # Six standard errors are subtracted: a correct defense fails about once in 10^9 checks.
    assert found(Sum, task, law=law, seed=seed).passed


@pytest.mark.parametrize("seed", range(3))
def test_scaling_after_the_noise_passes(seed, task):
    assert found(Preconditioned, task, law=False, seed=seed).passed


@pytest.mark.parametrize("seed", range(3))
def test_releases_that_hold_earlier_ones_are_not_compared(seed, task):
    assert found(Momentum, task, law=False, seed=seed) is None


def test_half_of_the_noise_is_found_along_these_rows_too(task):
    class Half(Sum):
        def scaled(self, noise, state):
            return noise / 2

    assert found(Half, task, law=False).passed is False
