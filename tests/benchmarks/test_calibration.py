"""The error rates of estimators: two tables, and an outcome that agrees with the exit code."""

from dataclasses import replace

import fedassay.audit.calibration
import pytest
from fedassay.audit.calibration import calibrate
from fedassay.audit.estimators.catalogue import estimators
from fedassay.audit.measurement import Kind

BENCHMARK = "calibration"


@pytest.fixture
def run(benchmark, monkeypatch):
    """(words, estimators) -> the exit code of the script, which has no others."""

    def main(words, *some):
        monkeypatch.setattr(fedassay.audit.calibration, "estimators", lambda: {one.name: one for one in some})
        return benchmark.main(words)

    return main


def test_bounds_that_hold_give_two_tables_and_exit_code_0(run, capsys):
    found = estimators()
    assert run(["--repeats", "100"], found["pairwise_event"], found["one_shot"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert {"Observed error against alpha", "Degenerate inputs"} < set(said)
    (null,) = [line.split() for line in said if line.startswith("pairwise_event  bound     null")]
    assert null == ["pairwise_event", "bound", "null", "0", "100", "0.0000", "0.05", "13", "holds"]
    estimate = next(line for line in said if line.startswith("one_shot        estimate  boundary"))
    assert estimate.endswith("above the claim in 90% of the runs")
    assert said[-1].startswith("OK: 1 bounds hold in ")


def test_a_bound_that_fails_gives_exit_code_1_and_is_named(run, capsys):
    honest = estimators()["pairwise_event"]

    def exaggerated(counts, **levels):
        return replace(honest.measure(counts, **levels), epsilon_low=5.0)

    assert run(["--repeats", "100"], replace(honest, measure=exaggerated)) == 1
    assert "\nFAIL: pairwise_event (null), pairwise_event (boundary), " in capsys.readouterr().out


def test_the_same_seed_prints_the_same_and_too_few_repeats_are_refused(run, capsys):
    def printed(seed):
        run(["--repeats", "100", "--seed", seed], estimators()["z_test"])
        return capsys.readouterr().out

    assert printed("1") == printed("1") != printed("2")
    with pytest.raises(SystemExit):
        run(["--repeats", "99"])


def test_inputs_are_grouped_by_outcome_and_a_failure_stands_alone(benchmark, calibrated):
    table = benchmark.degenerate_table([*calibrated, replace(calibrated[-1], situation="NaN", outcome="FAILS: wrong")])
    first = [row[0] for row in table.rows].index("NaN")
    assert list(table.rows[first : first + 2]) == [
        ("NaN", "error", "pairwise_event", "member must be finite, got 1 of 100 NaN or infinite"),
        ("NaN", "FAILS", "pairwise_event", "wrong"),
    ]


def test_the_outcome_counts_bounds_and_names_failures(benchmark, calibrated):
    assert benchmark.outcome(calibrated).startswith("OK: 1 bounds")
    assert benchmark.outcome([replace(calibrated[0], outcome="FAILS")]) == "FAIL: pairwise_event (null)"
    estimate = replace(calibrated[0], kind=Kind.ESTIMATE, limit=None, outcome="no bound: 90% above the claim")
    assert benchmark.outcome([estimate]).startswith("OK: 0 bounds")
    assert benchmark.error_table([estimate]).rows[0][6:8] == ("", "")


@pytest.fixture(scope="module")
def calibrated():
    return list(calibrate(repeats=10, only=[estimators()["pairwise_event"]]))
