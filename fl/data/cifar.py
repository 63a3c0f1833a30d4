"""Reads CIFAR-10 (Krizhevsky 2009), or a class-balanced part, from image files that each contain many images."""

import csv
import gzip
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
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
    index = folder.file(INDEX, of="cifar10")
    sheets: dict[str, np.ndarray] = {}
    tiles: dict[str, list[np.ndarray]] = defaultdict(list)
    labels: dict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(_rows(index), start=2):
        name = str(row.get("file"))
        path = f"{Path(INDEX).parent}/{name}"
        if name not in sheets:
            sheets[name] = _sheet(folder.file(path, of="cifar10")) if folder.has(path) else np.empty(0)
        # Part of the sheets is enough: the data set is then smaller.
        if not len(sheets[name]):
            continue
        try:
            split, label = _split(row["split"]), int(row["label"])
            tiles[split].append(sheets[name][_within(int(row["tile"]), len(sheets[name]))])
            labels[split].append(label)
        except (KeyError, ValueError, TypeError) as error:
            raise ValueError(
                f"{index} line {number} must name file, tile, split and label, got {row}: {error}"
            ) from error
    for split in ("train", "test"):
        if not tiles[split]:
            raise ValueError(f"{index} must list {split} images (tiles) of an existing image file, got none")
    return Dataset(
        name="cifar10",
        train_images=_images(tiles["train"]),
        train_labels=torch.tensor(labels["train"]),
        test_images=_images(tiles["test"]),
        test_labels=torch.tensor(labels["test"]),
        classes=10,
    )


def _rows(index: Path) -> list[dict[str, str]]:
    try:
        with gzip.open(index, "rt", newline="") as lines:
            return list(csv.DictReader(lines))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ValueError(f"{index} must be a gzip file of comma-separated text: {error}") from error


def _sheet(path: Path) -> np.ndarray:
    """``(tiles, 32, 32, 3)`` bytes, row by row."""
    try:
        sheet = np.asarray(Image.open(path).convert("RGB"))
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{path} must be an image: {error}") from error
    if sheet.shape[0] % _SIDE or sheet.shape[1] != _SIDE * _ACROSS:
        raise ValueError(
            f"{path} must be {_SIDE * _ACROSS} pixels wide ({_ACROSS} tiles) and a multiple of {_SIDE} pixels high, "
            f"got (height, width) = {sheet.shape[:2]}"
        )
    # Tiles are numbered row by row, from left to right.
    rows = sheet.reshape(-1, _SIDE, _ACROSS, _SIDE, 3).transpose(0, 2, 1, 3, 4)
    return rows.reshape(-1, _SIDE, _SIDE, 3)


def _split(name: str) -> str:
    if name not in ("train", "test"):
        raise ValueError(f"split must be train or test, got {name!r}")
    return name


def _within(tile: int, count: int) -> int:
    if not 0 <= tile < count:
        raise ValueError(f"tile must be in 0..{count - 1}, got {tile}")
    return tile


def _images(tiles: list[np.ndarray]) -> Tensor:
    return torch.from_numpy(np.stack(tiles).transpose(0, 3, 1, 2).astype(np.float32) / 255)
