"""Reads CIFAR-10 (Krizhevsky 2009), or a class-balanced part, from image files that each contain many images."""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .data_folder import DataFolder
from .dataset import Dataset

INDEX = "cifar10-subset/index.csv.gz"
# Pixels per side of a tile, and tiles in a row of a sheet.
_SIDE, _ACROSS = 32, 50


def cifar10(folder: DataFolder) -> Dataset:
    """Load the CIFAR-10 images that the folder's index file lists, in the order of that file.

    Index rows that name a missing sheet are left out.

    Raises:
        DatasetMissing: if there is no index, or no sheet of one split.
        ValueError: if a row or a sheet cannot be read; the message gives file and line.
    """
    text, index = folder.text(INDEX, of="cifar10"), f"{folder.root}/{INDEX}"
    sheets: dict[str, np.ndarray] = {}
    tiles: dict[str, list[np.ndarray]] = defaultdict(list)
    labels: dict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(csv.DictReader(text.splitlines()), start=2):
        path = f"{Path(INDEX).parent}/{row.get('file')}"
        if path not in sheets:
            sheets[path] = _sheet(folder, path) if folder.has(path) else np.empty(0)
        # Part of the sheets is enough: the data set is then smaller.
        if not len(sheets[path]):
            continue
        try:
            split, tile, label = row["split"], int(row["tile"]), int(row["label"])
            if split not in ("train", "test") or not 0 <= tile < len(sheets[path]):
                raise ValueError(f"tile must be in 0..{len(sheets[path]) - 1}, and split train or test")
        except (KeyError, ValueError, TypeError) as error:
            raise ValueError(
                f"{index} line {number} must name file, tile, split and label, got {row}: {error}"
            ) from error
        tiles[split].append(sheets[path][tile])
        labels[split].append(label)
    for split in ("train", "test"):
        if not tiles[split]:
            raise ValueError(f"{index} must list {split} images (tiles) of an existing image file, got none")
    train, test = ((_images(tiles[split]), torch.tensor(labels[split])) for split in ("train", "test"))
    return Dataset.of_parts("cifar10", train, test, classes=10)


def _sheet(folder: DataFolder, path: str) -> np.ndarray:
    """``(tiles, 32, 32, 3)`` bytes, row by row."""
    sheet = folder.image(path, "RGB", of="cifar10")
    if sheet.shape[0] % _SIDE or sheet.shape[1] != _SIDE * _ACROSS:
        raise ValueError(
            f"{folder.root}/{path} must be {_SIDE * _ACROSS} pixels wide ({_ACROSS} tiles) and a multiple of {_SIDE} "
            f"pixels high, got (height, width) = {sheet.shape[:2]}"
        )
    # Tiles are numbered row by row, from left to right.
    rows = sheet.reshape(-1, _SIDE, _ACROSS, _SIDE, 3).transpose(0, 2, 1, 3, 4)
    return rows.reshape(-1, _SIDE, _SIDE, 3)


def _images(tiles: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.stack(tiles).transpose(0, 3, 1, 2).astype(np.float32) / 255)
