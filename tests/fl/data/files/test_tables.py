"""A table of one's own, as text or Parquet: how columns become features, and what is refused with file, column, row."""

import sys

import numpy as np
import pytest
import torch
from fedassay.fl.data.files.lookup import DataFile
from fedassay.fl.data.files.readers import numbers_of, texts_of, without_index

HEADER = "age,job,label"
ROWS = [f"{20 + i},{'abc'[i % 3]},{['no', 'yes'][i % 2]}" for i in range(20)]
SPLIT = [f"{row},{'train' if i < 15 else 'test'}" for i, row in enumerate(ROWS)]


@pytest.fixture
def read(tmp_path):
    """(lines, options) -> the data set of a text file with these lines."""

    def load(*lines, name="own.csv", encoding="utf-8", **options):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding=encoding)
        return DataFile.of(name, options, str(tmp_path)).load()

    return load


def features(part):
    return part[:, 0, 0].numpy()


def both(loaded):
    return np.concatenate([features(loaded.train_images), features(loaded.test_images)])


def test_numbers_are_standardised_and_categories_become_indicators_by_the_training_rows(read):
    loaded = read(f"{HEADER},part", *SPLIT, split="part")
    ages = np.arange(20, 40.0)
    np.testing.assert_allclose(both(loaded)[:, 0], (ages - ages[:15].mean()) / ages[:15].std(), rtol=1e-5)
    np.testing.assert_array_equal(both(loaded)[:, 1:], np.eye(3)[np.arange(20) % 3])
    assert (loaded.class_names, loaded.classes, loaded.rows) == (("no", "yes"), 2, True)
    assert loaded.columns == (("age", 1), ("job", 3))
    assert loaded.train_labels.tolist() == (np.arange(15) % 2).tolist()
    changed = read(f"{HEADER},part", *SPLIT[:15], *["1000000,z,no,test"] * 5, split="part")
    assert torch.equal(changed.train_images, loaded.train_images)
    assert features(changed.test_images)[:, 1:].sum() == 0
    assert any("because no training row has them: 5" in note for note in changed.notes)


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
    with pytest.raises(ValueError, match=r"held.csv must have the columns of own.csv"):
        read(HEADER, *ROWS, test="held.csv")


def test_a_public_range_replaces_constants_of_the_training_rows(read):
    loaded = read(HEADER, *ROWS, ranges={"age": [0, 100]})
    assert sorted(both(loaded)[:, 0]) == pytest.approx([i / 100 for i in range(20, 40)])
    assert not any("standardised" in note for note in loaded.notes)
    with pytest.raises(ValueError, match=r"column age must lie in its range 0..30, .* in row 12"):
        read(HEADER, *ROWS, ranges={"age": [0, 30]})


def test_missing_values_are_refused_or_filled(read):
    lines = [HEADER, *ROWS[:18], ",,no", "NA,?,yes"]
    with pytest.raises(ValueError, match=r"own.csv: column age must have a value in every row, got none in row 19 \(2"):
        read(*lines)
    loaded = read(*lines, missing="fill", scale="none", test_share=0.1)
    known = features(loaded.train_images)[:, 0]
    assert np.isfinite(both(loaded)).all()
    # The mean of the known training ages, which filling by it does not change.
    assert float(known.mean()) in both(loaded)[:, 0]
    assert any("filled: 4" in note for note in loaded.notes)


def test_numbers_in_the_ordinary_notation_are_read_exactly(read):
    given = ["1", "-2.5", "1e3", "0.1", "+7", ".5"] * 5
    loaded = read("a,label", *(f"{text},{i % 2}" for i, text in enumerate(given)), scale="none")
    assert sorted(both(loaded)[:, 0]) == sorted(np.float32([float(text) for text in given]))


@pytest.mark.parametrize("cell", ["${}", "{}%", "2020-01-{}", "'{},5'", "0x{}", "1_{}", "1'{}00", "− {}"])
def test_other_notations_are_categories_or_where_they_are_many_refused_with_the_way_out(read, cell):
    few = read("a,label", *(f'"{cell.format(10 + i % 3)}",{i % 2}' for i in range(30)))
    assert few.shape == (1, 1, 3)
    with pytest.raises(ValueError, match=r"column a has 24 different texts in 24 .* package.module:function"):
        read("a,label", *(f'"{cell.format(10 + i)}",{i % 2}' for i in range(30)))


def test_decimal_commas_are_read_by_option_and_never_as_further_cells(read):
    lines = [f'"{i},5",{i % 2}' for i in range(9, 39)]
    assert sorted(both(read("h,label", *lines, decimal=",", scale="none"))[:, 0]) == [i + 0.5 for i in range(9, 39)]
    with pytest.raises(ValueError, match=r"column h must hold numbers in all rows.* in row 31 \(1 such"):
        read("h,label", *lines, '"1.000",1', decimal=",")
    with pytest.raises(ValueError, match=r"own.csv must have 2 cells in every line.* got 3 in line 2"):
        read("h,label", *(line.replace('"', "") for line in lines))


def test_a_column_of_names_is_refused_unless_it_is_listed(read):
    lines = [f"n{i},{i % 7},{i % 2}" for i in range(300)]
    with pytest.raises(ValueError, match="column id has 240 different texts"):
        read("id,a,label", *lines)
    assert read("id,a,label", *lines, drop=["id"]).shape == (1, 1, 1)
    assert read("id,a,label", *lines, categories=["id"]).shape == (1, 1, 241)
    # 100 levels of 400 rows, and 19 names in 19 training rows, may be categories.
    assert read("a,label", *(f"n{i % 100},{i // 200}" for i in range(400))).shape == (1, 1, 100)
    assert read("a,label", *(f"n{i},{i % 2}" for i in range(22))).rows


def test_numbers_can_be_categories_and_what_looks_alike_is_reported(read):
    assert read("a,label", *(f"{i % 4},{i % 2}" for i in range(40)), categories=["a"]).shape == (1, 1, 4)
    notes = read("a,c,label", *(f"{['x', 'X', i % 2, 'y'][i % 4]},5,{i % 2}" for i in range(40))).notes
    assert any("differ only by case or blanks: a (2 texts)" in note for note in notes)
    assert any("in which some texts are numbers: a (10 rows)" in note for note in notes)
    assert any("set to 0, because they are constant in the training rows: c" in note for note in notes)


def test_classes_are_named_by_their_labels_and_look_alikes_are_refused(read):
    loaded = read("a,label", *(f"{i},{[3, 10, 7][i % 3]}" for i in range(30)))
    assert loaded.class_names == ("3", "7", "10")
    assert any("labels 3, 7, 10 are the names of the classes 0 to 2" in note for note in loaded.notes)
    lines = [f"{i},{['yes', 'Yes', 'no'][i % 3]}" for i in range(30)]
    with pytest.raises(ValueError, match="only by case or blanks: 'Yes', 'yes'"):
        read("a,label", *lines)
    assert read("a,label", *lines, categories=["label"]).classes == 3


@pytest.mark.parametrize(
    ("cells", "kept"), [(["0", "1", "2"], 1), ([1, 2, 3], 1), ([None] * 3, 1), (["0", "2", "1"], 0)]
)
def test_a_column_without_a_name_is_left_out_if_it_numbers_the_rows_and_else_refused(cells, kept):
    import pandas

    for name in ("", "Unnamed: 0"):
        frame = pandas.DataFrame({"a": [7, 8, 9], name: cells})
        if kept:
            left, notes = without_index(frame, "own.csv", ())
            assert (list(left.columns), len(notes)) == (["a"], 1)
        else:
            with pytest.raises(ValueError, match=r"own.csv: column 2 of 2 has no name .*drop = \["):
                without_index(frame, "own.csv", ())
        assert list(without_index(frame, "own.csv", (name,))[0].columns) == ["a", name]


def test_other_separators_and_a_byte_order_mark_are_read(read):
    plain = read(HEADER, *ROWS)
    for name, mark, options in (("own.tsv", "\t", {}), ("own.csv", ";", {"separator": ";"})):
        loaded = read(*(line.replace(",", mark) for line in (HEADER, *ROWS)), name=name, **options)
        assert torch.equal(loaded.train_images, plain.train_images)
    with pytest.raises(ValueError, match=r"own.csv must have columns separated by ',', .*';' stands"):
        read(*(line.replace(",", ";") for line in (HEADER, *ROWS)))
    marked = read(HEADER, *(row.replace(",a,", ',"a",') for row in ROWS), encoding="utf-8-sig")
    assert torch.equal(marked.train_images, plain.train_images)


@pytest.mark.parametrize(
    ("lines", "options", "says"),
    [
        ([HEADER], {}, "at least one row below its header"),
        (["age,age,label", *ROWS], {}, "different names, got 'age' more than once"),
        ([HEADER, *ROWS], {"label": "labl"}, r"no column 'labl' \(label\); it has label"),
        ([HEADER, *ROWS, "secret,a,no"], {}, r"column age must hold numbers in all rows.* in row 21 \(1 such row\)"),
        ([HEADER, *ROWS, "inf,a,no"], {}, "column age must hold finite numbers, .* in row 21"),
        ([HEADER, *ROWS, "1,a"], {}, "3 cells in every line.* got 2 in line 22"),
        ([HEADER, *(f"{row},more" for row in ROWS)], {}, "3 cells in every line.* got 4 in line 2"),
        ([HEADER, *(row.replace("yes", "no") for row in ROWS)], {}, "at least two classes"),
        (["age,label", *(f"{i},{i / 7}" for i in range(20))], {}, "a number with a fraction .* in row 2"),
        (["age,label", *(f"{i},{i}" for i in range(20))], {}, "20 different values in 20 rows, too many"),
        (["age,label", *(f"{2**62 + i},{i % 2}" for i in range(20))], {}, "too large to tell apart in double"),
        (["age,label", *(f"{i}e300,{i % 2}" for i in range(20))], {}, "fit in single precision"),
        (["age,label", *(f"{2**24 + i},{i % 2}" for i in range(20))], {"scale": "none"}, "in single precision"),
        (["label", *("a", "b") * 10], {}, "a column that is neither the label nor the owner"),
        ([f"{HEADER},part", *(f"{row},train" for row in ROWS)], {"split": "part"}, "both train and test"),
        ([HEADER, *ROWS], {"drop": ["label"]}, "must not be in drop, owner or split, got 'label'"),
        ([HEADER, *ROWS], {"ranges": {"age": [3, 1]}}, r"option ranges: .* two finite numbers.*got \[3, 1\]"),
        ([HEADER, *ROWS], {"ranges": {"job": [0, 1]}}, "column job has a range but does not hold numbers"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place_and_without_a_value(read, lines, options, says):
    with pytest.raises(ValueError, match=says) as refused:
        read(*lines, **options)
    assert "own.csv" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_another_encoding_is_refused(tmp_path):
    (tmp_path / "own.csv").write_bytes(b"age,label\n1,\xff\n")
    with pytest.raises(ValueError, match=r"own.csv must be a table in UTF-8"):
        DataFile("own.csv", folder=str(tmp_path)).load()


def test_typed_columns_are_numbers_or_refused():
    import pandas

    flags = pandas.Series(pandas.array([True, None, False], dtype="boolean"))
    np.testing.assert_array_equal(numbers_of(flags, "column a"), [1, np.nan, 0])
    assert numbers_of(pandas.Series(["a", "b"]), "column a") is None
    np.testing.assert_array_equal(numbers_of(pandas.Series(["1e30", "2e30", None]), "a"), [1e30, 2e30, np.nan])
    lists = pandas.Series([[1, 2.5], None, [3, 4]])
    np.testing.assert_array_equal(numbers_of(lists, "column a"), [[1, 2.5], [np.nan, np.nan], [3, 4]])
    wrong = {"complex": [1j], "Timestamp": [pandas.Timestamp(0)], "equally many": [[1], [1, 2]], "of numbers": [["x"]]}
    wrong["tell apart"] = pandas.array([2**62, None, 2**62 + 1], dtype="Int64")
    for words, cells in wrong.items():
        with pytest.raises(ValueError, match=f"column a .*{words}"):
            numbers_of(pandas.Series(cells), "column a")


def test_a_huge_text_in_one_cell_is_refused_before_it_fills_the_memory(monkeypatch):
    import pandas

    cells = pandas.Series(["x"] * 500 + ["y" * 5000])
    assert texts_of(cells, "column a").shape == (501,)
    monkeypatch.setenv("FEDASSAY_DATA_LIMIT_GB", "0.005")
    with pytest.raises(ValueError, match="column a would need"):
        texts_of(cells, "column a")


def test_without_pyarrow_the_message_names_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "own.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"own.parquet .* package pyarrow.*fedassay\[parquet\]"):
        DataFile("own.parquet", folder=str(tmp_path)).load()


@pytest.fixture
def frame():
    pytest.importorskip("pyarrow")
    import pandas

    rows = range(40)
    whole = {"age": [20.5 + i for i in rows], "old": [i > 20 for i in rows], "job": ["abc"[i % 3] for i in rows]}
    return pandas.DataFrame(whole | {"label": [["no", "yes"][i % 2] for i in rows], "owner": [i // 4 for i in rows]})


def test_a_parquet_file_is_the_table_of_the_text_file_and_its_lists_are_features(frame, tmp_path):
    frame.to_parquet(tmp_path / "own.parquet")
    frame.assign(old=frame.old.astype(int), job=frame.job.astype("category")).to_csv(tmp_path / "own.csv", index=False)
    loaded, text = (DataFile(name, folder=str(tmp_path)).load() for name in ("own.parquet", "own.csv"))
    for name in ("train_images", "train_labels", "test_images", "test_labels", "train_owners"):
        assert torch.equal(getattr(loaded, name), getattr(text, name))
    frame.assign(v=[[i, i % 3, 7] for i in range(40)]).to_parquet(tmp_path / "lists.parquet")
    lists = DataFile.of("lists.parquet", {"scale": "none"}, str(tmp_path)).load()
    assert dict(lists.columns)["v"] == 3
    assert sorted(both(lists)[:, -3].tolist()) == list(range(40))


def test_an_index_of_pandas_is_read_where_it_has_a_name_and_a_damaged_file_is_refused(frame, tmp_path):
    frame.set_index("age").to_parquet(tmp_path / "own.parquet")
    assert DataFile("own.parquet", folder=str(tmp_path)).load().shape == (1, 1, 5)
    frame.sample(frac=1, random_state=0).to_parquet(tmp_path / "own.parquet")
    turned = DataFile("own.parquet", folder=str(tmp_path)).load()
    assert turned.shape == (1, 1, 5)
    assert any("has no name, was left out" in note for note in turned.notes)
    (tmp_path / "own.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match=r"own.parquet must be a Parquet file"):
        DataFile("own.parquet", folder=str(tmp_path)).load()
