"""Loads Location-30: check-ins of people in 30 groups, widely used for membership inference (Shokri et al. 2017)."""

from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from .data_folder import DataFolder
from .dataset import Dataset, fixed_order

FILE = "location30/location30.npz"
FEATURES, CLASSES = 446, 30


def location30(folder: DataFolder) -> Dataset:
    """Load the Location-30 data set: 5,010 people with 446 binary check-in features, labelled by group.

    Each row is an image 1x1x446.

    There is no official split: a fixed shuffle, the same for every seed, makes a fifth of the rows (1,002) the test set
    and the other 4,008 the training set.

    Raises:
        DatasetMissing: if the file is not in ``folder``.
        ValueError: if it does not hold these arrays.
    """
    path = folder.file(FILE, of="location30")
    bits, groups = _arrays(path)
    images = torch.from_numpy(np.unpackbits(bits, axis=1)[:, :FEATURES].astype(np.float32)).reshape(-1, 1, 1, FEATURES)
    labels = torch.from_numpy(groups.astype(np.int64))
    order = fixed_order("location30 split", len(labels))
    test, train = order[: len(labels) // 5], order[len(labels) // 5 :]
    return Dataset(
        name="location30",
        train_images=images[train],
        train_labels=labels[train],
        test_images=images[test],
        test_labels=labels[test],
        classes=CLASSES,
    )


def _arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """``x``: (n, 56) bytes, 446 bits per row; ``y``: (n,) groups."""
    try:
        # Without pickle: a data file must not be able to run code.
        with np.load(path, allow_pickle=False) as stored:
            bits, groups = stored["x"], stored["y"]
    except (OSError, EOFError, BadZipFile, KeyError, ValueError) as error:
        raise ValueError(f"{path} must be an npz file of plain arrays x and y: {error}") from error
    wanted = -(-FEATURES // 8)
    if bits.dtype != np.uint8 or bits.ndim != 2 or bits.shape[1] != wanted or len(bits) < 5:
        raise ValueError(
            f"{path} must hold an array x of shape (n, {wanted}) and type uint8 with n >= 5, "
            f"got {bits.shape} of {bits.dtype}"
        )
    if groups.shape != bits.shape[:1] or not np.issubdtype(groups.dtype, np.integer):
        raise ValueError(
            f"{path} must hold an array y of {len(bits)} whole numbers, got shape {groups.shape} of {groups.dtype}"
        )
    if not 0 <= groups.min() <= groups.max() < CLASSES:
        raise ValueError(f"{path} must hold y in 0..{CLASSES - 1}, got {groups.min()} to {groups.max()}")
    return bits, groups
