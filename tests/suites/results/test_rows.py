"""Rows read back: whatever a file has been through, each row that can be read is, and each other one is told."""

import json
import re

import pytest
from fedassay.audit.finding import Verdict
from fedassay.suites.results.record import SCHEMA, Record
from fedassay.suites.results.rows import CONTRADICTED, REPEATED, TORN, SkippedRow, read_record, read_rows
from hypothesis import given
from hypothesis import strategies as st
from row_facts import UTILITY

FIELDS = {"schema": SCHEMA, **UTILITY}


def row(cell_id="a", **changes):
    return {"schema": SCHEMA, "cell_id": cell_id, **FIELDS, **changes}


def line(cell_id="a", **changes):
    return Record.model_validate(row(cell_id, **changes)).to_line().encode()


def read(tmp_path, content):
    path = tmp_path / "results.jsonl"
    path.write_bytes(content)
    return read_rows(path)


def cells(rows):
    return [record.cell_id for record in rows.records]


def test_whole_rows_come_in_order_and_nothing_is_skipped(tmp_path):
    rows = read(tmp_path, line("b") + b"\n" + line("a"))
    assert (cells(rows), rows.skipped) == (["b", "a"], ())


def test_a_row_written_on_behind_a_torn_one_is_not_lost_with_it(tmp_path):
    reason = 'somebody wrote {"schema":"result-2"} here'
    rows = read(tmp_path, line("a") + line("b")[:90] + line("c", reason=reason) + line("d"))
    assert cells(rows) == ["a", "c", "d"]
    assert rows.records[1].reason == reason
    assert rows.skipped == (SkippedRow(line=2, cell_id="", reason=TORN),)


def test_two_rows_on_one_line_are_two(tmp_path):
    rows = read(tmp_path, line("a")[:-1] + line("b"))
    assert (cells(rows), rows.skipped) == (["a", "b"], ())


@given(st.data())
def test_a_file_cut_anywhere_and_written_on_loses_the_cut_row_only(tmp_path_factory, data):
    whole = line("a") + line("b", reason='{"schema":')
    cut = data.draw(st.integers(0, len(whole)))
    rows = read(tmp_path_factory.mktemp("cut"), whole[:cut] + line("c"))
    ends = (len(line("a")), len(whole))
    # A row that lacks nothing but its newline is whole.
    assert cells(rows) == [cell for cell, end in zip("ab", ends, strict=True) if cut >= end - 1] + ["c"]
    assert len(rows.skipped) == (cut not in (0, ends[0] - 1, ends[0], ends[1] - 1, ends[1]))


INVALID = "not a valid result row: "
BELOW_THE_RUN = "artifact: .*the path must lie below the run's"


def reason_to_skip(tmp_path, bad, cell_id):
    """Why a row between two good ones is not read."""
    rows = read(tmp_path, line("a") + bad + b"\n" + line("c"))
    assert cells(rows) == ["a", "c"]
    (skipped,) = rows.skipped
    assert (skipped.line, skipped.cell_id) == (2, cell_id)
    return skipped.reason


@pytest.mark.parametrize(
    ("bad", "cell_id", "reason"),
    [
        (b"no row at all", "", "not JSON: Expecting value"),
        (b"\xff\xfe\x00", "", "not JSON: "),
        (b"[" * 100_000, "", "not JSON: it is nested too deeply"),
        (json.dumps({"schema": SCHEMA, "cell_id": 7}).encode(), "", f"{INVALID}run_id is missing, and "),
        (json.dumps(row("b/c")).encode(), "b/c", "cell_id: .*the cell's id must be the name of a single folder"),
        (json.dumps(row("b", value=7)).replace(": 7", ": 1e400").encode(), "b", "value must be a finite"),
        (b"{}", "", "must have schema 'result-2', .* got None"),
    ],
)
def test_what_is_no_row_is_reported_and_the_rest_is_read(tmp_path, bad, cell_id, reason):
    assert re.search(reason, reason_to_skip(tmp_path, bad, cell_id))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"value": "0.5"}, f"{INVALID}value must be a number"),
        ({"value": float("nan")}, f"{INVALID}value must be a finite number"),
        ({"epsilon": 3, "role": "x"}, f"{INVALID}role must be .*, and 1 more"),
        ({"schema": "result-9"}, "must have schema 'result-2', .* got 'result-9'"),
        ({"observer": "foo"}, f"{INVALID}observer: .*'foo'"),
        ({"verdict": "REFUTD"}, f"{INVALID}verdict must be .*'NOT_REFUTED'.* got 'REFUTD'"),
        ({"artifact": "../secret.npz"}, BELOW_THE_RUN),
        ({"artifact": "a\0b.npz"}, BELOW_THE_RUN),
        ({"artifact": "é" * 200}, "artifact: .*file names of at most 255 bytes"),
        ({"value": 1e308}, "value: .*the measured number must be between -1e"),
    ],
)
def test_a_bad_field_is_reported_and_the_other_rows_are_read(tmp_path, changes, reason):
    assert re.search(reason, reason_to_skip(tmp_path, json.dumps(row("b", **changes)).encode(), "b"))


def test_a_row_that_stands_twice_counts_once(tmp_path):
    rows = read(tmp_path, line("a") + line("b") + line("a"))
    assert cells(rows) == ["a", "b"]
    assert rows.skipped == (SkippedRow(line=3, cell_id="a", reason=REPEATED),)


def test_of_two_rows_about_one_measurement_the_first_counts(tmp_path):
    rows = read(tmp_path, line("a", value=0.5) + line("a", value=0.9))
    assert [record.value for record in rows.records] == [0.5]
    assert rows.skipped == (SkippedRow(line=2, cell_id="a", reason=CONTRADICTED),)


@pytest.mark.parametrize("field", ["metric", "attack", "cell_id"])
def test_rows_about_other_measurements_of_a_cell_all_count(tmp_path, field):
    assert len(read(tmp_path, line() + line(**{field: "other"})).records) == 2


@pytest.mark.parametrize("field", ["round", "client", "record", "seed"])
def test_rows_about_other_subjects_of_a_cell_all_count(tmp_path, field):
    assert len(read(tmp_path, line() + line(**{field: 1})).records) == 2


def test_half_of_a_surrogate_pair_is_written_and_read_back(tmp_path):
    """It comes from a file's name that is not UTF-8, and no UTF-8 file holds it except as an escape of JSON."""
    written = read_record(row("a", dataset="\udcff\ud800.npz", looked_at=["\udfff"]))
    (tmp_path / "results.jsonl").write_text(written.to_line(), encoding="ascii")
    assert read_rows(tmp_path / "results.jsonl").records == (written,)


def test_equal_texts_of_many_rows_are_stored_once(tmp_path):
    """Without this, 200,000 rows took 1.3 GB."""
    one, other = read(tmp_path, line("a", dataset_sha256="5" * 64) + line("b", dataset_sha256="5" * 64)).records
    assert one.dataset_sha256 is other.dataset_sha256
    assert one.model_fields_set is other.model_fields_set
    assert one.model_copy(update={"seed": 3}).model_fields_set is not one.model_fields_set


def test_a_row_holds_every_verdict_of_an_audit():
    assert [read_record(row("a", verdict=verdict.value)).verdict for verdict in Verdict] == list(Verdict)
