"""Replays: every control that can be seen without sampling fails the check meant for it; its correct version passes."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from fedassay.audit.check import (
    COVERS_MOVES,
    DISTRIBUTION,
    EVERY_DIRECTION,
    GIVEN_CLIENTS,
    GIVEN_ROUNDS,
    OTHER_DATA,
    OWN_IN_RUNS,
)
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import AGGREGATE
from fedassay.checks.replay import check_claim
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGD, DPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.laws import clip
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Full, Poisson
from fedassay.fl.streams import normal
from fedassay.suites.config.resolve import task_of
from fedassay.suites.config.tables.suite import FederationSpec
from fedassay.suites.results.cell import failed_words
from known_parts import parts_by_name
from open_defenses import WithoutLaw
from thinned import thinned

ROUNDS = 8
DEFENSES = parts_by_name("defense")
CONTROLS = {name: part for name, part in DEFENSES.items() if part.control}
HONEST = {name: part for name, part in DEFENSES.items() if name in ("dp_sgd", "dp_fedavg", "ldp_gaussian")}
PLANS = {
    "full": {"lot": Full(), "cohort": Full(), "algorithm": FedSGD(learning_rate=1.0)},
    "poisson": {"lot": Poisson(0.1), "cohort": Poisson(0.5), "algorithm": FedSGD(learning_rate=1.0)},
    "local steps": {
        "lot": Poisson(0.1),
        "cohort": Poisson(0.5),
        "algorithm": FedAvg(learning_rate=0.1, local_steps=3),
    },
    "adam": {
        "lot": Poisson(0.2),
        "cohort": Full(),
        "algorithm": FedAvg(learning_rate=0.01, local_steps=2, optimizer="adam"),
    },
}

ALWAYS = {"sensitivity", "noise present", "noise fresh between rounds", "noise scale", "whole message", "extreme rows"}
DRAWN = {EVERY_DIRECTION, GIVEN_ROUNDS, DISTRIBUTION, OTHER_DATA, OWN_IN_RUNS, COVERS_MOVES}
"""The checks of many draws; noise that fails other checks may fail these too."""

SECURE_SUMS = ("distributed_gaussian", "skellam", "distributed_discrete_gaussian", "binomial")


@pytest.fixture(scope="module")
def task():
    """The digits of two clients with 32 samples each: what an audit's replicas have."""
    algorithm = {"name": "fedsgd", "learning_rate": 1.0}
    spec = FederationSpec(dataset="digits", model="logistic", clients=2, samples=64, rounds=ROUNDS, algorithm=algorithm)
    return task_of(spec, 0).with_inert(1)


@pytest.fixture(scope="module")
def plan_of(task):
    """(changes) -> eight rounds of the task."""

    def build(**changes):
        fields = {"rounds": ROUNDS, **PLANS["full"]} | changes
        return Plan(sizes=task.sizes, layout=task.network.layout, **fields)

    return build


@pytest.fixture(scope="module")
def checked(task):
    """(prepared, plan, changes of its one claim) -> its exposures by name."""

    def run(prepared, plan, *, protection=None, seed=0, **changes):
        (claim,) = prepared.claims
        found = check_claim(task, plan, protection or prepared.protection, replace(claim, **changes), seed=seed)
        return {exposure.name: exposure for exposure in found}

    return run


def broken(exposures):
    return {name for name, exposure in exposures.items() if exposure.passed is False}


@pytest.mark.simulations
@pytest.mark.parametrize(("name", "plan"), thinned(HONEST, PLANS))
def test_a_correct_defense_passes_every_check(name, plan, plan_of, checked):
    laid_out = plan_of(**PLANS[plan])
    found = checked(HONEST[name]().prepare(laid_out), laid_out)
    assert all(exposure.passed for exposure in found.values()), failed_words(tuple(found.values()))
    between = {"noise fresh between clients", GIVEN_CLIENTS}
    assert set(found) >= ALWAYS | DRAWN
    assert set(found) & between == (set() if name == "dp_fedavg" else between)


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("part", "allowed"), [(DPSGD, 1 / 32), (DPFedAvg, 1 / 2), (LDPGaussian, 2.0)], ids=lambda value: str(value)
)
def test_the_sensitivity_of_a_correct_defense_is_reached_exactly(part, allowed, plan_of, checked):
    """One of 32 samples, one of two clients, two reports at opposite ends; clip norm 1."""
    found = checked(part().prepare(plan_of()), plan_of())["sensitivity"]
    assert found.allowed == pytest.approx(allowed)
    assert found.measured == pytest.approx(allowed, rel=1e-4)


@pytest.mark.simulations
def test_a_missing_clip_shows_the_rows_own_length(plan_of, checked):
    found = checked(CONTROLS["control_no_clip"]().prepare(plan_of()), plan_of())["sensitivity"]
    # Rows of a million times the usual length move the release as far without a clip, and 2 with one.
    assert found.measured > 1e4
    assert found.allowed == 2
    assert found.witness.startswith("another label for all samples, with gradients 1e+06 times as long")


@pytest.mark.simulations
def test_the_noise_scale_is_the_share_that_the_control_adds(plan_of, checked):
    for name, share in (("control_replace_one", 0.5), ("control_noise_one_round", ROUNDS**-0.5)):
        found = checked(CONTROLS[name]().prepare(plan_of()), plan_of())["noise scale"]
        assert found.measured == pytest.approx(share, rel=0.01)


@dataclass(frozen=True, kw_only=True)
class BiasUnclipped(DPSGDProtection):
    def total(self, gradients, present):
        # A layer of few weights decides little of the length of rows along all of them.
        bias = torch.zeros(gradients.shape[-1])
        bias[-11:-1] = 1.0
        lengths = torch.linalg.vector_norm(gradients * (1 - bias), dim=-1, keepdim=True)
        return (gradients * (self.clip_norm / lengths.clamp_min(self.clip_norm)) * present.unsqueeze(-1)).sum(1)


@pytest.mark.simulations
def test_a_clip_that_leaves_a_layer_out_is_found_by_a_row_along_it(plan_of, checked):
    prepared = DPSGD().prepare(plan_of())
    unclipped = BiasUnclipped(clip_norm=1.0, noise_multiplier=prepared.protection.noise_multiplier)
    found = checked(prepared, plan_of(), protection=unclipped)["sensitivity"]
    assert found.passed is False
    assert "along output.bias" in found.witness
    assert found.measured > 1000 * found.allowed


@dataclass(frozen=True, kw_only=True)
class OwnSeed(LDPGaussianProtection):
    """Draws from a generator of its own: the streams do not move it."""

    def report(self, updates, context, state, rng):
        return super().report(updates, context, state, np.random.default_rng(0))


@dataclass(frozen=True, kw_only=True)
class SkipsARound(LDPGaussianProtection):
    """Forgets the hook in the second round, for the second client."""

    def report(self, updates, context, state, rng):
        values = super().report(updates, context, state, rng).values
        if context.round == 1:
            values[:, 1] = clip(updates.values[:, 1], self.clip_norm)
        return updates.with_values(values)


@pytest.mark.simulations
@pytest.mark.parametrize(("protection", "where"), [(OwnSeed, "client 0, round 0"), (SkipsARound, "client 1, round 1")])
def test_noise_of_a_fixed_seed_and_a_skipped_hook_are_no_noise(protection, where, plan_of, checked):
    prepared = LDPGaussian().prepare(plan_of())
    broken_one = protection(clip_norm=1.0, noise_std=prepared.protection.noise_std)
    found = checked(prepared, plan_of(), protection=broken_one)
    assert {"noise present", "noise scale"} <= broken(found)
    assert found["noise present"].measured == 0
    assert found["noise present"].witness.startswith(where)
    assert "no noise, or noise with a fixed seed" in found["noise present"].witness


@dataclass(frozen=True, kw_only=True)
class NoisyBound(DPFedAvgProtection):
    """An adaptive clip norm from what was released: its noise hides what one client does to it."""

    def initial_state(self, plan):
        return {"clip_norm": torch.tensor(self.clip_norm)}

    def close_round(self, aggregate, context, state):
        return {"clip_norm": torch.linalg.vector_norm(aggregate, dim=-1, keepdim=True)}


def test_a_public_state_made_of_released_numbers_is_kept(plan_of, checked):
    prepared = DPFedAvg().prepare(plan_of())
    adaptive = NoisyBound(clip_norm=1.0, noise_multiplier=prepared.protection.noise_multiplier)
    found = checked(prepared, plan_of(), protection=adaptive)
    assert broken(found) == set()
    assert found["public state"].measured > 0


@dataclass(frozen=True, kw_only=True)
class NoLaw(WithoutLaw, DPFedAvgProtection):
    """Publishes no law."""


def test_without_a_law_sensitivity_and_scale_cannot_be_checked_and_the_reason_is_said(plan_of, checked):
    prepared = DPFedAvg().prepare(plan_of())
    silent = NoLaw(clip_norm=1.0, noise_multiplier=prepared.protection.noise_multiplier)
    found = checked(prepared, plan_of(), protection=silent)
    assert {name for name, exposure in found.items() if exposure.passed is None} == {"sensitivity", "noise scale"}
    assert (
        found["sensitivity"].words
        == "sensitivity: the defense publishes no Gaussian noise distribution for this adversary"
    )
    assert found["noise present"].passed
    assert found["noise present"].allowed == pytest.approx(1 / 651)


def test_a_defense_without_any_noise_fails_a_check_though_it_publishes_no_law(plan_of, checked):
    found = checked(LDPGaussian().prepare(plan_of()), plan_of(), protection=Protection())
    assert broken(found) == {"noise present", "whole message", "extreme rows"}
    assert found["noise fresh between clients"].passed is None


def test_noise_of_the_broadcast_model_cannot_be_checked_on_a_fixed_model(plan_of, checked):
    class NoisyBroadcast(Protection):
        def broadcast(self, model, context, state, rng):
            return model + normal(rng, tuple(model.shape))

    found = checked(DPFedAvg().prepare(plan_of()), plan_of(), protection=NoisyBroadcast())
    assert found["noise present"].passed is None
    assert "the model that is broadcast" in found["noise present"].witness


def test_a_unit_that_cannot_be_planted_is_said_to_be_so(plan_of, checked):
    found = checked(DPFedAvg().prepare(plan_of()), plan_of(), unit=Unit.USER, adjacency=Adjacency.ZERO_OUT)
    assert found["sensitivity"].passed is None
    assert "no canary for one user under zero-out adjacency is possible" in found["sensitivity"].words


def test_a_claim_against_the_server_that_sees_the_sum_is_checked_like_one_against_the_models(plan_of, checked):
    found = checked(DPFedAvg().prepare(plan_of()), plan_of(), observer=AGGREGATE)
    assert broken(found) == set()
    assert found["sensitivity"].measured == pytest.approx(0.5, rel=1e-4)


@pytest.mark.simulations
def test_the_same_seed_gives_the_same_exposures(plan_of, checked):
    prepared = DPSGD().prepare(plan_of())
    assert checked(prepared, plan_of(), seed=4) == checked(prepared, plan_of(), seed=4)


@pytest.fixture(scope="module")
def secure_sum():
    """Six clients with 16 samples each, all in every round: three drop out, and the canary makes seven."""
    algorithm = {"name": "fedsgd", "learning_rate": 1.0}
    spec = FederationSpec(dataset="digits", model="logistic", clients=6, samples=96, rounds=3, algorithm=algorithm)
    task = task_of(spec, 0).with_inert(1)
    return task, Plan(sizes=task.sizes, layout=task.network.layout, rounds=3, **PLANS["full"])


@pytest.mark.parametrize(
    "name", [*SECURE_SUMS[:2], *(pytest.param(n, marks=pytest.mark.simulations) for n in SECURE_SUMS[2:])]
)
def test_a_secure_sum_passes_every_check_under_zero_out(name, secure_sum):
    """Integer noise on a grid of some thousand steps: no two draws of 651 numbers are equal."""
    task, plan = secure_sum
    prepared = DEFENSES[name]().prepare(plan)
    found = {item.name: item for item in check_claim(task, plan, prepared.protection, prepared.claims[0])}
    assert set(found) >= ALWAYS | DRAWN
    assert {name for name, item in found.items() if not item.passed} <= {DISTRIBUTION, COVERS_MOVES, OWN_IN_RUNS}
    assert not failed_words(tuple(found.values()))
    # The canary's clipped row is there or zero, and reaches its bound up to rounding.
    assert found["sensitivity"].measured == pytest.approx(found["sensitivity"].allowed, rel=2e-3)


@pytest.mark.simulations
def test_noise_that_is_drawn_through_the_rows_is_checked_for_all_but_its_sensitivity(secure_sum):
    """Equal draws of biased coins do not cancel."""
    task, plan = secure_sum
    prepared = DEFENSES["poisson_binomial"]().prepare(plan)
    found = {item.name: item for item in check_claim(task, plan, prepared.protection, prepared.claims[0])}
    assert found.pop("sensitivity").passed is None
    assert set(found) >= (ALWAYS - {"sensitivity"}) | DRAWN
    assert {name for name, item in found.items() if not item.passed} <= {DISTRIBUTION, COVERS_MOVES, OWN_IN_RUNS}
    assert not failed_words(tuple(found.values()))
