"""Fitting tables on a page: together the parts are the table, and each says what its rows are about."""

from fedassay.reports.formats.latex import LETTERS, LINES, parts, unbroken_words
from fedassay.reports.tables.table import Table
from hypothesis import given
from hypothesis import strategies as st


def table_of(rows, headers, about=1):
    return Table(title="t", headers=headers, rows=rows, about=about, note="n")


def test_a_table_that_fits_is_one_part_as_it_is():
    table = table_of((("a", "1"), ("b", "2")), ("x", "y"))
    (part,) = parts(table)
    assert part.table == table
    assert part.widths == (None, None)


def test_wide_tables_are_cut_between_columns_and_every_part_states_what_its_rows_are_about():
    headers = ("attack", "metric", *(f"defense{place:013d}" for place in range(7)))
    rows = ((("loss", "auc", *[f"{place}" for place in range(7)])),)
    found = [part.table for part in parts(table_of(rows, headers, about=2))]
    assert len(found) > 1
    assert [table.title for table in found] == [f"t ({n} of {len(found)})" for n in range(1, len(found) + 1)]
    assert all(table.rows[0][:2] == ("loss", "auc") for table in found)
    assert [cell for table in found for cell in table.rows[0][2:]] == [f"{place}" for place in range(7)]
    assert [table.note for table in found] == [""] * (len(found) - 1) + ["n"]


def test_long_tables_are_cut_between_rows():
    rows = tuple((f"{row}", "x") for row in range(2 * LINES + 1))
    found = [part.table.rows for part in parts(table_of(rows, ("a", "b")))]
    assert [len(part) for part in found] == [LINES, LINES, 1]
    assert sum(found, ()) == rows


def test_columns_are_narrowed_before_a_table_is_cut():
    reason = "no noise law and no known rest for what this observer sees of it all"
    (part,) = parts(table_of(((reason, reason, reason),), ("a", "b", "c")))
    assert None not in part.widths
    assert sum(part.widths) < LETTERS


def test_an_interval_is_one_word_and_a_label_breaks_after_its_underscores():
    assert unbroken_words("0.6 [0.1, 0.9]") == ["0.6", "[0.1, 0.9]"]
    assert unbroken_words("noise_halved x") == ["noise_", "halved", "x"]
    assert unbroken_words("") == [""]


@given(
    st.lists(st.lists(st.text("ab_ [],", max_size=60), min_size=5, max_size=5), min_size=1, max_size=30),
    st.integers(1, 5),
)
def test_the_parts_hold_every_cell_once(cells, about):
    table = table_of(tuple(tuple(row) for row in cells), tuple("vwxyz"), about)
    found = parts(table)
    columns: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for part in found:
        columns.setdefault(part.table.headers[about:], []).extend(part.table.rows)
    assert [header for headers in columns for header in headers] == list("vwxyz"[about:])
    for place, row in enumerate(table.rows):
        assert [cell for rows in columns.values() for cell in rows[place][about:]] == list(row[about:])
        assert all(rows[place][:about] == row[:about] for rows in columns.values())
