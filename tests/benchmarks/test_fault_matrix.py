"""The matrix of faults: measured versions replace their rows, and sums over all versions wait for a whole run."""

import pytest

pytest.importorskip("opacus")
BENCHMARK = "fault_matrix"
VERSIONS = [("one", "mechanism", True), ("one", "mechanism", False), ("two", "mechanism", True)]


def row(name, *failed, broken=True):
    counted = {"cpu_s": 2.0, "groups": {"law.law_check": 0.5}, "homes": dict.fromkeys(failed, "law.law_check")}
    return {"name": name, "kind": "toy", "broken": broken, "failed": [*failed], "passed": [], "skipped": []} | counted


def kept(*failed):
    return {"kind": "toy", "failed": [*failed], "skipped": [], "cpu_s": 2.0}


COMMITTED = {
    "checks": {"noise": {"group": "earlier", "looked": 9}},
    "groups": {"earlier": {"runs": 9, "cpu_s": 1.0}},
    "faults": {"gone": kept("noise"), "one": kept("noise"), "two": kept("noise")},
    "correct": {"one": kept()},
}


@pytest.fixture(autouse=True)
def three_versions(benchmark, monkeypatch):
    monkeypatch.setattr(benchmark, "tasks", lambda: iter(VERSIONS))


def test_versions_measured_one_after_another_replace_their_own_rows_alone(benchmark):
    first = benchmark.updated(COMMITTED, [row("two", "noise", "law")])
    second = benchmark.updated(first, [row("one", "move"), row("gone", "move")])
    assert second["faults"] == {"one": kept("move"), "two": kept("noise", "law")}
    assert second["correct"] == COMMITTED["correct"]
    assert (second["checks"], second["groups"]) == (COMMITTED["checks"], COMMITTED["groups"])


def test_rows_of_all_versions_make_the_tables_of_checks_and_groups_anew(benchmark):
    found = benchmark.updated(COMMITTED, [row("one", "law"), row("one", broken=False), row("two", "law")])
    assert found["checks"] == {"law": {"group": "law.law_check", "looked": 2}}
    assert found["groups"] == {"law.law_check": {"runs": 3, "cpu_s": 0.5}}
    assert found["faults"] == {"one": kept("law"), "two": kept("law")}
