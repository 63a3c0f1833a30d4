"""Sheets of tiles: which tile is which image, and the errors for sheets and rows that do not fit."""

import gzip
import os

import numpy as np
import pytest
from fedassay.fl.data.cifar import INDEX, cifar10
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.data.datasets import load_dataset
from PIL import Image

ROWS = ["a.webp,0,train,3,0", "a.webp,51,train,4,1", "absent.webp,0,train,5,0", "b.webp,2,test,9,0"]


def colour(sheet, tile):
    """RGB of a tile: of sheet number, row and column."""
    return (10 * sheet, tile // 50, tile % 50)


@pytest.fixture
def put(tmp_path):
    """(rows of the index) -> the folder, with two sheets of 100 and 50 tiles, each of one colour but for a white
    pixel in row 1, column 5.
    """
    root = tmp_path / "cifar10-subset"
    root.mkdir()
    for number, (name, rows) in enumerate([("a", 2), ("b", 1)], start=1):
        colours = np.array([colour(number, tile) for tile in range(50 * rows)], dtype=np.uint8).reshape(rows, 50, 3)
        sheet = colours.repeat(32, 0).repeat(32, 1)
        sheet[1::32, 5::32] = 255
        Image.fromarray(sheet).save(root / f"{name}.webp", lossless=True)

    def write(rows):
        text = "\n".join(["file,tile,split,label,rank", *rows]) + "\n"
        (tmp_path / INDEX).write_bytes(gzip.compress(text.encode()))
        return DataFolder(tmp_path)

    return write


def test_rows_of_the_index_are_tiles_and_rows_of_absent_sheets_are_left_out(put):
    loaded = cifar10(put(ROWS))
    assert loaded.shape == (3, 32, 32)
    assert loaded.train_labels.tolist() == [3, 4]
    assert loaded.test_labels.tolist() == [9]
    for image, wanted in zip(
        [*loaded.train_images, *loaded.test_images], [colour(1, 0), colour(1, 51), colour(2, 2)], strict=True
    ):
        assert (image[:, 1, 5] == 1).all()
        image = image.clone()
        image[:, 1, 5] = image[:, 0, 0]
        assert (image * 255).round().int().flatten(1).unique(dim=1).flatten().tolist() == list(wanted)
    assert loaded.train_masks is None


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("a.webp,100,train,0,0", r"line 6 .*tile must be in 0..99"),
        ("a.webp,-1,train,0,0", r"tile must be in 0..99"),
        ("a.webp,x,train,0,0", "line 6 must name file, tile, split and label"),
        ("a.webp,0,valid,0,0", "and split train or test"),
        ("a.webp,0", "line 6 must name"),
        ("a.webp,0,train,ten,0", "line 6 must name"),
        ("a.webp,0,train,10,0", r"train_labels must be in \[0, 10\), got 3 to 10"),
    ],
)
def test_a_broken_row_is_named_with_its_line(put, row, says):
    with pytest.raises(ValueError, match=says):
        cifar10(put([*ROWS, row]))


def test_without_a_sheet_of_a_split_there_is_nothing_to_load(put):
    with pytest.raises(ValueError, match=r"index.csv.gz must list test images \(tiles\) of an existing image file"):
        cifar10(put(ROWS[:3]))


def test_a_sheet_of_another_size_is_named(put, tmp_path):
    folder = put(ROWS)
    Image.new("RGB", (32, 64)).save(tmp_path / "cifar10-subset" / "b.webp")
    with pytest.raises(ValueError, match=r"b\.webp.*1600 pixels wide \(50 tiles\) .* got .* \(64, 32\)"):
        cifar10(folder)


@pytest.mark.simulations
@pytest.mark.skipif(
    not DataFolder.from_environment().has(INDEX),
    reason=f"{INDEX} is not in FEDASSAY_DATA ({os.environ.get('FEDASSAY_DATA')})",
)
def test_the_real_sheets_hold_ten_balanced_classes():
    loaded = load_dataset("cifar10")
    assert loaded.train_labels.bincount().tolist() == [1000] * 10
    assert loaded.test_labels.bincount().tolist() == [250] * 10
    assert loaded.digest == "99bd52fb6f763af860aa7f8f78dba78ef72853a1e3340a8cffbb848b110ec6ea"
