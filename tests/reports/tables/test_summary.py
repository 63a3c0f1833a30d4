"""What cannot be read stands on every page, and the rest of the report is there."""

import json

import pytest
from fedassay.reports.formats.markdown import markdown
from fedassay.reports.formats.page import html
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.tables.summary import line_words, unread_rows, unread_table
from fedassay.suites.results.rows import SkippedRow


@pytest.fixture
def damaged(run_maker):
    """A run of three good rows; between them one of a newer version, one that is none, and at the end half a row."""
    for seed in range(3):
        run_maker.row(value=0.5 + seed / 10, seed=seed)
    run_maker.row(value=0.5, cell_id="newer", schema="result-9")
    run_maker.row(value="<b>half</b>", cell_id="edited")
    run_maker.manifest["planned_cells"] = 3
    run_maker.gate = {"verdict_line": "OK: no claim was audited", "exit_code": 0}
    run_maker.write()
    with (run_maker.path / "results.jsonl").open("a") as results:
        results.write(json.dumps(run_maker.lines[0])[:70])
    return RunFolder.read(run_maker.path)


def test_the_page_states_what_it_leaves_out_and_shows_all_else(damaged):
    page = html(damaged)
    assert "INCOMPLETE: 3 rows that cannot be read" in page
    assert page.count('id="unread"') == 1 <= page.count('href="#unread"')
    table = page[page.index('id="unread"') :]
    for words in ("newer", "&#39;result-9&#39;", "edited", "value must be a number", "cut off while"):
        assert words in table
    assert "0.600<small>[0.352, 0.848]</small>" in page  # AUC of the three good rows.


def test_the_markdown_puts_them_first(damaged):
    text = markdown(damaged)
    first = text[text.index("## Problems") : text.index("## Attacks")]
    assert "- **cannot be read** 1 row of results.jsonl (line 4, of cell newer): " in first
    assert "schema 'result-2'" in first
    assert "line 6): the row was cut off while it was written" in first


def test_lines_are_reported_in_stretches():
    assert line_words([3, 9, 8, 7, 3]) == "3, 7–9"
    assert line_words(range(1, 100, 2)) == "1, 3, 5, 7, 9, 11 and 44 more"


def test_a_thousand_rows_for_one_reason_are_one_line():
    skipped = [SkippedRow(line=number, cell_id=f"c{number}", reason="newer") for number in range(1, 1001)]
    assert unread_rows(skipped) == [
        "1\u202f000 rows of results.jsonl (lines 1–1000, of cell c1, c2, c3, c4, c5, c6 and 994 more): newer"
    ]


def test_a_thousand_reasons_are_cut_and_said_to_be(run_maker):
    for number in range(1000):
        run_maker.row(value=0.5, cell_id=f"c{number}", schema=f"result-{number + 3}")
    table = unread_table(run_maker.write())
    assert len(table.rows) == 20
    assert table.note == "This report contains everything else. 980 more reasons are not shown."
