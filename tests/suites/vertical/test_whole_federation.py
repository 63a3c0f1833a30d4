"""Audits keep what a federation's own steps are like: a smaller last batch, and as many steps."""

from dataclasses import dataclass

import pytest
from fedassay.audit.check import PERSON_MOVE
from fedassay.audit.claim import Claim
from fedassay.defenses.vertical.defense import VerticalDefense, VerticalPrepared
from fedassay.fl.streams import normal
from fedassay.fl.vertical.protection import Noise, Noised, VerticalLaw, VerticalProtection
from fedassay.suites.config.other_federations import small_plan, vertical_plan_of, vertical_task_of
from fedassay.suites.config.tables.other_federations import VerticalSpec
from fedassay.suites.results.cell import Cell
from fedassay.suites.vertical import audit
from fedassay.suites.vertical.audit import WHOLE, VerticalAuditJob
from toy_vertical import SPLIT, toy_vertical

SPEC = VerticalSpec(
    dataset="digits",
    people=90,
    epochs=2,
    batch=20,
    learning_rate=0.1,
    hidden=(),
    embedding=3,
    frozen=True,
    audit={"people": 8, "batch": 4, "replicas": 200, "pilot": 60},
)


@dataclass(kw_only=True)
class Falling(VerticalProtection):
    """Noise on residuals that is smaller after some steps."""

    scale: float
    factor: float
    steps: int = 5

    def residuals(self, values, context, rng):
        late = self.factor if context.step >= self.steps else 1.0
        return values + self.scale * late * normal(rng, tuple(values.shape))


@dataclass(frozen=True, kw_only=True)
class FallingNoise(VerticalDefense):
    """A defense that states its claim as if its noise did not fall."""

    factor: float

    def prepare(self, plan):
        # A label moves its row by at most sqrt 2, once in each epoch: mu = 2 / scale = 0.25, epsilon 1 at delta 1e-5.
        law = VerticalLaw(noised=Noised.RESIDUALS, noise=Noise.GAUSSIAN, scale=8.0, releases=plan.epochs)
        claim = Claim.stated(1.0, 1e-5, unit="label", observer="passive_party", rounds=plan.epochs)
        return VerticalPrepared(
            protection=Falling(scale=8.0, factor=self.factor), claims=(claim,), laws={claim.claim_id: law}
        )


def checks(defense):
    task = vertical_task_of(SPEC, 0)
    claim = defense.prepare(vertical_plan_of(SPEC, task)).claims[0]
    cell = Cell(cell_id="c", facts={})
    job = VerticalAuditJob(federation=SPEC, defense=defense, claim=claim, seed=0, alpha=0.001, cell=cell)
    return {check.name: check for check in job.found()[1]}


@pytest.mark.simulations
def test_noise_that_falls_after_the_steps_of_the_small_federation_is_measured():
    assert vertical_plan_of(SPEC, vertical_task_of(SPEC, 0)).steps == 10
    assert checks(FallingNoise(factor=0.2))[PERSON_MOVE].passed is False
    assert [check.words for check in checks(FallingNoise(factor=1.0)).values() if check.passed is False] == []


@pytest.mark.simulations
def test_a_federation_that_is_too_large_for_the_checks_is_reported(monkeypatch):
    assert WHOLE not in checks(FallingNoise(factor=0.2))
    monkeypatch.setattr(audit, "MOST_STEPS", 9)
    found = checks(FallingNoise(factor=0.2))
    assert found[WHOLE].passed is None
    assert found[PERSON_MOVE].passed


@pytest.mark.parametrize("people", [2, 3, 6, 8, 12])
@pytest.mark.parametrize("batch", [2, 3, 4, 8])
def test_the_small_federation_has_a_smaller_last_batch_where_the_federation_has_one(people, batch):
    for size in (5, 6, 7):
        _, plan = toy_vertical(SPLIT, n=30, batch=size)
        small = small_plan(plan, people, batch)
        assert small.people <= people
        assert small.batch <= min(batch, size)
        if 30 % size and people > 2:
            assert small.people % small.batch
        if 30 % size == 0:
            assert (small.people, small.batch) == (people, min(people, batch, size))
