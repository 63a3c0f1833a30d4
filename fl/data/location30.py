"""Loads Location-30: check-ins of people in 30 groups, widely used for membership inference (Shokri et al. 2017)."""

from pathlib import Path

import numpy as np
import torch

from .data_folder import DataFolder
from .dataset import Dataset, fixed_order
from .files.readers import arrays_of

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
    return Dataset.of_parts("location30", (images[train], labels[train]), (images[test], labels[test]), classes=CLASSES)


def _arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """``x``: (n, 56) bytes, 446 bits per row; ``y``: (n,) groups."""
    found, width = arrays_of(path, lambda name: name in ("x", "y")), -(-FEATURES // 8)
    bits, groups = found.get("x"), found.get("y")
    if bits is None or bits.dtype != np.uint8 or bits.ndim != 2 or bits.shape[1] != width or len(bits) < 5:
        got = "none" if bits is None else f"{bits.shape} of {bits.dtype}"
        raise ValueError(f"{path} must hold an array x of shape (n, {width}) and type uint8 with n >= 5, got {got}")
    if groups is None or groups.shape != bits.shape[:1] or not np.issubdtype(groups.dtype, np.integer):
        got = "none" if groups is None else f"shape {groups.shape} of {groups.dtype}"
        raise ValueError(f"{path} must hold an array y of {len(bits)} whole numbers, got {got}")
    if not 0 <= groups.min() <= groups.max() < CLASSES:
        raise ValueError(f"{path} must hold y in 0..{CLASSES - 1}, got {groups.min()} to {groups.max()}")
    return bits, groups
