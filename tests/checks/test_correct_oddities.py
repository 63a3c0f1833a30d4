"""Correct oddities are not accused: constant rounds, noise of one direction, the law of a larger unit."""

from dataclasses import dataclass, replace

import pytest
import torch
from fedassay.audit.check import BETWEEN_CLIENTS, BETWEEN_ROUNDS, LAW_EPSILON, PRESENT, SENSITIVITY
from fedassay.audit.claim import Unit
from fedassay.checks.law import with_law_checks
from fedassay.checks.replay import check_claim
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGD, DPSGDProtection
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.laws import clip
from fedassay.fl.plan import Plan
from fedassay.fl.sampling import Full, Poisson
from fedassay.fl.streams import normal, uniform
from fedassay.suites.config.part_listing import correct_cases
from open_defenses import Reports, WithoutLaw
from toy_federation import toy_plan, toy_task


@pytest.fixture(scope="module")
def task():
    return toy_task((4, 7, 5), side=4, inert=1)


class ConstantWarmUp(WithoutLaw, Reports):
    """The first round sends a public constant."""

    def report(self, updates, context, state, rng):
        if context.round == 0:
            return updates.with_values(torch.full_like(updates.values, 0.01))
        return super().report(updates, context, state, rng)


class RawWarmUp(WithoutLaw, Reports):
    """The first round sends the clipped update."""

    def report(self, updates, context, state, rng):
        if context.round == 0:
            return updates.with_values(clip(updates.values, self.clip_norm))
        return super().report(updates, context, state, rng)


class OneDirection(WithoutLaw, LDPGaussianProtection):
    """One noised number along a public direction."""

    def noise(self, rows, rng):
        return normal(rng, (*rows.shape[:2], 1))

    def report(self, updates, context, state, rng):
        rows = clip(updates.values, self.clip_norm)
        axis = torch.linspace(1, 2, rows.shape[-1])
        axis = axis / torch.linalg.vector_norm(axis)
        number = rows @ axis.unsqueeze(-1) + self.noise_std * self.noise(rows, rng)
        return updates.with_values(number * axis)


class OneDirectionShared(OneDirection):
    """The same number for all clients."""

    def noise(self, rows, rng):
        return normal(rng, (len(rows), 1, 1)).expand(*rows.shape[:2], 1)


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("kind", "failing"),
    [
        (ConstantWarmUp, set()),
        (RawWarmUp, {PRESENT}),
        (OneDirection, set()),
        (OneDirectionShared, {BETWEEN_CLIENTS}),
    ],
)
def test_odd_noise_is_accused_only_where_it_is_broken(task, kind, failing):
    plan = toy_plan(task, rounds=5)
    prepared = LDPGaussian(epsilon=8.0, delta=1e-5, clip_norm=1.0).prepare(plan)
    protection = kind(**vars(prepared.protection))
    found = check_claim(task, plan, protection, prepared.claims[0])
    assert {one.name for one in found if one.passed is False} & {PRESENT, BETWEEN_CLIENTS, BETWEEN_ROUNDS} == failing


@pytest.mark.parametrize(("factor", "accused"), [(2.0, False), (1.0, True)])
def test_a_law_of_the_client_contradicts_a_claim_for_samples_only_beyond_what_the_claim_states(task, factor, accused):
    """One sample moves its client's clipped update by two clip norms: the claim must count both."""
    plan = toy_plan(task, rounds=4)
    prepared = DPFedAvg(epsilon=4.0, delta=1e-5, clip_norm=1.0).prepare(plan)
    claim = replace(prepared.claims[0], unit=Unit.SAMPLE)
    protection = DPFedAvgProtection(
        **{**vars(prepared.protection), "noise_multiplier": factor * prepared.protection.noise_multiplier}
    )
    replayed = check_claim(task, plan, protection, claim)
    moves, laws = with_law_checks(protection, claim, plan, replayed)
    found = {one.name: one for one in (*moves, *laws)}
    assert (found[LAW_EPSILON].passed is False) == accused
    assert (found[SENSITIVITY].passed is False) <= accused


@pytest.mark.simulations
def test_a_cohort_that_is_drawn_by_a_hook_is_no_fault_where_a_clients_place_is_empty():
    task = toy_task((4, 7, 5, 6, 4), side=4, inert=1)
    plan = Plan(
        sizes=task.sizes,
        rounds=3,
        cohort=Poisson(0.5),
        lot=Full(),
        algorithm=FedSGD(learning_rate=1.0),
        layout=task.network.layout,
    )
    prepared = correct_cases()["secret_cohorts"].load().prepare(plan)
    for seed in range(3):
        checks = check_claim(task, plan, prepared.protection, prepared.claims[0], seed=seed)
        assert not [check.words for check in checks if check.passed is False]


@dataclass(frozen=True, kw_only=True)
class CoinsFirst(DPSGDProtection):
    """Draws a coin for each sample of a lot before the noise, so that another sample shifts all later draws."""

    def local_step(self, gradients, present, client, context, state, rng):
        coins = uniform(rng, tuple(present.shape)) < 0.5
        return super().local_step(gradients, present & coins, client, context, state, rng)


class CoinsFirstWithoutClip(CoinsFirst):
    def local_step(self, gradients, present, client, context, state, rng):
        return 1e3 * super().local_step(gradients, present, client, context, state, rng)


@pytest.mark.simulations
def test_runs_that_draw_unequally_are_not_compared(task):
    """One sample more draws one coin more, so that the noise of both runs differs, which is no move."""
    plan = toy_plan(task, rounds=2)
    prepared = DPSGD(epsilon=4.0).prepare(plan)
    protection = CoinsFirst(**vars(prepared.protection))
    found = {one.name: one for one in check_claim(task, plan, protection, prepared.claims[0])}
    assert not [one.words for one in found.values() if one.passed is False]
    assert any("stream local noise" in one for one in found[SENSITIVITY].not_compared)
    # Another label leaves the number of coins as it is, and still shows how far a sample moves the release.
    protection = CoinsFirstWithoutClip(**vars(prepared.protection))
    found = {one.name: one for one in check_claim(task, plan, protection, prepared.claims[0])}
    assert found[SENSITIVITY].passed is False
