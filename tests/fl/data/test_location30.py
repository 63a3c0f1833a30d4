"""Check-ins: bits become features, and a fixed fifth of the rows becomes the test set."""

import os

import numpy as np
import pytest
import torch
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.data.location30 import FEATURES, FILE, location30

ROWS = 11


@pytest.fixture
def put(tmp_path):
    def write(**arrays):
        (tmp_path / FILE).parent.mkdir(exist_ok=True)
        np.savez(tmp_path / FILE, **arrays)
        return DataFolder(tmp_path)

    return write


def tiny():
    features = np.random.default_rng(0).integers(2, size=(ROWS, FEATURES), dtype=np.uint8)
    return features, np.arange(ROWS, dtype=np.uint8)


def test_bits_are_features_and_a_fifth_is_held_out(put):
    features, groups = tiny()
    loaded = location30(put(x=np.packbits(features, axis=1), y=groups))
    assert (len(loaded.train_labels), len(loaded.test_labels), loaded.classes) == (9, 2, 30)
    assert loaded.shape == (1, 1, 446)
    images = torch.cat([loaded.train_images, loaded.test_images])
    labels = torch.cat([loaded.train_labels, loaded.test_labels])
    assert sorted(labels.tolist()) == list(range(ROWS))
    assert torch.equal(images.flatten(1), torch.from_numpy(features)[labels].float())


def test_the_split_is_the_same_every_time_and_no_prefix(put):
    features, groups = tiny()
    folder = put(x=np.packbits(features, axis=1), y=groups)
    held_out = location30(folder).test_labels.tolist()
    assert held_out == location30(folder).test_labels.tolist()
    assert held_out != [0, 1]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"x": np.zeros((9, 55), dtype=np.uint8)}, r"x of shape \(n, 56\) and type uint8 with n >= 5, got \(9, 55\)"),
        ({"x": np.zeros((9, 56))}, "got .* of float64"),
        ({"x": np.zeros((4, 56), dtype=np.uint8)}, "n >= 5"),
        ({"y": np.zeros(3, dtype=np.uint8)}, r"y of 11 whole numbers, got shape \(3,\)"),
        ({"y": np.zeros(ROWS)}, "whole numbers, got .* of float64"),
        ({"y": np.full(ROWS, 30)}, r"y in 0\.\.29, got 30 to 30"),
        ({"y": np.array([None] * ROWS)}, "array y holds Python objects"),
        ({"x": None}, "an array x of shape .* got none"),
        ({"y": None}, "an array y of 11 whole numbers, got none"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(put, changes, says):
    features, groups = tiny()
    arrays = {"x": np.packbits(features, axis=1), "y": groups} | changes
    with pytest.raises(ValueError, match=says):
        location30(put(**{name: array for name, array in arrays.items() if array is not None}))


@pytest.mark.skipif(
    not DataFolder.from_environment().has(FILE),
    reason=f"{FILE} is not in FEDASSAY_DATA ({os.environ.get('FEDASSAY_DATA')})",
)
def test_the_real_rows_are_all_there():
    loaded = load_dataset("location30")
    assert (len(loaded.train_labels), len(loaded.test_labels)) == (4008, 1002)
    assert set(loaded.train_images.unique().tolist()) == {0.0, 1.0}
    assert loaded.digest == "9cc2043f832cf813c050497ac28f266acbb8fdfb6900602f6ec8f4b468c5028c"
