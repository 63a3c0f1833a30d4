"""Rows of a census: which column becomes which feature, and the errors for rows that do not fit."""

import gzip
import os

import pytest
import torch
from fedassay.fl.data.adult import FEATURES, TEST, TRAIN, adult
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.data.datasets import load_dataset

# A made-up row.
ROW = "50, ?, 750000, Masters, 16, Widowed, ?, Wife, Other, Female, 0, 2500, 25, ?, >50K"
OTHER = "100, Private, 0, 10th, 1, Divorced, Sales, Husband, White, Male, 99999, 0, 0, Peru, <=50K"


@pytest.fixture
def put(tmp_path):
    def write(*train, test=(f"{OTHER}.",)):
        (tmp_path / "adult").mkdir(exist_ok=True)
        for path, lines in ((TRAIN, train), (TEST, ("|remark", *test))):
            (tmp_path / path).write_bytes(gzip.compress(("\n".join(lines) + "\n\n").encode(), mtime=0))
        return DataFolder(tmp_path)

    return write


def test_numbers_are_scaled_and_values_are_indicated_column_by_column(put):
    loaded = adult(put(ROW, OTHER))
    assert loaded.shape == (1, 1, FEATURES) == (1, 1, 108)
    assert loaded.classes == 2
    first = loaded.train_images[0].flatten()
    # age; 9 of workclass; fnlwgt; 16 of education; education-num; 7, 15, 6, 5, 2; three numbers; 42 countries.
    assert first[[0, 10, 27]].tolist() == [0.5, 0.5, 1.0]
    assert first[63:66].tolist() == [0.0, 0.5, 0.25]
    hot = [place for place in first.nonzero().flatten().tolist() if place not in (0, 10, 27, 63, 64, 65)]
    education = 11 + 12  # "Masters" is the thirteenth value by name.
    assert hot == [1, education, 28 + 6, 35, 50 + 5, 56 + 3, 61, 66]
    assert loaded.train_labels.tolist() == [1, 0]
    assert loaded.test_labels.tolist() == [0]
    assert loaded.train_masks is None
    assert loaded.columns[:4] == (("age", 1), ("workclass", 9), ("fnlwgt", 1), ("education", 16))
    assert sum(width for _, width in loaded.columns) == FEATURES


def test_every_row_has_eight_indicators(put):
    numbers = [0, 10, 27, 63, 64, 65]
    rows = adult(put(ROW, OTHER)).train_images.flatten(1)
    kept = torch.ones(FEATURES, dtype=torch.bool)
    kept[numbers] = False
    assert rows[:, kept].sum(1).tolist() == [8.0, 8.0]


def test_a_row_changes_no_other_rows_features(put):
    alone, together = adult(put(ROW)), adult(put(ROW, OTHER))
    assert torch.equal(alone.train_images[0], together.train_images[0])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (ROW.replace("50, ?", "101, ?"), r"adult\.data\.gz line 2: age must be a whole number in 0\.\.100"),
        (ROW.replace("750000", "-1"), "fnlwgt must be a whole number in"),
        (ROW.replace("2500", "x"), r"capital-loss must be a whole number in 0\.\.5000"),
        (ROW.replace("Masters", "Masterz"), "education must be one of its 16 documented values, got another value$"),
        (ROW.replace("Masters", "?"), "education must be one of its 16 documented values, got another value$"),
        (ROW.replace("?,", "??,"), r"workclass must be one of its 9 documented values or \? where it is missing"),
        (ROW.replace(">50K", "50K"), "target must be one of its 2 documented values"),
        (ROW.partition(",")[2], "a table row must have 15 cells, got 14"),
    ],
)
def test_a_row_that_does_not_fit_is_named_by_its_place_and_not_shown(put, wrong, says):
    with pytest.raises(ValueError, match=says) as caught:
        adult(put(OTHER, wrong))
    assert "line 2" in str(caught.value)
    assert not any(cell in str(caught.value) for cell in ("750000", "Masterz", "Widowed", "101"))


def test_a_file_without_rows_is_refused(put):
    with pytest.raises(ValueError, match="must hold at least one table row, got none"):
        adult(put())


@pytest.mark.simulations
@pytest.mark.skipif(
    not DataFolder.from_environment().has(TRAIN, TEST),
    reason=f"{TRAIN} and {TEST} are not in FEDASSAY_DATA ({os.environ.get('FEDASSAY_DATA')})",
)
def test_the_real_rows_are_all_there():
    loaded = load_dataset("adult")
    assert torch.bincount(loaded.train_labels).tolist() == [24_720, 7_841]
    assert torch.bincount(loaded.test_labels).tolist() == [12_435, 3_846]
    assert loaded.digest == "d7e70c0341c5d4a32a8432b8511cf816465da6c05837e489579db851bb790a50"
