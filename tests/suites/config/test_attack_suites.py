"""The suites that promise every attack of a kind hold every one, and can be prepared to the last federation."""

import pytest
from fedassay.fl.data.dataset import DatasetMissing
from fedassay.suites.config.resolve import resolve
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.planning.run_plan import plan_run
from known_parts import parts_by_name

SUITES = {
    "gradient": ["gradients"],
    "labels": ["labels"],
    "text": ["text"],
    "membership": ["membership", "membership_final", "membership_writers", "membership_location30"],
}


@pytest.mark.parametrize("folder", SUITES)
def test_every_attack_of_its_kind_is_in_them(folder):
    kind = f"fedassay.attacks.{folder}."
    wanted = {label for label, part in parts_by_name("attack").items() if part.__module__.startswith(kind)}
    specs = [load_suite(name)[0] for name in SUITES[folder]]
    assert wanted
    assert {entry.part or label for spec in specs for label, entry in spec.attacks.items()} >= wanted


@pytest.mark.long
@pytest.mark.parametrize("name", [name for several in SUITES.values() for name in several])
def test_every_federation_of_it_can_be_prepared(name):
    """A defense that no longer signs what the suite asks for would end a run before its first cell."""
    spec, source = load_suite(name)
    try:
        plan = plan_run(resolve(spec.model_copy(update={"seeds": 1}), source, seed=0))
    except DatasetMissing as missing:
        pytest.skip(str(missing))
    looked_at = {place for attack in spec.attacks.values() for place in attack.federations}
    assert {cell.facts["federation"] for job in plan.jobs for cell in job.cells} >= looked_at
