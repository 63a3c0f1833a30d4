"""Trials of everything that is received: broken pairs without a law are refuted, correct versions are not.

One claim is refuted falsely with probability 5e-5 at most, by the level of its one counted event.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from fedassay.audit.check import VIEW
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL
from fedassay.checks.neighbours import replay_setup
from fedassay.checks.trials import neighbours_of, view_checks
from fedassay.defenses.controls.case import ReportCase
from fedassay.fl.laws import clip
from fedassay.fl.protection import Protection
from fedassay.fl.streams import normal
from fedassay.suites.config.part_listing import correct_cases, faults
from fedassay.suites.mutation.versions import versions_of
from toy_federation import toy_plan, toy_task

NO_LAW = ("share_by_count", "grad_norm_query", "chosen_clip", "coin_reused")
WITH_LAW = ("clipped_flag_side", "uniform_noise", "short_pass", "noise_before_clip", "class_zero_noise")


def view(name, *, broken, seed=0):
    versions = versions_of(faults()[name].load())
    prepared = versions.broken if broken else versions.correct
    found = view_checks((versions.task, versions.plan, prepared.protection, prepared.claims[0]), seed=seed)
    return next(check for check in found if check.name == VIEW)


@pytest.mark.long
@pytest.mark.simulations
def test_a_bug_of_a_defense_without_a_law_is_refuted_by_what_is_received():
    found = view("share_by_count", broken=True)
    assert found.passed is False
    assert found.evidence.below_curve or found.evidence.epsilon_low > 4
    assert found.detects is None


@pytest.mark.long
@pytest.mark.simulations
def test_the_correct_version_passes_with_the_violation_that_would_have_been_found():
    found = view("share_by_count", broken=False)
    assert found.passed
    assert 4 <= found.detects <= 40


@pytest.mark.long
@pytest.mark.parametrize("name", [*NO_LAW, *WITH_LAW])
def test_broken_versions_are_refuted_and_correct_ones_are_not(name):
    shown = view(name, broken=True)
    # Some bugs concern rows that these trials do not plant; other checks find them.
    assert shown.passed is False or name in ("short_pass", "class_zero_noise", "noise_before_clip")
    assert view(name, broken=False).passed


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_unusual_correct_protections_are_not_refuted_on_other_seeds(seed):
    for name in ("float16_reports", "server_momentum", "laplace_with_curve", "exponential_choice", "sample_in_report"):
        versions = versions_of(correct_cases()[name].load())
        correct = versions.correct
        found = view_checks((versions.task, versions.plan, correct.protection, correct.claims[0]), seed=seed)
        assert not [check.words for check in found if check.passed is False]


@dataclass(frozen=True, kw_only=True)
class SharedNoise(ReportCase):
    """All runs of a batch get one noise, so that they are no independent runs."""

    def noise(self, updates, at):
        return super().noise(updates, at)[:1].expand_as(updates.values)


@pytest.mark.simulations
@pytest.mark.long
def test_runs_that_share_their_noise_refute_nothing():
    versions = versions_of(faults()["uniform_noise"].load())
    plan = replace(versions.plan, lot=type(versions.plan.cohort)())
    prepared = SharedNoise.prepare(plan)
    found = view_checks((versions.task, plan, prepared.protection, prepared.claims[0]))[0]
    assert found.passed is not False


@dataclass(frozen=True, kw_only=True)
class NoiseOfOneRelease(Protection):
    """Adds to the mean, in each round, the noise that a claim about ``releases`` releases needs."""

    noise_std: float
    sums: ClassVar = "unweighted mean"

    def report(self, updates, context, state, rng):
        return updates.with_values(clip(updates.values, 1.0))

    def aggregate(self, received, context, state, rng):
        total = received.values.sum(1)
        return (total + self.noise_std * normal(rng, tuple(total.shape))) / len(context.plan.sizes)


@pytest.mark.parametrize("releases", [1, 8])
def test_a_claim_about_the_final_model_alone_is_tested_by_models_that_move(releases):
    task = toy_task().with_few_weights()
    plan = toy_plan(task, rounds=8)
    mu = mu_from_epsilon(4.0, 1e-5)
    claim = Claim.stated(
        epsilon=4.0, delta=1e-5, mu=mu, unit="client", adjacency="zero_out", observer=FINAL_MODEL, rounds=8
    )
    protection = NoiseOfOneRelease(noise_std=releases**0.5 / mu)
    found = view_checks((task, plan, protection, claim))[0]
    assert found.passed is (releases == 8)


@dataclass(frozen=True, kw_only=True)
class Constant(Protection):
    """Releases nothing that depends on anybody."""

    def aggregate(self, received, context, state, rng):
        return torch.zeros_like(received.values[:, 0])


@dataclass(frozen=True, kw_only=True)
class Raises(Protection):
    """Fails in the second round."""

    def aggregate(self, received, context, state, rng):
        return received.values.sum(1) * (1 // (1 - context.round))


def test_what_never_varies_and_what_raises_was_not_looked_at():
    task = toy_task().with_few_weights()
    claim = Claim.stated(epsilon=4.0, delta=1e-5, unit="client", adjacency="zero_out", observer=AGGREGATE, rounds=3)
    for protection, words in ((Constant(), "received the same numbers"), (Raises(), "could not be run: ")):
        found = view_checks((task, toy_plan(task), protection, claim))[0]
        assert found.passed is None
        assert words in found.witness


@pytest.mark.simulations
def test_pairs_of_inputs_are_neighbours_of_the_claim():
    for name in ("share_by_count", "clipped_flag_side", "unary_off", "tagged_reports"):
        versions = versions_of(faults()[name].load())
        claim = versions.correct.claims[0]
        setup = replay_setup(versions.task, versions.plan, versions.correct.protection, claim).sampled
        pairs = list(neighbours_of(setup))
        assert pairs
        assert {pair.inputs[1].canary.adjacency for pair in pairs} == {claim.adjacency}
        assert {pair.inputs[1].canary.unit for pair in pairs} == {claim.unit}
        assert len({pair.words for pair in pairs}) == len(pairs)


@dataclass(frozen=True, kw_only=True)
class LargestSigns(Protection):
    """The signs of the twenty weights with the largest noisy size: all, of a model with no more weights."""

    def report(self, updates, context, state, rng):
        rows = torch.where(updates.values.abs() > 0, updates.values.sign(), 1.0)
        kept = torch.zeros_like(rows).scatter(-1, updates.values.abs().topk(min(20, rows.shape[-1])).indices, 1.0)
        return updates.with_values(kept)


def test_where_few_weights_show_nothing_the_models_own_are_tried():
    claim = Claim.stated(epsilon=4.0, unit="client", adjacency="replace_one", observer=AGGREGATE, rounds=3)
    own, few = toy_task(), toy_task().with_few_weights()
    federations = [(task, toy_plan(task), LargestSigns(), claim) for task in (own, few)]
    assert view_checks(federations[1])[0].passed is None
    assert view_checks(*federations)[0].passed is False


def test_replaced_clients_are_also_those_of_the_plan():
    claim = Claim.stated(epsilon=4.0, delta=1e-5, unit="client", adjacency="replace_one", observer=AGGREGATE, rounds=3)
    task = toy_task()
    setup = replay_setup(task, toy_plan(task), Constant(), claim)
    holders = {pair.holder for pair in neighbours_of(setup)}
    assert {*setup.checked_clients[:3], task.clients} <= holders
