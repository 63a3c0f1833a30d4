"""Labels that are no classes: numbers and several labels, read from tables and archives, and what is refused."""

import numpy as np
import pytest
import torch
from fedassay.fl.data.dataset import description
from fedassay.fl.data.files.lookup import DataFile

ROWS = 40
PRICES = 1000 + 3.5 * np.arange(ROWS)
TAGS = np.stack([np.arange(ROWS) % 2, np.arange(ROWS) % 4 == 0, np.arange(ROWS) < 0], axis=1).astype(int)
REGRESSION = {"label": "price", "task": "regression"}
MULTILABEL = {"labels": ["a", "b", "c"], "task": "multilabel"}


@pytest.fixture
def table(tmp_path):
    """(options, columns) -> the data set that a table with these columns, and a column ``age``, holds."""

    def load(options, columns=None):
        given = {"price": PRICES, "a": TAGS[:, 0], "b": TAGS[:, 1], "c": TAGS[:, 2]} if columns is None else columns
        held = {"age": 20 + np.arange(ROWS) * 7 % 40} | given
        lines = [",".join(held), *(",".join(map(str, row)) for row in zip(*held.values(), strict=True))]
        (tmp_path / "own.csv").write_text("\n".join(lines), encoding="utf-8")
        return DataFile.of("own.csv", options, str(tmp_path)).load()

    return load


@pytest.fixture
def archive(tmp_path):
    """(labels, options) -> the data set of an archive of rows with these labels."""

    def load(labels, **options):
        rows = np.random.default_rng(0).random((len(labels), 3))
        np.savez(tmp_path / "own.npz", x_train=rows, y_train=labels)
        return DataFile.of("own.npz", options, str(tmp_path)).load()

    return load


def in_own_unit(labels, data):
    return labels.double() * torch.tensor(data.label_scale, dtype=torch.float64)


def test_numbers_are_standardised_by_the_training_rows_and_keep_their_unit(table):
    data = table(REGRESSION | {"drop": ["a", "b", "c"]})
    assert (data.task, data.classes, data.class_names, data.shape) == ("regression", 1, ("price",), (1, 1, 1))
    train = data.train_labels.double()
    assert (data.train_labels.dtype, tuple(train.shape)) == (torch.float32, (32, 1))
    assert float(train.mean()) == pytest.approx(0, abs=1e-6)
    assert float(train.std(correction=0)) == pytest.approx(1, rel=1e-5)
    both = in_own_unit(torch.cat([data.train_labels, data.test_labels]), data).flatten().sort().values
    torch.testing.assert_close(both.diff(), torch.full((ROWS - 1,), 3.5, dtype=torch.float64), rtol=1e-3, atol=1e-3)
    assert any("depend on private rows" in note and "numbers to predict" in note for note in data.notes)


def test_a_public_range_scales_to_one_and_scale_none_keeps(table):
    ranged = table(REGRESSION | {"ranges": {"price": [1000, 1200]}, "drop": ["a", "b", "c"]})
    assert 0 <= float(ranged.train_labels.min()) <= float(ranged.train_labels.max()) <= 1
    assert ranged.label_scale == (200,)
    kept = table(REGRESSION | {"scale": "none"})
    assert sorted([*kept.train_labels.flatten().tolist(), *kept.test_labels.flatten().tolist()]) == PRICES.tolist()
    assert kept.label_scale == (1,)
    assert ranged.digest != kept.digest


def test_several_labels_are_booleans_and_one_that_never_holds_is_noted(table):
    data = table(MULTILABEL | {"drop": ["price"]})
    assert (data.task, data.classes, data.class_names) == ("multilabel", 3, ("a", "b", "c"))
    assert (data.train_labels.dtype, tuple(data.train_labels.shape)) == (torch.bool, (32, 3))
    assert int(data.train_labels.sum() + data.test_labels.sum()) == TAGS.sum()
    assert any("equal in all training rows, and cannot be learnt: c (none)" in note for note in data.notes)
    words = ["True", "False"] * (ROWS // 2)
    assert table(MULTILABEL, {"a": words, "b": TAGS[:, 1], "c": TAGS[:, 0]}).train_labels[:, 0].any()


def test_the_description_states_the_task_and_the_range_or_the_shares(table):
    facts = description(table(REGRESSION))
    assert facts["tasks"] == "table regression"
    assert facts["numbers to predict"].startswith("1 (price: -1.")
    assert "classes" not in facts
    facts = description(table(MULTILABEL))
    assert facts["tasks"] == "table classification with several labels"
    assert "c: 0.0%" in facts["labels"]


def test_an_archive_holds_one_or_several_numbers_and_several_labels(archive):
    one, two = archive(PRICES, task="regression"), archive(np.stack([PRICES, -PRICES], 1), task="regression")
    assert (one.classes, two.classes) == (1, 2)
    torch.testing.assert_close(two.train_labels[:, 0], -two.train_labels[:, 1])
    assert archive(np.arange(ROWS), task="regression").task == "regression"
    flags = archive(TAGS.astype(float), task="multilabel")
    assert flags.train_labels.dtype is torch.bool
    ranged = archive(PRICES, task="regression", label_range=[1000, 1200])
    assert ranged.label_scale == (200,)
    kept = archive(PRICES, task="regression", label_scale="none")
    assert float(kept.train_labels.min()) >= 1000


def test_huge_numbers_with_a_small_spread_are_scaled_in_double_precision(table):
    data = table(REGRESSION, {"price": 1e8 + np.arange(ROWS)})
    steps = in_own_unit(torch.cat([data.train_labels, data.test_labels]), data).flatten().sort().values.diff()
    torch.testing.assert_close(steps, torch.ones(ROWS - 1, dtype=torch.float64), rtol=1e-4, atol=1e-4)


HOLES = [*PRICES[:5], "", *PRICES[6:]]
WORDS = ["cheap", "dear"] * (ROWS // 2)


@pytest.mark.parametrize(
    ("options", "columns", "words"),
    [
        ({"label": "price"}, None, r'column price must hold classes .*: set task = "regression"'),
        (REGRESSION, {"price": HOLES}, "column price must have a value in every row, got none in row 6"),
        (REGRESSION, {"price": [7.5] * ROWS}, "column price must hold at least two different numbers"),
        (REGRESSION, {"price": [*PRICES[:-1], "inf"]}, "column price must hold finite numbers, .* in row 40"),
        (REGRESSION, {"price": [*PRICES[:-1], '"1,000"']}, "must hold numbers in all rows.* in row 40 .1 such row"),
        (REGRESSION | {"ranges": {"price": [0, 10]}}, None, r"column price must lie in its range 0..10.*40 such rows"),
        (REGRESSION, {"price": [*PRICES[:-1], 1e300]}, "fit in single precision"),
        (MULTILABEL | {"labels": ["a", "price"]}, None, "price must hold 0 or 1.* in row 1 "),
        (MULTILABEL, {"a": WORDS, "b": TAGS[:, 1], "c": TAGS[:, 2]}, "column a must hold 0 or 1"),
        (MULTILABEL | {"labels": ["a"]}, None, "needs labels, the names of at least two columns"),
        (MULTILABEL | {"label": "price"}, None, "only one of label and labels"),
        ({"labels": ["a", "b"]}, None, r'needs a task: set task = "multilabel" if .* "regression"'),
    ],
)
def test_a_table_that_does_not_fit_its_task_is_refused(table, options, columns, words):
    with pytest.raises(ValueError, match=words):
        table(options, columns)


@pytest.mark.parametrize(
    ("labels", "options", "words"),
    [
        (PRICES, {}, 'float64.* or task = "regression"'),
        (TAGS, {}, r'one class per sample, .* set task = "multilabel" '),
        (TAGS[:, 0], {"task": "multilabel"}, "is a single label"),
        (np.where(np.arange(ROWS) == 3, np.nan, PRICES), {"task": "regression"}, "got NaN or infinity in row 3"),
        (np.full(ROWS, 2.0), {"task": "regression"}, "at least two different numbers"),
        (PRICES, {"task": "regression", "classes": 3}, "classes can be set only for a classification"),
        (np.arange(ROWS) % 2, {"label_range": [0, 1]}, "label_range and label_scale need task = 'regression'"),
    ],
)
def test_an_archive_that_does_not_fit_its_task_is_refused(archive, labels, options, words):
    with pytest.raises(ValueError, match=words):
        archive(labels, **options)
