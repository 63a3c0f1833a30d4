"""Cells are read as numbers exactly, or refused with the row at fault."""

import numpy as np
import pandas
import pytest
from fedassay.fl.data.files.columns.numbers import numbers_of, texts_of, with_decimal_points

PLACE = "own.csv: column a"


@pytest.mark.parametrize(
    "cells",
    [
        [str(2**62 + i) for i in range(4)],
        [str(10**30), str(10**30 + 1)],
        [2**62, 2**62 + 1],
        pandas.array([2**62, None, 2**62 + 1], dtype="Int64"),
        np.array([2**63, 2**63 + 1], dtype=np.uint64),
    ],
)
def test_whole_numbers_that_are_one_float_are_refused(cells):
    with pytest.raises(
        ValueError, match=r"column a holds different whole numbers .* too large to tell apart.* row [23] "
    ):
        numbers_of(pandas.Series(cells), PLACE)


@pytest.mark.parametrize(
    "cells",
    [
        [str(2**62 + 1024 * i) for i in range(4)],
        ["1e30", "1E30", "2e30"],
        [str(2**62), str(2**62)],
        [2**53, 2**53 + 2],
        [0.1, 0.3],
    ],
)
def test_numbers_that_a_float_tells_apart_are_read(cells):
    np.testing.assert_array_equal(numbers_of(pandas.Series(cells), PLACE), np.array([float(one) for one in cells]))


def test_decimal_commas_become_points_and_points_are_refused():
    cells = pandas.Series(["0,5", "-12,25", "7", None, "1,5e3", "cook", "a,b"])
    assert with_decimal_points(cells, PLACE).tolist()[:3] == ["0.5", "-12.25", "7"]
    assert with_decimal_points(cells, PLACE).tolist()[4:] == ["1.5e3", "cook", "a,b"]
    for wrong in ("1.5", "1.000", "1.000,5", "1.000.000"):
        with pytest.raises(
            ValueError, match=r"column a must hold numbers with a decimal comma.*a point in row 2 \(1 such"
        ):
            with_decimal_points(pandas.Series(["0,5", wrong]), PLACE)
    dates = pandas.Series(["31.12.2020", "v1.2"])
    assert with_decimal_points(dates, PLACE).tolist() == dates.tolist()


def test_nullable_columns_of_parquet_files_are_read():
    flags = numbers_of(pandas.Series(pandas.array([True, None, False], dtype="boolean")), PLACE)
    np.testing.assert_array_equal(flags, [1, np.nan, 0])


def test_complex_numbers_are_refused_and_a_wrong_cell_is_described():
    with pytest.raises(ValueError, match="column a must hold real numbers, got complex ones"):
        numbers_of(pandas.Series([1j, 2.0]), PLACE)
    with pytest.raises(ValueError, match=r"a text in row 3 \(1 such row\): they hold percentages"):
        numbers_of(pandas.Series(["1", "2", "5%"]), PLACE)


def test_a_huge_text_in_one_cell_is_refused_before_it_fills_the_memory(monkeypatch):
    cells = pandas.Series(["x"] * 500 + ["y" * 5000])
    assert texts_of(cells, PLACE).shape == (501,)
    monkeypatch.setenv("FEDASSAY_DATA_LIMIT_GB", "0.005")
    with pytest.raises(ValueError, match=r"own.csv: column a would need 0.0 GB"):
        texts_of(cells, PLACE)
