"""A table of one's own as a text file: how columns become features, and what is refused."""

import numpy as np
import pytest
import torch
from fedassay.fl.data.files.lookup import DataFile

HEADER = "age,job,label"
ROWS = [f"{20 + i},{'abc'[i % 3]},{['no', 'yes'][i % 2]}" for i in range(20)]


@pytest.fixture
def read(tmp_path):
    """(lines, options) -> the data set of a text file with these lines."""

    def load(*lines, name="own.csv", encoding="utf-8", **options):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding=encoding)
        return DataFile.of(name, options, str(tmp_path)).load()

    return load


def features(part):
    return part[:, 0, 0].numpy()


def test_numbers_are_standardised_and_categories_become_indicators(read):
    parts = ["train"] * 15 + ["test"] * 5
    loaded = read(f"{HEADER},part", *(f"{row},{part}" for row, part in zip(ROWS, parts, strict=True)), split="part")
    ages = np.arange(20, 40.0)
    wanted = (ages - ages[:15].mean()) / ages[:15].std()
    rows = np.concatenate([features(loaded.train_images), features(loaded.test_images)])
    np.testing.assert_allclose(rows[:, 0], wanted, rtol=1e-5)
    np.testing.assert_array_equal(rows[:, 1:], np.eye(3)[np.arange(20) % 3])
    assert (loaded.class_names, loaded.classes, loaded.rows) == (("no", "yes"), 2, True)
    assert [width for _, width in loaded.columns] == [1, 3]
    assert loaded.train_labels.tolist() == (np.arange(15) % 2).tolist()


def test_no_constant_depends_on_test_rows(read):
    extreme = [*ROWS[:15], *(f"{10**6},z,no" for _ in range(5))]
    parts = ["train"] * 15 + ["test"] * 5
    lines = [[f"{row},{part}" for row, part in zip(rows, parts, strict=True)] for rows in (ROWS, extreme)]
    plain, changed = (read(f"{HEADER},part", *rows, split="part") for rows in lines)
    assert torch.equal(plain.train_images, changed.train_images)
    assert features(changed.test_images)[:, 1:].sum() == 0
    assert any("5 values of test rows occur in no training row" in note for note in changed.notes)


def test_without_a_split_all_rows_of_an_owner_stay_together(read):
    loaded = read(f"{HEADER},owner", *(f"{row},u{i // 2}" for i, row in enumerate(ROWS)), scale="none")
    train, test = (features(part)[:, 0] for part in (loaded.train_images, loaded.test_images))
    assert not {int(age) // 2 for age in train} & {int(age) // 2 for age in test}
    assert len(loaded.train_owners.unique()) == 8
    assert sorted([*train, *test]) == list(range(20, 40))


def test_a_test_file_of_its_own_is_read(read, tmp_path):
    (tmp_path / "held.csv").write_text(f"{HEADER}\n50,a,yes\n60,b,no\n")
    loaded = read(HEADER, *ROWS, test="held.csv", scale="none")
    assert (len(loaded.train_labels), loaded.test_labels.tolist()) == (20, [1, 0])
    assert features(loaded.test_images)[:, 0].tolist() == [50, 60]
    (tmp_path / "held.csv").write_text("age,label\n50,yes\n")
    with pytest.raises(ValueError, match=r"held.csv must have the columns of own.csv, in the same order"):
        read(HEADER, *ROWS, test="held.csv")


def test_a_public_range_replaces_constants_of_the_training_rows(read):
    loaded = read(HEADER, *ROWS, ranges={"age": [0, 100]})
    assert sorted([*features(loaded.train_images)[:, 0], *features(loaded.test_images)[:, 0]]) == pytest.approx(
        [i / 100 for i in range(20, 40)]
    )
    assert not any("standardised" in note for note in loaded.notes)
    with pytest.raises(ValueError, match=r"column age must lie in its range 0..30, got another number in row 12"):
        read(HEADER, *ROWS, ranges={"age": [0, 30]})


def test_missing_values_are_refused_or_filled(read):
    lines = [HEADER, *ROWS[:18], ",,no", "NA,?,yes"]
    with pytest.raises(ValueError, match=r"own.csv: column age must have a value in every row, got none in row 19 \(2"):
        read(*lines)
    loaded = read(*lines, missing="fill", scale="none", test_share=0.1)
    ages = np.concatenate([features(loaded.train_images)[:, 0], features(loaded.test_images)[:, 0]])
    known = features(loaded.train_images)[:, 0]
    assert np.isfinite(ages).all()
    assert any("4 missing values were filled" in note for note in loaded.notes)
    # The mean of the known training ages, which filling by it does not change.
    gone = [age for age in known if age != round(float(age))]
    assert gone == pytest.approx([np.mean([age for age in known if age == round(float(age))])] * len(gone))


def test_columns_can_be_dropped_or_named_categories(read):
    lines = ["id,zip,label", *(f"person {i},{i % 4},{i % 2}" for i in range(150))]
    with pytest.raises(
        ValueError, match=r"own.csv: column id has 120 different texts in 120 training rows.*list it in drop"
    ):
        read(*lines)
    loaded = read(*lines, drop=["id"], categories=["zip"])
    assert loaded.shape == (1, 1, 4)
    assert set(features(loaded.train_images).sum(1)) == {1}


def test_the_label_is_a_column_of_choice_and_numbers_keep_their_order(read):
    loaded = read("a,kind", *(f"{i},{(i % 3) * 5 + 5}" for i in range(30)), label="kind")
    assert loaded.class_names == ("5", "10", "15")


def test_a_constant_column_becomes_zero_and_is_reported(read):
    loaded = read("a,b,label", *(f"0.1,{i},{i % 2}" for i in range(30)))
    assert not features(loaded.train_images)[:, 0].any()
    assert any("constant in the training rows became 0: a" in note for note in loaded.notes)


def test_small_numbers_and_large_neighbours_are_not_constant(read):
    loaded = read("a,b,label", *(f"{i}e-15,{10**15 + i},{i % 2}" for i in range(30)))
    np.testing.assert_allclose(features(loaded.train_images).std(0), [1, 1], rtol=1e-3)
    assert not any("became 0:" in note for note in loaded.notes)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("cell", "options", "says"),
    [
        (
            "-1e308",
            {},
            r"column a must hold numbers of size 1e\+150 at most, got a larger one in row 2 \(15 such rows\)",
        ),
        ("1e39", {"scale": "none"}, r"column a must hold numbers of size 3e\+38 at most, got a larger one in row 2"),
        ("16777217", {"scale": "none"}, "whole numbers that are one number in single precision, as in row 2: let"),
        ("1e308", {"ranges": {"a": [-1e308, 1e308]}}, "ranges.a must be two finite numbers"),
    ],
)
def test_numbers_too_large_for_the_features_are_refused_with_their_row(read, cell, options, says):
    with pytest.raises(ValueError, match=says):
        read("a,label", *(f"{cell if i % 2 else 16777216},{i % 2}" for i in range(30)), **options)


@pytest.mark.filterwarnings("error")
def test_a_test_row_far_from_all_training_rows_is_refused(read):
    rows = [*(f"{i}e-9,{i % 2},train" for i in range(9)), "1e149,0,test"]
    with pytest.raises(ValueError, match=r"column a must hold test rows of the size.*row 10"):
        read("a,label,part", *rows, split="part")


def test_numbers_with_a_decimal_comma_are_refused_until_decimal_is_set(read):
    lines = [f"{i},{i % 10};{['no', 'yes'][i % 2]}" for i in range(40)]
    with pytest.raises(ValueError, match=r"own.csv: column h holds numbers with a decimal comma.*set decimal = \",\""):
        read("h;label", *lines, separator=";")
    loaded = read("h;label", *lines, separator=";", decimal=",", scale="none")
    found = sorted([*features(loaded.train_images)[:, 0], *features(loaded.test_images)[:, 0]])
    assert found == pytest.approx([i + i % 10 / 10 for i in range(40)])


def test_texts_listed_in_categories_are_categories_whatever_they_look_like(read):
    lines = [f"{i % 3}%,n{i},{i % 2}" for i in range(40)]
    assert read("a,b,label", *lines, categories=["a", "b"]).shape == (1, 1, 3 + 32)


def test_classes_that_differ_by_case_or_blanks_are_refused_unless_they_are_meant(read):
    lines = [f"{i},{['yes', 'Yes', 'no', chr(34) + 'no ' + chr(34)][i % 4]}" for i in range(40)]
    with pytest.raises(
        ValueError, match=r"column label has classes that differ only by case or blanks: 'Yes', 'no', 'no "
    ):
        read("a,label", *lines)
    assert read("a,label", *lines, categories=["label"]).classes == 4


def test_categories_that_differ_by_case_are_reported(read):
    loaded = read("a,label", *(f"{['x', 'X', 'y'][i % 3]},{i % 2}" for i in range(30)))
    assert any("differ only by case or blanks: a (2 texts)" in note for note in loaded.notes)


def test_the_index_that_pandas_writes_is_left_out_and_reported(read):
    lines = [f"{i},{i % 7},{i % 2}" for i in range(30)]
    loaded = read(",a,label", *lines)
    assert loaded.shape == (1, 1, 1)
    assert any("Column 1" in note and "numbers the rows" in note for note in loaded.notes)
    with pytest.raises(ValueError, match=r"own.csv: column 2 of 3 has no name"):
        read("a,,label", *lines)
    assert read("a,,label", *lines, drop=[""]).shape == (1, 1, 1)


@pytest.mark.parametrize(
    ("name", "separator", "options"), [("own.tsv", "\t", {}), ("own.csv", ";", {"separator": ";"})]
)
def test_other_separators(read, name, separator, options):
    lines = [line.replace(",", separator) for line in (HEADER, *ROWS)]
    assert read(*lines, name=name, **options).digest != ""
    if name == "own.csv":
        with pytest.raises(ValueError, match=r"own.csv must have columns separated by ',', got a first line with only"):
            read(*lines)


def test_quoted_cells_and_a_mark_of_byte_order_are_read(read):
    plain = read(HEADER, *ROWS)
    marked = read(HEADER, *(row.replace(",a,", ',"a",') for row in ROWS), encoding="utf-8-sig")
    assert torch.equal(plain.train_images, marked.train_images)


@pytest.mark.parametrize(
    ("lines", "options", "says"),
    [
        ([HEADER], {}, "own.csv must have at least one row below its header, got none"),
        ([""], {}, "own.csv must have the names of its columns in the first line"),
        (["age,age,label", *ROWS], {}, "columns of different names, got age more than once"),
        ([HEADER, *ROWS], {"label": "labl"}, r"own.csv has no column 'labl' \(label\); it has label"),
        ([HEADER, *ROWS], {"drop": ["jobs"]}, r"has no column 'jobs' \(drop\); it has job"),
        ([HEADER, *ROWS], {"owner": "user"}, r"has no column 'user' \(owner\)"),
        (
            [HEADER, *ROWS, "old,a,no"],
            {},
            r"column age must hold numbers in all rows.* a text in row 21 \(1 such row\)",
        ),
        ([HEADER, *ROWS, "inf,a,no"], {}, "column age must hold finite numbers, got an infinite one in row 21"),
        ([HEADER, *ROWS, "1,a"], {}, "column label must have a value in every row, got none in row 21"),
        ([HEADER, *ROWS, "1,a,no,more"], {}, "own.csv must have 3 cells in every line: Expected 3 fields in line 22"),
        ([HEADER, *(f"{row},more" for row in ROWS)], {}, "own.csv must have 3 cells in every line, as in its first"),
        ([HEADER, *(row.replace("yes", "no") for row in ROWS)], {}, "column label must hold at least two classes"),
        (
            ["age,label", *(f"{i},{i / 7}" for i in range(20))],
            {},
            "got a number with a fraction or an infinite one in row 2",
        ),
        (
            ["age,label", *(f"{i},{i}" for i in range(20))],
            {},
            "column label has 20 different values in 20 rows, too many",
        ),
        (["label", *("a", "b") * 10], {}, "must have a column that is neither the label nor the owner"),
        (
            [f"{HEADER},part", *(f"{row},train" for row in ROWS)],
            {"split": "part"},
            "both train and test, got only train",
        ),
        ([f"{HEADER},part", *(f"{row},dev" for row in ROWS)], {"split": "part"}, "column part must hold train or test"),
        ([HEADER, *ROWS], {"drop": ["label"]}, "a column of labels must not be in drop, owner or split, got 'label'"),
        ([HEADER, *ROWS], {"decimal": ";"}, "decimal must be"),
        ([HEADER, *ROWS], {"scale": "min"}, "scale must be .*, got 'min'"),
        ([HEADER, *ROWS], {"missing": "drop"}, "missing must be"),
        ([HEADER, *ROWS], {"ranges": {"age": [3, 1]}}, r"ranges.age must be two finite numbers.*got \[3, 1\]"),
        ([HEADER, *ROWS], {"ranges": {"job": [0, 1]}}, "column job has a range but does not hold numbers"),
        ([HEADER, *ROWS], {"split": "a", "test": "b"}, "only one of split"),
        ([HEADER, *ROWS], {"separator": ", "}, "separator must be one character"),
        (
            [HEADER, *ROWS],
            {"labels": "a"},
            "labels must be a list of columns, got .*: a single column is given by label",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(read, lines, options, says):
    with pytest.raises(ValueError, match=says) as refused:
        read(*lines, **options)
    assert "\n" not in str(refused.value)


def test_no_message_shows_a_value_of_a_record(read):
    with pytest.raises(ValueError, match="column age must hold numbers") as refused:
        read(HEADER, *ROWS, "secret 17,a,no")
    assert "secret" not in str(refused.value)


def test_another_encoding_is_refused_with_the_place_of_the_byte(tmp_path):
    (tmp_path / "own.csv").write_bytes(b"age,label\n1,\xff\n")
    with pytest.raises(ValueError, match=r"own.csv must be text in UTF-8, got another byte at position"):
        DataFile("own.csv", folder=str(tmp_path)).load()


def test_categories_among_which_are_numbers_are_reported(read):
    loaded = read("a,label", *(f"{['x', 'y', i % 2][i % 3]},{i % 2}" for i in range(30)))
    assert any("in which some texts are numbers: a (10 rows)" in note for note in loaded.notes)
