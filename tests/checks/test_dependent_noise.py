"""Without a law, many runs show the noise along a unit's rows, also where that of different weights is dependent."""

from dataclasses import dataclass, replace

import pytest
import torch
from fedassay.audit.check import AS_SAMPLED, MEASURED
from fedassay.checks.claim_checks import HookRuns, _sampled
from fedassay.checks.coverage import power_of_checks
from fedassay.checks.given_rows import HookSetup
from fedassay.checks.measured import measured_checks
from fedassay.checks.neighbours import replay_setup
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.fl.laws import clip
from fedassay.fl.streams import normal, uniform
from open_defenses import WithoutLaw
from toy_federation import toy_plan, toy_task

TASK = toy_task((4, 9, 6, 5), side=4, inert=1)
PLAN = toy_plan(TASK, rounds=5)
PREPARED = LDPGaussian().prepare(PLAN)


@dataclass(frozen=True, kw_only=True)
class RandomHalf(WithoutLaw, LDPGaussianProtection):
    """Sends a random half of the weights with their noise, so that weights are noised together or not at all."""

    share: float = 1.0

    def report(self, updates, context, state, rng):
        kept = uniform(rng, tuple(updates.values.shape)) < 0.5
        noised = clip(updates.values * kept, self.clip_norm) + self.share * self.noise_std * normal(rng, kept.shape)
        return updates.with_values(noised * kept)


def checked(protection, seed=0):
    claim = PREPARED.claims[0]
    setup = HookSetup(task=TASK, plan=PLAN, protection=protection, claim=claim, seed=seed)
    found = (
        *measured_checks(replay_setup(TASK, PLAN, protection, claim, seed=seed), PLAN),
        *_sampled(HookRuns(setup=setup)),
    )
    return {one.name: one for one in found}


@pytest.mark.simulations
def test_the_noise_of_a_random_half_is_measured_by_runs_and_its_power_is_stated():
    found = checked(RandomHalf(**vars(PREPARED.protection)))
    assert found[AS_SAMPLED].passed
    assert PREPARED.claims[0].epsilon < found[AS_SAMPLED].detects < 10 * PREPARED.claims[0].epsilon
    power = power_of_checks(tuple(found.values()), RandomHalf(**vars(PREPARED.protection)), PREPARED.claims[0], PLAN)
    assert power.detectable == pytest.approx(found[AS_SAMPLED].detects)


@pytest.mark.simulations
def test_a_tenth_of_the_noise_on_a_random_half_is_found():
    assert checked(RandomHalf(**vars(PREPARED.protection), share=0.1))[AS_SAMPLED].passed is False


@dataclass(frozen=True, kw_only=True)
class Hidden(WithoutLaw, LDPGaussianProtection):
    """A correct defense without its law, whose claim is tight; ``share``: of its noise."""

    share: float = 1.0

    def report(self, updates, context, state, rng):
        return replace(PREPARED.protection, noise_std=self.share * self.noise_std).report(updates, context, state, rng)


@pytest.mark.simulations
def test_both_measurements_find_a_third_of_the_noise():
    correct = checked(Hidden(**vars(PREPARED.protection)))
    broken = checked(Hidden(**vars(PREPARED.protection), share=0.3))
    for name in (MEASURED, AS_SAMPLED):
        assert correct[name].passed
        assert broken[name].passed is False


@pytest.mark.long
def test_a_tight_claim_without_a_law_never_fails():
    claim, ratios = PREPARED.claims[0], []
    for seed in range(200):
        hidden = Hidden(**vars(PREPARED.protection))
        setup = HookSetup(task=TASK, plan=PLAN, protection=hidden, claim=claim, seed=seed)
        found = next(one for one in _sampled(HookRuns(setup=setup)) if one.name == AS_SAMPLED)
        assert found.passed, found.words
        ratios.append(found.measured / found.allowed)
    # A bound by six errors: the measured number, which the claim states to the digit, lies far below it.
    assert max(ratios) < 1
    assert torch.tensor(ratios).std() < (1 - max(ratios)) / 2
