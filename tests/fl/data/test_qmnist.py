"""Writers of digits: read from a table that must fit the images."""

import gzip
import os
import struct

import numpy as np
import pytest
import torch
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.data.datasets import available, load_dataset
from fedassay.fl.data.qmnist import LABELS, qmnist

DIGITS = [5, 0, 4]


@pytest.fixture
def mnist():
    images = torch.arange(3 * 784).reshape(3, 1, 28, 28) / (3 * 784)
    labels = torch.tensor(DIGITS)
    return Dataset(
        name="mnist", train_images=images, train_labels=labels, test_images=images, test_labels=labels, classes=10
    )


def zipped(content):
    """Without a time: these bytes name tests, which must be the same in every process."""
    return gzip.compress(content, mtime=0)


def table(digits=DIGITS, columns=8):
    rows = np.arange(len(digits) * columns, dtype=">i4").reshape(len(digits), columns)
    rows[:, 0] = digits
    return struct.pack(">III", 0x0C02, *rows.shape) + rows.tobytes()


def put(root, content):
    path = root / LABELS
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return DataFolder(root)


def test_each_image_of_mnist_gets_its_writer(tmp_path, mnist):
    loaded = qmnist(mnist, put(tmp_path, zipped(table())))
    assert loaded.train_owners.tolist() == [2, 10, 18]
    assert torch.equal(loaded.train_images, mnist.train_images)
    assert loaded.train_masks is not None
    assert loaded.digest != mnist.digest


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (zipped(b"short"), "header of 12 bytes, got 5"),
        (zipped(table()[:-4]), r"writer in column 2, got magic 0xc02, 3 x 8 and 92 bytes"),
        (zipped(table(columns=2)), r"got magic 0xc02, 3 x 2 and 24 bytes"),
        (zipped(b"\1" * 108), "got magic 0x1010101"),
        (zipped(table([5, 0, 3])), "must hold the labels of MNIST's 3 training images in the same order"),
        (zipped(table([5, 0])), "must hold the labels of MNIST's 3 training images"),
    ],
)
def test_a_table_that_does_not_fit_is_named(tmp_path, mnist, content, says):
    with pytest.raises(ValueError, match=says) as caught:
        qmnist(mnist, put(tmp_path, content))
    assert "qmnist-train-labels-idx2-int.gz" in str(caught.value)


@pytest.mark.simulations
@pytest.mark.skipif(
    not DataFolder.from_environment().has(LABELS) or available("mnist") == "would be downloaded",
    reason=f"MNIST and {LABELS} are not in FEDASSAY_DATA ({os.environ.get('FEDASSAY_DATA')})",
)
def test_the_real_table_names_539_writers():
    loaded = load_dataset("qmnist")
    images = torch.unique(loaded.train_owners, return_counts=True)[1]
    assert (len(images), int(images.min()), int(images.max())) == (539, 19, 131)
    assert loaded.digest == "ee69193ca5c25653b65cf16a7fbcb0f2117205fd3426e27637a3764d30b027aa"
