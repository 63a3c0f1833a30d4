"""The matrix of faults and checks: failing checks are those of the committed data, and no correct version fails."""

import json
from pathlib import Path

import pytest
from fedassay.suites.mutation.mutants import TRANSFER, known_mutants, versions

MATRIX = json.loads(Path(__file__).with_name("fault_matrix.json").read_text(encoding="utf-8"))
OPACUS = "Opacus training"
FAULTS = {name: row for name, row in MATRIX["faults"].items() if row["kind"] != OPACUS}
CORRECT = {name: row for name, row in MATRIX["correct"].items() if row["kind"] != OPACUS}


def quick_detections():
    """For each check that is the only detector of a fault, the fault that takes least, if less than 1.5 s of CPU."""
    found = {}
    for name, row in sorted(FAULTS.items(), key=lambda item: item[1]["cpu_s"]):
        if len(row["failed"]) == 1 and row["cpu_s"] < 1.5:
            found.setdefault(row["failed"][0], name)
    return sorted(found.values())


def failed(name, *, broken):
    results = versions(name).checks(broken=broken, trials=broken, seed=MATRIX["seed"])
    return sorted(result.name for result in results if result.passed is False)


def test_every_fault_and_every_correct_version_has_a_row_and_every_fault_a_check_that_finds_it():
    known = {name: kind for name, kind in known_mutants().items() if kind not in ("mechanism", TRANSFER)}
    assert CORRECT.keys() == known.keys()
    assert FAULTS.keys() == {name for name, kind in known.items() if kind != "correct case"}
    assert all(row["failed"] for row in MATRIX["faults"].values())
    assert not any(row["failed"] for row in MATRIX["correct"].values())


@pytest.mark.parametrize("name", quick_detections())
def test_a_check_finds_the_fault_that_it_alone_detects(name):
    assert failed(name, broken=True) == FAULTS[name]["failed"]


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(FAULTS.keys() - {*quick_detections()}))
def test_the_checks_of_the_matrix_find_the_fault(name):
    assert failed(name, broken=True) == FAULTS[name]["failed"]


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(CORRECT))
def test_no_check_fails_on_a_correct_version(name):
    assert failed(name, broken=False) == []
