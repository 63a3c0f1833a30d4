"""Texts that are no categories are refused with what they look like, and honest small categories are kept."""

import numpy as np
import pytest
from fedassay.fl.data.files.columns.notation import check_categories, notation_of, same_but_for_case

EXAMPLES = {
    "decimal comma": ["0,5", "12,25", "-1,5", "7", ",5", "1,5e3"],
    "thousands": ["1,000", "12,500", "999", "1 000", "1'000", "1.000.000,50"],
    "percent": ["5%", "12,5 %", "0.1%"],
    "money": ["$5", "12 €", "-£3.50"],
    "hexadecimal": ["0x1f", "0XA0"],
    "underscores": ["1_000", "2_5"],
    "dates": ["2020-01-31", "31.12.2020", "1/2/99", "2020-01-31T12:00:05Z", "3 May 2021", "12:30", "12:30:05.25 pm"],
    "minus": ["−5", "− 1.5", "- 2"],
    "another script": ["١٢", "٣", "５"],
}
CATEGORIES = ["cook", "18-25", "a,b", "A1", "2020-21", "yes", "> 50K", "1st", "v1.2.3-rc", "10K", "N=5", "x%", "#12"]


@pytest.mark.parametrize("kind", EXAMPLES)
def test_each_notation_is_named_with_its_first_row(kind):
    texts = np.array(["", "17", *EXAMPLES[kind]])
    notation, row = notation_of(texts)
    assert kind in notation.what
    first = next(place for place, text in enumerate(texts) if text not in ("", "17", "7", "999"))
    assert row == first
    train = np.ones(len(texts), dtype=bool)
    with pytest.raises(ValueError, match=rf"own.csv: column a holds .*first in row {row + 1}, .*list it in drop"):
        check_categories(texts, train, "own.csv: column a")


@pytest.mark.parametrize("text", CATEGORIES)
def test_categories_have_no_notation(text):
    assert notation_of(np.array([text, text, "other"])) is None


def test_a_notation_in_less_than_half_of_the_rows_makes_no_column_of_numbers():
    assert notation_of(np.array(["5%"] * 4 + ["low"] * 5)) is None
    assert notation_of(np.array(["5%"] * 6 + ["low"] * 5)) is not None
    # Codes next to plain numbers: one date among them makes no column of dates.
    assert notation_of(np.array(["1"] * 5 + ["A", "B", "C", "12:30"])) is None


def test_texts_of_nearly_every_row_name_the_record_but_not_in_a_few_rows():
    def check(texts, train=None):
        check_categories(np.array(texts), np.ones(len(texts), bool) if train is None else train, "own.csv: column a")

    with pytest.raises(ValueError, match="column a has 20 different texts in 20 training rows, so that it names"):
        check([f"n{i}" for i in range(20)])
    check([f"n{i}" for i in range(19)])
    check([f"n{min(i, 17)}" for i in range(20)])
    # Test rows do not count: the constants of a data set depend on the training rows alone.
    check([f"n{i % 3 if i < 20 else i}" for i in range(60)], np.arange(60) < 20)
    with pytest.raises(ValueError, match="column a has 101 different texts, more than 100"):
        check([f"n{i % 101}" for i in range(404)])
    check([f"n{i % 100}" for i in range(400)])


@pytest.mark.parametrize(("levels", "rows"), [(50, 20), (50, 100), (30, 30), (12, 20)])
def test_categories_of_many_levels_in_few_rows_are_seldom_taken_for_names(levels, rows):
    rng, refused = np.random.default_rng(0), 0
    for _ in range(200):
        try:
            check_categories(np.array([f"n{i}" for i in rng.integers(levels, size=rows)]), np.ones(rows, bool), "a")
        except ValueError:
            refused += 1
    # Computed exactly: 20 rows of 50 equally frequent levels have 19 or 20 different ones with probability 0.086, the
    # largest of these four cases; 17 of 200 are expected, and 30 are three standard deviations more.
    assert refused <= 30


def test_texts_that_differ_by_case_or_blanks():
    assert same_but_for_case(np.array(["yes", "Yes", "no", "no ", "maybe"])) == ["Yes", "no", "no ", "yes"]
    assert same_but_for_case(np.array(["yes", "yes", "no"])) == []
