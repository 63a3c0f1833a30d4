"""Bundled defenses: no check of runs fails for any of their claims, with and without their laws."""

from dataclasses import replace

import pytest
from fedassay.audit.check import MESSAGE
from fedassay.audit.claim import Unit
from fedassay.checks.extreme import extreme_checks
from fedassay.checks.measured import measured_checks
from fedassay.checks.neighbours import replay_setup
from fedassay.checks.replay import replay_checks
from fedassay.fl.sampling import Full, Poisson
from known_parts import parts_by_name, plan_of_part
from open_defenses import failed, without_law
from thinned import every
from toy_federation import toy_task

CORRECT = {name: part for name, part in parts_by_name("defense").items() if not part.control}


@pytest.mark.parametrize("name", every(3, CORRECT))
def test_every_bundled_defense_bounds_every_row(name):
    task = toy_task((4, 5, 3), side=4, inert=1)
    plan = plan_of_part(name, task, rounds=2)
    prepared = CORRECT[name]().prepare(plan)
    for claim in prepared.claims:
        assert not failed(extreme_checks(replay_setup(task, plan, prepared.protection, claim)))


@pytest.mark.long
@pytest.mark.parametrize("name", CORRECT)
def test_no_check_fails_for_a_bundled_defense_with_and_without_its_law(name):
    task = toy_task((5, 4, 6), side=10, inert=1)
    for cohort in (Full(), Poisson(0.6)):
        try:
            plan = plan_of_part(name, task, cohort=cohort)
            prepared = CORRECT[name]().prepare(plan)
        except ValueError:
            continue
        for claim in prepared.claims:
            setup = replay_setup(task, plan, prepared.protection, claim)
            found = {one.name: one for one in replay_checks(setup)}
            assert not failed(found.values()), claim.describe()
            # A user has rows at several clients, and these checks plant one.
            assert found[MESSAGE].compared or claim.unit in (Unit.COORDINATE, Unit.USER)
            hidden = replace(setup, protection=without_law(prepared.protection))
            assert not failed(measured_checks(hidden, plan)), claim.describe()
