"""The image data sets: digits from scikit-learn, MNIST and Fashion-MNIST from a folder, the cache or the network."""

import functools
import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..audit.nearest import nearest
from .streams import Streams

KNOWN_DATASETS = ("digits", "mnist", "fashion_mnist")
# The folder's name is the name of torchvision's class.
_FOLDERS = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}
_IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


class DatasetMissing(FileNotFoundError):
    """The data set is neither in FEDASSAY_DATA nor in the cache, and could not be downloaded."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Labelled images, split into training and test. Treat the tensors as constants: they are shared by all who load.

    images: (n, channel, height, width) float32 in [0, 1]; labels: (n,) int64 in [0, classes). `digest` is the SHA-256
    of the name and the four arrays, in hexadecimal. Raises ValueError when shapes, types or ranges are not these.
    """

    name: str
    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor
    classes: int
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        _check_part("train", self.train_images, self.train_labels, self.classes)
        _check_part("test", self.test_images, self.test_labels, self.classes)
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            shapes = f"{tuple(self.train_images.shape[1:])} and {tuple(self.test_images.shape[1:])}"
            raise ValueError(f"train and test images must have one shape, got {shapes}")
        object.__setattr__(self, "digest", _digest(self))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channel, height, width) of one image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width


def load_dataset(name: str) -> Dataset:
    """Load a data set by name; a second load in the same process returns the same object.

    - digits: 1,797 images 8x8 that scikit-learn brings (UCI, 13 writers, in the writers' order). A fixed shuffle, the
      same for every seed, makes 1,347 of them the training set and 450 the test set.
    - mnist, fashion_mnist: 60,000 and 10,000 images 28x28. Read from the cache folder (FEDASSAY_CACHE, else
      ~/.cache/fedassay), which is filled from `$FEDASSAY_DATA/MNIST/raw/*.gz` (or FashionMNIST) where these are, and by
      torchvision's download otherwise.

    Raises ValueError for an unknown name (the known are listed, nearest first) or a file with a wrong MD5 sum,
    DatasetMissing when there are no files and no network, OSError when the cache folder cannot be written.
    """
    _check_name(name)
    return _load(name)


def available(name: str) -> str:
    """Say where a data set would come from: bundled, found in FEDASSAY_DATA, in the cache, or would be downloaded.

    Only looks whether the files are there; raises ValueError for an unknown name.
    """
    _check_name(name)
    if name == "digits":
        return "bundled"
    if _found_gz(name):
        return "found in FEDASSAY_DATA"
    return "in the cache" if _is_complete(_cache_folder() / _FOLDERS[name]) else "would be downloaded"


@functools.cache
def _load(name: str) -> Dataset:
    return _load_digits() if name == "digits" else _load_mnist(name)


def _load_digits() -> Dataset:
    from sklearn.datasets import load_digits  # Lazy: half a second, and an experiment on MNIST does without.

    bunch = load_digits()
    images = torch.from_numpy((bunch.images / 16).astype(np.float32)).unsqueeze(1)
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    # Raw bits and a stable sort, not `permutation`, whose result may change with numpy's version.
    raw = Streams(0).generator("digits split").bit_generator.random_raw(len(labels))
    order = torch.from_numpy(np.argsort(raw, kind="stable"))
    train, test = order[:1347], order[1347:]
    return Dataset(
        name="digits",
        train_images=images[train],
        train_labels=labels[train],
        test_images=images[test],
        test_labels=labels[test],
        classes=10,
    )


def _load_mnist(name: str) -> Dataset:
    import torchvision  # Lazy: its import takes 2.6 s.

    source = getattr(torchvision.datasets, _FOLDERS[name])
    cache = _cache_folder()
    if not _is_complete(cache / _FOLDERS[name]):
        _fill_cache(name, source, cache)
    train, test = source(cache, train=True), source(cache, train=False)
    return Dataset(
        name=name,
        train_images=train.data.unsqueeze(1).float().div_(255),
        train_labels=train.targets,
        test_images=test.data.unsqueeze(1).float().div_(255),
        test_labels=test.targets,
        classes=10,
    )


def _fill_cache(name: str, source: Any, cache: Path) -> None:
    """Extract into a folder of our own, then rename it: another process sees all four files or none."""
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / _FOLDERS[name]
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{_FOLDERS[name]}-") as scratch:
        raw = Path(scratch) / _FOLDERS[name] / "raw"
        raw.mkdir(parents=True)
        for archive in _found_gz(name):
            # Copied: a link needs a privilege on Windows, and torchvision could write through it.
            shutil.copyfile(archive, raw / archive.name)
        _extract_or_download(name, source, Path(scratch))
        for archive in raw.glob("*.gz"):
            archive.unlink()
        try:
            raw.parent.rename(target)
        except OSError as error:
            if not _is_complete(target):
                raise OSError(f"{target} must be complete or absent, and could not be replaced: {error}") from error


def _extract_or_download(name: str, source: Any, root: Path) -> None:
    from torchvision.datasets.utils import check_integrity

    expected = dict(source.resources)
    for archive in _found_gz(name):
        if not check_integrity(root / _FOLDERS[name] / "raw" / archive.name, expected[archive.name]):
            raise ValueError(f"{archive} must have the MD5 sum {expected[archive.name]}; delete it or fetch it again")
    try:
        source(root, download=True)
    except (RuntimeError, OSError) as error:
        cause = str(error).splitlines()[-1]
        raise DatasetMissing(
            f"{name} is not on this machine and could not be downloaded ({cause}): set FEDASSAY_DATA "
            f"to a folder that holds {_FOLDERS[name]}/raw/{_IDX_FILES[0]}.gz and the three other archives, "
            f"or connect to a network (FEDASSAY_DATA is {os.environ.get('FEDASSAY_DATA') or 'not set'})"
        ) from error


def _found_gz(name: str) -> list[Path]:
    """The four archives in FEDASSAY_DATA, or an empty list when one is missing."""
    root = os.environ.get("FEDASSAY_DATA")
    if not root:
        return []
    archives = [Path(root) / _FOLDERS[name] / "raw" / f"{idx}.gz" for idx in _IDX_FILES]
    return archives if all(archive.is_file() for archive in archives) else []


def _is_complete(folder: Path) -> bool:
    return all((folder / "raw" / idx).is_file() for idx in _IDX_FILES)


def _cache_folder() -> Path:
    told = os.environ.get("FEDASSAY_CACHE")
    return Path(told) if told else Path.home() / ".cache" / "fedassay"


def _check_name(name: str) -> None:
    if name not in KNOWN_DATASETS:
        raise ValueError(f"data set must be {nearest(name, KNOWN_DATASETS)}, got {name!r}")


def _check_part(part: str, images: torch.Tensor, labels: torch.Tensor, classes: int) -> None:
    if images.ndim != 4 or images.dtype != torch.float32:
        raise ValueError(
            f"{part}_images must be (n, channel, height, width) float32, got {tuple(images.shape)} of {images.dtype}"
        )
    if labels.shape != images.shape[:1] or labels.dtype != torch.int64:
        raise ValueError(f"{part}_labels must be ({len(images)},) int64, got {tuple(labels.shape)} of {labels.dtype}")
    if len(images) == 0:
        raise ValueError(f"{part}_images must hold an image, got none")
    if not (images.min() >= 0 and images.max() <= 1):
        raise ValueError(f"{part}_images must be in [0, 1], got {float(images.min())} to {float(images.max())}")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"{part}_labels must be in [0, {classes}), got {int(labels.min())} to {int(labels.max())}")


def _digest(dataset: Dataset) -> str:
    digest = hashlib.sha256(dataset.name.encode())
    for array in (dataset.train_images, dataset.train_labels, dataset.test_images, dataset.test_labels):
        digest.update(f"{tuple(array.shape)}".encode())
        digest.update(array.contiguous().numpy().data)
    return digest.hexdigest()
