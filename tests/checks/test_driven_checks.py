"""States at their ends: a cap or a floor of the noise alone is found, noise that follows the clip norm passes."""

import re

import pytest
import torch
from fedassay.audit.check import AS_SAMPLED
from fedassay.checks.claim_checks import hook_runs
from fedassay.checks.searches import driven_check
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from fedassay.fl.laws import clip, row_norms
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import normal
from open_defenses import WithoutLaw, prepared_as
from toy_federation import toy_plan, toy_task

SIZES, ROUNDS = (4, 9, 6, 5, 7, 4), 20


@pytest.fixture(scope="module")
def task():
    return toy_task(SIZES, side=6, inert=1)


class Following(WithoutLaw, DPFedAvgProtection):
    """The clip norm follows the noised share of long updates."""

    def louder(self, bound):
        return bound

    def clipped(self, values, bound):
        return clip(values, bound.expand(-1, values.shape[1], 1))

    def initial_state(self, plan):
        return {"bound": torch.tensor([self.clip_norm])}

    def report(self, updates, context, state, rng):
        return updates.with_values(self.clipped(updates.values, state["bound"].view(-1, 1, 1)))

    def aggregate(self, received, context, state, rng):
        total = received.values.sum(1)
        noise = 1.5 * self.noise_multiplier * self.louder(state["bound"]).view(-1, 1) * normal(rng, tuple(total.shape))
        return (total + noise) / context.plan.expected_cohort

    def query(self, received, context, state, rng):
        lengths = row_norms(received.values).squeeze(-1)
        long = (lengths >= 0.99 * state["bound"].view(-1, 1)) & received.present
        counted = (long.float() - 0.5).sum(1) + 1.5 * self.noise_multiplier * normal(rng, (len(lengths),))
        share = counted / context.plan.expected_cohort
        return {"bound": (state["bound"] * torch.exp(0.7 * share.clamp(-1, 1))).clamp(1e-6, 1e6)}


class CappedNoise(Following):
    def louder(self, bound):
        return bound.clamp_max(3 * self.clip_norm)


class CappedBoth(Following):
    """The clip is capped as well, or the noise has a floor, which costs nothing."""

    def louder(self, bound):
        return bound.clamp(0.5 * self.clip_norm, 3 * self.clip_norm)

    def clipped(self, values, bound):
        return super().clipped(values, bound.clamp_max(3 * self.clip_norm))


class FlooredClip(Following):
    def clipped(self, values, bound):
        return super().clipped(values, bound.clamp_min(2 * self.clip_norm))


def found_of(task, kind, seed=0, rounds=ROUNDS):
    plan = toy_plan(task, rounds=rounds, cohort=Poisson(0.5))
    runs = hook_runs(task, plan, *prepared_as(DPFedAvg(epsilon=4.0), plan, kind), seed=seed)
    return runs, driven_check(runs.sampled)


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("kind", "rounds", "ends"),
    [(CappedNoise, ROUNDS, "long"), (CappedNoise, 100, "long"), (FlooredClip, ROUNDS, "long|short")],
)
def test_noise_that_stays_where_the_clip_goes_on_is_found(kind, rounds, ends, task):
    runs, found = found_of(task, kind, rounds=rounds)
    assert found.passed is False
    assert found.name == AS_SAMPLED
    assert re.search(f"all other vectors are ({ends}) in all rounds", found.words)
    assert AS_SAMPLED in [one.name for one in runs.checks() if one.passed is False]


@pytest.mark.simulations
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [Following, CappedBoth])
def test_noise_that_follows_the_clip_passes(kind, seed, task):
    assert found_of(task, kind, seed)[1] is None


def test_a_state_that_stays_is_not_driven(task):
    assert found_of(task, DPFedAvgProtection)[1] is None
