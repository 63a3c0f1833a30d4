"""Reads from QMNIST which person wrote each MNIST digit; writers serve as users (Yadav and Bottou 2019)."""

import struct
from dataclasses import replace

import numpy as np
import torch

from .data_folder import DataFolder
from .dataset import Dataset

LABELS = "QMNIST/raw/qmnist-train-labels-idx2-int.gz"
# Column 0 holds the digit, column 2 the writer's number.
_WRITER = 2


def qmnist(mnist: Dataset, folder: DataFolder) -> Dataset:
    """Build the MNIST data set with the writer of each training image as its owner.

    MNIST's images and labels are those of QMNIST's training half.

    The test images are MNIST's too: the first 10,000 of QMNIST's 60,000.

    Raises:
        DatasetMissing: if the labels are not in ``folder``.
        ValueError: if they are damaged, or are not those of ``mnist``'s images, row by row.
    """
    table = _table(folder)
    digits = torch.from_numpy(table[:, 0].astype(np.int64))
    # Row by row, so that a file of another order cannot assign writers to the wrong images.
    if not torch.equal(digits, mnist.train_labels):
        raise ValueError(
            f"{folder.root}/{LABELS} must hold the labels of MNIST's {len(mnist.train_labels)} training images in the "
            "same order, but does not: fetch the file again"
        )
    owners = torch.from_numpy(table[:, _WRITER].astype(np.int64))
    # The masks follow from the strokes again.
    return replace(mnist, name="qmnist", strokes=True, train_masks=None, test_masks=None, train_owners=owners)


def _table(folder: DataFolder) -> np.ndarray:
    """``(n, columns)`` of an idx file of two dimensions and big-endian integers."""
    content = folder.unzipped(LABELS, of="qmnist")
    if len(content) < 12:
        raise ValueError(f"{folder.root}/{LABELS} must have a header of 12 bytes, got {len(content)}")
    magic, rows, columns = struct.unpack(">III", content[:12])
    if magic != 0x0C02 or columns <= _WRITER or len(content) != 12 + 4 * rows * columns:
        raise ValueError(
            f"{folder.root}/{LABELS} must be a table of 4-byte integers with the writer in column {_WRITER}, got magic "
            f"{magic:#x}, {rows} x {columns} and {len(content) - 12} bytes"
        )
    return np.frombuffer(content, dtype=">i4", offset=12).reshape(rows, columns)
