"""The command ``doctor --calibrate``: two tables, a verdict, and the exit code that agrees with it."""

from dataclasses import replace

import fedassay.audit.estimators.catalogue
import pytest
from fedassay.audit.estimators.catalogue import estimators
from fedassay.audit.measurement import Kind
from fedassay.cli.progress import print_table
from fedassay.reports.tables.auditors import calibration_outcome, degenerate_table, error_table
from fedassay.reports.tables.table import Table


@pytest.fixture
def only(monkeypatch):
    """(estimators) -> the calibration has no others."""

    def choose(*some):
        monkeypatch.setattr(fedassay.audit.estimators.catalogue, "estimators", lambda: {one.name: one for one in some})

    return choose


def test_bounds_that_hold_give_two_tables_and_exit_code_0(say, only):
    found = estimators()
    only(found["pairwise_event"], found["one_shot"])
    result = say("doctor", "--calibrate", "--repeats", 100)
    assert result.exit_code == 0
    said = result.stdout.splitlines()
    assert said[:3] == ["run    2 cells, cached 0", "run    1/2 pairwise_event", "run    2/2 one_shot"]
    assert "Observed error against alpha" in said
    assert "Degenerate inputs" in said
    (null,) = [line.split() for line in said if line.startswith("pairwise_event  bound     null")]
    assert null == ["pairwise_event", "bound", "null", "0", "100", "0.0000", "0.05", "13", "holds"]
    estimate = next(line for line in said if line.startswith("one_shot        estimate  boundary"))
    assert estimate.endswith("above the claim")
    assert said[-1].startswith("gate   OK: 1 bounds hold in ")
    assert said[-1].endswith("(exit code 0)")


def test_a_bound_that_fails_gives_exit_code_10_and_is_named(say, only):
    honest = estimators()["pairwise_event"]

    def exaggerated(counts, **levels):
        return replace(honest.measure(counts, **levels), epsilon_low=5.0)

    only(replace(honest, measure=exaggerated))
    result = say("doctor", "--calibrate", "--repeats", 100)
    assert result.exit_code == 10
    assert result.stdout.splitlines()[-1].startswith("gate   FAIL: pairwise_event (null), pairwise_event (boundary), ")


def test_the_same_seed_prints_the_same_and_too_few_repeats_are_a_usage_error(say, only):
    only(estimators()["z_test"])
    first, again, other = (say("doctor", "--calibrate", "--repeats", 100, "--seed", seed).stdout for seed in (1, 1, 2))
    assert first == again != other
    # Of one or two repeats no number of refutations exceeds the 99.9 % limit: every bound would hold.
    for few in (0, 1, 99):
        result = say("doctor", "--calibrate", "--repeats", few)
        assert (result.exit_code, "100" in result.stderr) == (2, True), result.output


def test_inputs_are_grouped_by_outcome_and_a_failure_stands_alone(calibrated):
    table = degenerate_table([*calibrated, replace(calibrated[-1], situation="NaN", outcome="FAILS: an answer")])
    first = [row[0] for row in table.rows].index("NaN")
    assert list(table.rows[first : first + 2]) == [
        ("NaN", "error", "pairwise_event", "member must be finite, got 1 of 100 NaN or infinite"),
        ("NaN", "FAILS", "pairwise_event", "an answer"),
    ]


def test_the_verdict_counts_bounds_and_names_failures(calibrated):
    assert calibration_outcome(calibrated).exit_code == 0
    broken = replace(calibrated[0], outcome="FAILS")
    assert (calibration_outcome([broken]).verdict_line, calibration_outcome([broken]).exit_code) == (
        "FAIL: pairwise_event (null)",
        10,
    )
    estimate = replace(calibrated[0], kind=Kind.ESTIMATE, limit=None, outcome="not a bound")
    assert calibration_outcome([estimate]).exit_code == 0
    assert error_table([estimate]).rows[0][6:8] == ("", "")


@pytest.fixture(scope="module")
def calibrated():
    from fedassay.audit.calibration import calibrate

    return list(calibrate(repeats=10, only=[estimators()["pairwise_event"]]))


def test_a_table_is_drawn_on_a_terminal_and_plain_elsewhere(monkeypatch, capsys):
    table = Table(title="T", headers=("a", "b"), rows=(("[x]", "1"),), numeric=frozenset({1}), note="n")
    print_table(table)
    assert capsys.readouterr().out == "\nT\n\na    b\n---  -\n[x]  1\nn\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_table(table)
    drawn = capsys.readouterr().out
    assert "[x]" in drawn
    assert "┃" in drawn
