"""Every number in every round: noise that is missing anywhere of a claim is found, and correct noise passes."""

from dataclasses import dataclass, field, replace

import pytest
import torch
from fedassay.audit.check import EVERY_NUMBER
from fedassay.audit.observer import FINAL_MODEL
from fedassay.checks import every_number
from fedassay.checks.claim_checks import _every_number
from fedassay.checks.decide import decided
from fedassay.checks.every_number import every_number_checks
from fedassay.checks.given_rows import HookSetup
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg
from fedassay.defenses.client_level.quantile_clipping import QuantileClipping
from fedassay.defenses.local.categories.ldp_grr import LDPGRR
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.defenses.sample_level.dp_sgd import DPSGD, DPSGDProtection
from fedassay.defenses.secure.skellam import Skellam
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import normal
from fedassay.suites.mutation.mutants import versions
from open_defenses import Reports, Sums, prepared_as
from toy_federation import toy_plan, toy_task

REPORTS, CLIENTS, SAMPLES = LDPGaussian(epsilon=4.0), DPFedAvg(epsilon=4.0), DPSGD(epsilon=4.0)


@pytest.fixture(scope="module")
def small():
    return toy_task((4, 7, 5), side=4)


@pytest.fixture(scope="module")
def large():
    """1,923 weights."""
    return toy_task((4, 7, 5), side=25, inert=0)


def checked(task, part, kind=None, *, seed=0, fields=None, claimed=None, **changes):
    plan = toy_plan(task, **changes)
    protection, claim = prepared_as(part, plan, kind, **(fields or {}))
    claim = replace(claim, **(claimed or {}))
    (found,) = every_number_checks(HookSetup(task=task, plan=plan, protection=protection, claim=claim, seed=seed))
    assert found.name == EVERY_NUMBER
    return found


class BareFrom(Reports):
    """Noise is drawn for the first 1,024 weights."""

    def noise(self, shape, context, rng, rows):
        noise = normal(rng, shape)
        noise[..., 1024:] = 0
        return noise


class Tiled(Reports):
    """Noise is drawn for the first 1,024 weights, and repeated."""

    def noise(self, shape, context, rng, rows):
        noise = normal(rng, (*shape[:-1], 512))
        return noise.repeat(1, 1, shape[-1] // 512 + 1)[..., : shape[-1]]


class BareRound(Sums):
    """One round of 200 has no noise."""

    def noise(self, shape, context, rng):
        return normal(rng, shape) * (context.round != 177)


@dataclass(frozen=True, kw_only=True)
class OldNoise(Sums):
    """One round has the noise of the first one."""

    memory: dict = field(default_factory=dict, compare=False)

    def noise(self, shape, context, rng):
        if context.round == 0:
            self.memory["noise"] = normal(rng, shape)
        return self.memory["noise"] if context.round in (0, 177) else normal(rng, shape)


class SilentRounds(Sums):
    """One release in three is zeros, by a public rule, and one in five repeats the release before it."""

    def noise(self, shape, context, rng):
        return normal(rng, shape)

    def aggregate(self, received, context, state, rng):
        return super().aggregate(received, context, state, rng) * (context.round % 3 > 0)


class Thresholded(Reports):
    """Small numbers become zero, and large ones the bound, after the noise."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        values = torch.where(sent.values.abs() < self.noise_std, 0.0, sent.values)
        return sent.with_values(values.clamp(-2 * self.noise_std, 2 * self.noise_std))


class Coarse(Reports):
    """Numbers are sent in bfloat16."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        return sent.with_values(sent.values.bfloat16().float())


@pytest.mark.parametrize("kind", [BareFrom, Tiled])
def test_noise_that_ends_beyond_the_1024th_weight_is_found(large, kind):
    assert checked(large, REPORTS, kind).passed is False


@pytest.mark.parametrize("kind", [BareRound, OldNoise])
def test_one_round_of_hundreds_without_noise_of_its_own_is_found(small, kind):
    found = checked(small, CLIENTS, kind, rounds=200)
    assert found.passed is False
    assert "round 177" in found.witness


@pytest.mark.parametrize(
    ("part", "kind", "changes"),
    [
        (CLIENTS, None, {"rounds": 200}),
        (CLIENTS, SilentRounds, {"cohort": Poisson(0.5)}),
        (REPORTS, Thresholded, {}),
        (REPORTS, Coarse, {}),
        (SAMPLES, None, {"lot": Poisson(0.4)}),
        (QuantileClipping(epsilon=4.0), None, {"cohort": Poisson(0.5)}),
        (LDPGRR(epsilon=4.0), None, {}),
        (Skellam(epsilon=4.0), None, {}),
    ],
)
def test_correct_noise_passes_however_it_is_post_processed(small, part, kind, changes):
    assert checked(small, part, kind, **changes).passed is True


def test_a_single_bit_with_little_noise_is_left_to_other_checks(small):
    """Randomised response of a flag at a large epsilon hardly ever changes it."""

    class Flagged(Reports):
        def report(self, updates, context, state, rng):
            sent = super().report(updates, context, state, rng)
            flag = (updates.values.abs().sum(-1) > 0) ^ torch.from_numpy(rng.random(updates.present.shape) < 3e-4)
            return type(sent)(**{**vars(sent), "side": {"flag": flag & sent.present}})

    found = checked(small, LDPGaussian(epsilon=8.0), Flagged, rounds=1)
    assert found.passed is True
    assert "few runs" in found.not_compared[0]


@pytest.mark.long
@pytest.mark.simulations
def test_trials_refute_a_claim_about_numbers_without_noise():
    """A flag that states exactly whether a report was clipped."""
    broken = versions("clipped_flag_side")
    claim = broken.claim
    setup = HookSetup(task=broken.task, plan=broken.plan, protection=broken.broken.protection, claim=claim, seed=0)
    (found,) = decided(tuple(every_number_checks(setup)), claim, most=2**13)
    assert found.passed is False
    assert found.evidence.epsilon_low > claim.epsilon


class LouderForRare(DPSGDProtection):
    """A client adds a quarter more noise if any of its samples has class 0."""

    def local_step(self, gradients, present, client, context, state, rng):
        step = super().local_step(gradients, present, client, context, state, rng)
        rare = bool((context.samples(client).labels == 0).any())
        return step * (1.25 if rare else 1.0)


class LouderInPublic(DPSGDProtection):
    """The public samples decide."""

    def local_step(self, gradients, present, client, context, state, rng):
        step = super().local_step(gradients, present, client, context, state, rng)
        return step * (1.25 if bool((context.samples(None).labels == 0).any()) else 1.0)


def test_the_size_of_noise_must_not_follow_the_records_that_a_hook_asks_for(large):
    assert "size" in checked(large, SAMPLES, LouderForRare, lot=Poisson(0.5)).witness
    assert checked(large, SAMPLES, LouderInPublic, lot=Poisson(0.5)).passed is True


def test_what_a_claim_is_not_about_is_said(small):
    whole = checked(small, REPORTS)
    assert whole.not_compared == ()
    final = checked(small, CLIENTS, claimed={"observer": FINAL_MODEL})
    assert final.passed is None
    assert [words.partition(":")[0] for words in final.not_compared] == ["models of single rounds", "single reports"]
    first = checked(small, REPORTS, claimed={"rounds": 1})
    assert first.passed is True
    assert "1 of 3 rounds" in first.not_compared[0]
    assert checked(small, REPORTS, StopsAfterOne, claimed={"rounds": 1}).not_compared == ()


class StopsAfterOne(Reports):
    """Sends zeros after the first round."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        return sent.with_values(sent.values * (context.round == 0))


def test_rounds_that_are_too_many_for_a_claims_own_layout_run_with_fewer_weights(small, large, monkeypatch):
    monkeypatch.setattr(every_number, "_NUMBERS", 2**16)
    setups = []
    for task in (large, small):
        plan = toy_plan(task, rounds=200)
        protection, claim = prepared_as(CLIENTS, plan, BareRound)
        setups.append(HookSetup(task=task, plan=plan, protection=protection, claim=claim, seed=0))
    (own,), (found,) = list(every_number_checks(setups[0])), list(_every_number(*setups))
    assert own.passed is True
    assert found.passed is False
    assert "round 177" in found.witness
