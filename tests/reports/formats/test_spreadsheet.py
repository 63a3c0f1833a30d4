"""All records as CSV: a row a record, and nothing in it that a spreadsheet would calculate."""

import csv
import io

import pytest
from fedassay.reports.formats.exports import COLUMNS, quiet, spreadsheet
from fedassay.suites.results.record import Record
from hypothesis import given
from hypothesis import strategies as st


def read(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_every_record_is_a_row_in_the_order_of_the_file(quick_folder):
    rows = read(spreadsheet([quick_folder]))
    assert [(row["cell_id"], row["metric"], row["record"]) for row in rows] == [
        (record.cell_id, record.metric, "" if record.record is None else str(record.record))
        for record in quick_folder.records
    ]
    assert {row["run"] for row in rows} == {"2026-01-05T09-14-02Z_quick_3f9a"}


def test_the_columns_are_those_of_a_record_in_its_order(run_maker):
    assert spreadsheet([run_maker.write()]) == ",".join(COLUMNS) + "\r\n"
    assert COLUMNS[:3] == ("run", "schema", "run_id")
    assert COLUMNS[-1] == "artifact"
    assert len(COLUMNS) == len(Record.model_fields) + 1


def test_numbers_come_back_to_the_last_digit_and_nothing_is_no_zero(run_maker):
    run_maker.row(value=-0.1 - 0.2, seed=0, control=True)
    run_maker.row(value=None, seed=1, status="failed", reason="why")
    one, other = read(spreadsheet([run_maker.write()]))
    assert float(one["value"]) == -0.1 - 0.2
    assert one["control"] == "true"
    assert (other["value"], other["ci_low"], other["reason"]) == ("", "", "why")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", " =1+1", "＝1", '=HYPERLINK("x")'])
def test_a_text_that_would_be_calculated_is_quoted(run_maker, text):
    run_maker.row(defense=text, value=-1.0)
    (row,) = read(spreadsheet([run_maker.write()]))
    assert row["defense"] == f"'{text}"
    assert row["value"] == "-1.0"


@given(st.text())
def test_no_text_begins_a_formula(text):
    assert quiet(text).lstrip()[:1] not in tuple("=+-@")
    assert quiet(text).removeprefix("'") == text.removeprefix("'")


@pytest.mark.parametrize("text", ["a,b", 'a"b', "<script>", "\"&'", "ü", ";"])
def test_any_name_comes_back_as_it_was(run_maker, text):
    run_maker.row(defense=text, attack=text, reason=text, value=0.5)
    run_maker.row(value=0.25)
    first, second = read(spreadsheet([run_maker.write()]))
    assert (first["defense"], first["attack"], first["reason"]) == (text, text, text)
    assert second["value"] == "0.25"
