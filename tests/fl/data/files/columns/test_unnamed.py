"""A column without a name is left out only if it numbers the rows or is empty, and this is reported."""

import pandas
import pytest
from fedassay.fl.data.files.columns.unnamed import without_index


def table(name, cells):
    return pandas.DataFrame({"a": range(10, 10 + len(cells)), name: cells})


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
@pytest.mark.parametrize(
    ("cells", "says"),
    [(["0", "1", "2"], "numbers the rows"), ([1, 2, 3], "numbers the rows"), ([None, None, None], "is empty")],
)
def test_an_index_and_an_empty_column_are_left_out_with_a_note(name, cells, says):
    kept, notes = without_index(table(name, cells), "own.csv", ())
    assert list(kept.columns) == ["a"]
    assert len(notes) == 1
    assert "Column 2" in notes[0]
    assert says in notes[0]


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
@pytest.mark.parametrize("cells", [["0", "2", "1"], [2, 3, 4], ["x", "y", "z"], ["0", None, "2"], [0.5, 1.5, 2.5]])
def test_other_columns_without_a_name_are_refused_unless_they_are_dropped(name, cells):
    with pytest.raises(ValueError, match=r"own.csv: column 2 of 2 has no name .*drop = \["):
        without_index(table(name, cells), "own.csv", ())
    kept, notes = without_index(table(name, cells), "own.csv", (name,))
    assert (list(kept.columns), notes) == (["a", name], [])


def test_the_index_of_a_pandas_table_is_left_out_whatever_it_holds():
    kept, notes = without_index(table("__index_level_0__", [7, 3, 9]), "own.parquet", ())
    assert list(kept.columns) == ["a"]
    assert "index of a pandas table" in notes[0]


def test_named_columns_are_kept_even_if_they_number_the_rows_or_are_empty():
    frame = pandas.DataFrame({"id": [0, 1], "gone": [None, None], "Unnamed 0": [0, 1]})
    kept, notes = without_index(frame, "own.csv", ())
    assert (list(kept.columns), notes) == (["id", "gone", "Unnamed 0"], [])
