"""Runs with sequential audits: the same rows from any number of processes, and after a kill between any two writes."""

import fedassay
import pytest
from fedassay.suites.results import store as store_module
from fedassay.suites.results.store import Store
from run_files import results

SEQUENTIAL = ("replicas = 40", "replicas = 400\nsequential = true")
CONTROL = "[defenses.control_noise_halved]\nepsilon = 4.0\ndelta = 1e-5\n\n[attacks.loss]"


class Killed(BaseException):
    """Nothing in the package catches this."""


@pytest.fixture
def path(suite_file):
    return suite_file(*SEQUENTIAL, "[attacks.loss]", CONTROL)


@pytest.fixture
def whole(assay, path):
    return assay(path)


def test_what_is_not_run_is_a_row_with_its_reason_and_the_run_is_complete(whole):
    blocks = [row for row in whole.records if row.role == "replicas"]
    omitted = [row for row in blocks if row.status == "skipped"]
    assert omitted
    assert all(row.stopped and row.reason.startswith("not made: ") for row in omitted)
    audits = {row.defense: row for row in whole.records if row.role == "audit"}
    control = audits["control_noise_halved"]
    assert control.verdict == "REFUTED"
    assert control.n < 400
    assert control.n == sum(row.n for row in blocks if row.defense == control.defense)
    assert whole.verdict.exit_code == 0


@pytest.mark.processes
@pytest.mark.long
def test_two_processes_give_the_rows_of_one(assay, path, whole, timeless):
    assert timeless(assay(path, jobs=2).records) == timeless(whole.records)


@pytest.mark.simulations
def test_a_run_killed_at_any_place_makes_the_same_runs_when_resumed(
    assay, path, whole, timeless, monkeypatch, tmp_path
):
    total = len({row.cell_id for row in whole.records})
    for kept in range(1, total, 5):
        folder, left = tmp_path / f"killed{kept}", iter(range(kept))
        append = Store.append

        def append_some(store, cell_id, left=left, append=append):
            if next(left, None) is None:
                raise Killed
            append(store, cell_id)

        with monkeypatch.context() as patched:
            patched.setattr(store_module.Store, "append", append_some)
            with pytest.raises(Killed):
                fedassay.run(str(path), jobs=1, folder=folder, report=False)
        resumed = fedassay.resume(folder, jobs=1, report=False)
        assert timeless(resumed.records) == timeless(whole.records)
        assert len(results(folder)) == len(set(results(folder)))
