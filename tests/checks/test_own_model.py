"""A fault in a layer that the audit's small model lacks is found on the claim's own model."""

from dataclasses import dataclass

import pytest
from fedassay.checks.coverage import coverage_of
from fedassay.checks.replay import check_claim, on_own_model, with_own_model
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from toy_federation import toy_plan, toy_task


@dataclass(frozen=True, kw_only=True)
class QuietLayer(LDPGaussianProtection):
    """Adds no noise to the third of the layers, which a small model does not have."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        places = list(context.plan.layout.slices.values())
        if len(places) > 3:
            sent.values[..., places[2]] = updates.values[..., places[2]]
        return sent


@dataclass(frozen=True, kw_only=True)
class Raises(LDPGaussianProtection):
    def report(self, updates, context, state, rng):
        raise RuntimeError("no such layer")


@pytest.fixture(scope="module")
def small():
    task = toy_task((4, 3), side=4, inert=1)
    plan = toy_plan(task, rounds=2)
    prepared = LDPGaussian(epsilon=2.0, delta=1e-5).prepare(plan)
    return check_claim(task, plan, prepared.protection, prepared.claims[0])


@pytest.fixture(scope="module")
def own():
    """(kind) -> the arguments of the checks on the claim's own model."""
    task = toy_task((4, 3), side=4, inert=1, model="mlp")
    plan = toy_plan(task, rounds=2)
    prepared = LDPGaussian(epsilon=2.0, delta=1e-5).prepare(plan)
    return lambda kind: (task, plan, kind(**vars(prepared.protection)), prepared.claims[0])


@pytest.mark.simulations
def test_a_layer_that_the_small_model_lacks_is_checked_on_the_claims_own(small, own):
    correct, broken = (with_own_model(small, *own(kind)) for kind in (LDPGaussianProtection, QuietLayer))
    assert [one.name for one in broken] == [one.name for one in small]
    assert all(one.passed for one in (*small, *correct))
    failed = [one.witness for one in broken if one.passed is False]
    assert any("the claim's own model mlp" in words for words in failed)
    assert on_own_model(correct)
    assert not on_own_model(small)
    assert "the claim's own model mlp, 2 rounds" in coverage_of(correct, sampled=False).looked_at


def test_a_defense_that_raises_on_the_claims_own_model_keeps_its_results(small, own):
    found = with_own_model(small, *own(Raises))
    assert [(one.name, one.passed) for one in found] == [(one.name, one.passed) for one in small]
    assert not on_own_model(found)
    assert any("no such layer" in words for words in coverage_of(found, sampled=False).not_looked_at)
