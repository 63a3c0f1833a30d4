"""A defense is prepared once for each plan, whatever number of seeds and audits ask for it."""

import dataclasses

import pytest
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.suites.config.resolve import calibrated, prepare


@pytest.fixture
def prepared_for(monkeypatch):
    """The plans that LDPGaussian was prepared for, in order."""
    plans, right = [], LDPGaussian.prepare

    def counted(self, plan):
        plans.append(plan)
        return right(self, plan)

    monkeypatch.setattr(LDPGaussian, "prepare", counted)
    return plans


def test_equal_plans_of_two_seeds_are_one_calibration_and_another_plan_is_a_second(resolved, prepared_for):
    suite = resolved("seeds = 1", "seeds = 2", extra=(LDPGaussian(),))
    first, second = (prepare(suite, suite.defenses[2], "main", seed) for seed in (0, 1))
    assert first is second
    assert len(prepared_for) == 1
    longer = dataclasses.replace(prepared_for[0], rounds=prepared_for[0].rounds + 1)
    assert calibrated(suite.defenses[2].defense, longer).claims != first.claims
    assert len(prepared_for) == 2


def test_another_budget_is_another_calibration(resolved, prepared_for):
    suite = resolved(extra=(LDPGaussian(),))
    plan = (prepare(suite, suite.defenses[2], "main", 0), prepared_for[0])[1]
    assert calibrated(LDPGaussian(epsilon=3.0), plan).claims != calibrated(LDPGaussian(epsilon=2.0), plan).claims


def test_a_defense_that_cannot_be_hashed_is_prepared_each_time(resolved, prepared_for):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Listing(LDPGaussian):
        notes: list = dataclasses.field(default_factory=list)

    suite = resolved(extra=(LDPGaussian(),))
    prepare(suite, suite.defenses[2], "main", 0)
    plan = prepared_for[0]
    one, two = (calibrated(Listing(), plan) for _ in range(2))
    assert one.claims == two.claims
    assert len(prepared_for) == 3
