"""The suites that promise every attack of a kind hold every one, and can be prepared to the last federation."""

import pytest
from fedassay.fl.dataset import DatasetMissing
from fedassay.suites.catalogue import names
from fedassay.suites.resolve import resolve
from fedassay.suites.run_plan import plan_run
from fedassay.suites.suite_file import load_suite

FOLDERS = {"gradients": "gradient", "labels": "labels"}


@pytest.mark.parametrize("name", FOLDERS)
def test_every_attack_of_its_kind_is_in_it(name):
    kind = f"fedassay.attacks.{FOLDERS[name]}."
    wanted = {label for label, part in names("attack").items() if part.__module__.startswith(kind)}
    spec, _ = load_suite(name)
    assert wanted
    assert {entry.part or label for label, entry in spec.attacks.items()} >= wanted


@pytest.mark.parametrize("name", FOLDERS)
def test_every_federation_of_it_can_be_prepared(name):
    """A defense that no longer signs what the suite asks for would end a run before its first cell."""
    spec, source = load_suite(name)
    try:
        plan = plan_run(resolve(spec, source, seed=0))
    except DatasetMissing as missing:
        pytest.skip(str(missing))
    looked_at = {place for attack in spec.attacks.values() for place in attack.federations}
    assert {cell.facts["federation"] for job in plan.trials for cell in job.cells} >= looked_at
