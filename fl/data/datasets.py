"""Loads data sets by name: from scikit-learn, FEDASSAY_DATA, the cache or a download, or drawn with a fixed seed."""

import functools
import gzip
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...audit.parts import Spec, build, find_outside, name_and_options, version_of
from . import adult, cifar, location30, public_features, qmnist, receipts, shakespeare, sroie
from .data_folder import DataFolder, cache_folder, checksum
from .dataset import Dataset, DatasetMissing, fixed_order
from .files.lookup import DataFile, dataset_from, names_a_file

_DRAWN = {"synthetic_receipts": sroie.drawn, "synthetic_receipts_tampered": sroie.drawn_tampered}
# A folder has the name of torchvision's class.
_FOLDERS = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}
_SUMS = {
    "mnist": {
        "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
    "fashion_mnist": {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
}
"""The SHA-256 sums of the archives; torchvision itself knows only MD5 sums, which another file may have on purpose."""
_IDX_FILES = [name.removesuffix(".gz") for name in _SUMS["mnist"]]
_FOUND, _CACHED, _MISSING = "found in FEDASSAY_DATA", "in the cache", "would be downloaded"
_SOURCES = (_MISSING, _CACHED, _FOUND)


def _load_qmnist(folder: DataFolder) -> Dataset:
    return qmnist.qmnist(load_dataset("mnist"), folder)


_FOLDER_ONLY: dict[str, tuple[Callable[[DataFolder], Dataset], str]] = {
    "qmnist": (_load_qmnist, qmnist.LABELS),
    "cifar10": (cifar.cifar10, cifar.INDEX),
    "sroie": (sroie.sroie, receipts.ANNOTATIONS),
    "sroie_tampered": (sroie.sroie_tampered, receipts.ANNOTATIONS),
    "adult": (adult.adult, adult.TRAIN),
    "location30": (location30.location30, location30.FILE),
    "shakespeare": (shakespeare.shakespeare, shakespeare.FILE),
    "shakespeare_secrets": (shakespeare.shakespeare_secrets, shakespeare.FILE),
}
"""The loader of each data set without another source than FEDASSAY_DATA, and the file whose presence shows that it is
there."""
_FROM_IMAGES = {"fashion_features": ("fashion_mnist", "mnist"), "mnist_features": ("mnist", "fashion_mnist")}
"""The private and the public images of each data set of public features."""
KNOWN_DATASETS = ("digits", *_FOLDERS, *_FROM_IMAGES, *_FOLDER_ONLY, *_DRAWN)


def load_dataset(spec: Spec | DataFile) -> Dataset:
    """Load a data set given by its name, by the path ``package.module:Name`` of a function, by a table with options, or
    by a file's path (see ``files.lookup``).

    What the name of a data set from outside means must be a `Dataset` or a function that returns one.

    A second call in the same process returns the same object.

    - digits: 1,797 images 8x8 bundled with scikit-learn (UCI, 13 writers, in the writers' order). A fixed shuffle, the
      same for every seed, makes 1,347 of them the training set and 450 the test set.
    - mnist, fashion_mnist: 60,000 and 10,000 images 28x28. Read from the cache folder (FEDASSAY_CACHE, else
      ~/.cache/fedassay), which is filled from `$FEDASSAY_DATA/MNIST/raw/*.gz` (or FashionMNIST) where these exist, and
      by torchvision's download otherwise.
    - fashion_features: Fashion-MNIST as rows 1x1x32 by a fixed map of edges, whose components are MNIST's: no private
      image changes the map (see ``public_features``). mnist_features: MNIST by components of Fashion-MNIST.
    - qmnist: MNIST with the 539 writers of its training images as their owners, from
      `$FEDASSAY_DATA/QMNIST/raw/qmnist-train-labels-idx2-int.gz`.
    - cifar10: a class-balanced part of CIFAR-10, 10,000 and 2,500 images 3x32x32 where all sheets exist, from
      `$FEDASSAY_DATA/cifar10-subset`: not comparable with results on all 60,000.
    - sroie: grey crops 1x64x128 around phone numbers, dates and totals of scanned receipts, labelled by the three;
      their boxes are the sensitive regions, receipts the owners. From `$FEDASSAY_DATA/sroie`. sroie_tampered: the same
      crops, half of them tampered with, labelled by that; the targets of a segmentation mark where.
    - synthetic_receipts, synthetic_receipts_tampered: the same of 150 receipts drawn here from a fixed seed.
    - adult: 32,561 and 16,281 rows of a census as images 1x1x108, labelled by income, from `$FEDASSAY_DATA/adult`.
    - location30: 4,008 and 1,002 rows of 446 check-ins as images 1x1x446, of 30 groups, from
      `$FEDASSAY_DATA/location30`; a fixed shuffle makes the test set. For the rows of adult and location30, models
      logistic and mlp are available, and attacks that reconstruct images are refused.
    - shakespeare: windows 1x1x32 of the characters of speeches, labelled by the next character at each place, with
      speakers as their owners, from `$FEDASSAY_DATA/shakespeare`; for model text_transformer. shakespeare_secrets: 50
      windows of each of 40 speakers, ten of them with a secret of the speaker, for attack secret_exposure.
    Raises ValueError for an unknown name (the known ones are listed, nearest first), a part from outside that raises or
    is no data set, or a file with a wrong SHA-256 sum, DatasetMissing if there are neither files nor a network, OSError
    if the cache folder cannot be written.
    """
    if isinstance(spec, DataFile):
        return spec.load()
    name, options = name_and_options("dataset", spec)
    if name in KNOWN_DATASETS:
        if options:
            raise ValueError(f"data set {name} has no option {min(options)!r}; it has: none")
        return _load(name)
    if names_a_file(name):
        return DataFile.of(name, options).load()
    version = version_of(find_outside("dataset", name, KNOWN_DATASETS), name)
    # Text as the key, because no cache can hash a table.
    return _load_outside(name, json.dumps(options, sort_keys=True, default=str), version)


def available(name: str) -> str:
    """Return where a data set would be loaded from, such as "bundled", or that it is not available.

    That is: bundled, drawn here, found in FEDASSAY_DATA, in the cache, would be downloaded, or not here.

    Only checks whether the files exist; raises ValueError for an unknown name.
    """
    if name not in KNOWN_DATASETS:
        find_outside("dataset", name, KNOWN_DATASETS)
        return "from outside"
    if name == "digits":
        return "bundled"
    if name in _DRAWN:
        return "drawn here"
    if name in _FROM_IMAGES:
        return min(map(available, _FROM_IMAGES[name]), key=_SOURCES.index)
    if name in _FOLDER_ONLY:
        found = DataFolder.from_environment().has(_FOLDER_ONLY[name][1])
        return _FOUND if found else "not here: FEDASSAY_DATA must name its folder"
    if _found_gz(name):
        return _FOUND
    return _CACHED if _is_complete(cache_folder() / _FOLDERS[name]) else _MISSING


@functools.cache
def _load_outside(name: str, options: str, version: str) -> Dataset:
    return dataset_from(build("dataset", {"part": name, **json.loads(options)}, {}), name)


@functools.cache
def _load(name: str) -> Dataset:
    if name == "digits":
        return _load_digits()
    if name in _DRAWN:
        return _DRAWN[name]()
    if name in _FROM_IMAGES:
        private, public = map(load_dataset, _FROM_IMAGES[name])
        return public_features.public_features(private, public)
    folder = DataFolder.from_environment()
    folder.check()
    return _FOLDER_ONLY[name][0](folder) if name in _FOLDER_ONLY else _load_mnist(name)


def _load_digits() -> Dataset:
    # The file of scikit-learn, whose import takes half a second in every process.
    origin = getattr(find_spec("sklearn"), "origin", "")
    with gzip.open(Path(origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        rows = np.loadtxt(file, delimiter=",")
    images = torch.from_numpy((rows[:, :-1].reshape(-1, 8, 8) / 16).astype(np.float32)).unsqueeze(1)
    labels = torch.from_numpy(rows[:, -1].astype(np.int64))
    # The images are stored by writer: without a shuffle the test set would have other writers.
    order = fixed_order("digits split", len(labels))
    train, test = order[:1347], order[1347:]
    parts = ((images[part], labels[part]) for part in (train, test))
    return Dataset.of_parts("digits", *parts, classes=10, strokes=True)


def _load_mnist(name: str) -> Dataset:
    import torchvision  # Imported late: 2.6 s.

    source = getattr(torchvision.datasets, _FOLDERS[name])
    cache = cache_folder()
    if not _is_complete(cache / _FOLDERS[name]):
        _fill_cache(name, source, cache)
    held = (source(cache, train=True), source(cache, train=False))
    parts = ((part.data.unsqueeze(1).float().div_(255), part.targets) for part in held)
    return Dataset.of_parts(name, *parts, classes=10, strokes=True)


def _fill_cache(name: str, source: Any, cache: Path) -> None:
    """Extract into a temporary folder, then rename it, so that another process sees all four files or none."""
    cache.mkdir(parents=True, exist_ok=True)
    target = cache / _FOLDERS[name]
    with tempfile.TemporaryDirectory(dir=cache, prefix=f".{_FOLDERS[name]}-") as scratch:
        raw = Path(scratch) / _FOLDERS[name] / "raw"
        raw.mkdir(parents=True)
        for archive in _found_gz(name):
            # Copied: a link needs a privilege on Windows, and torchvision could overwrite its target.
            shutil.copyfile(archive, raw / archive.name)
        _extract_or_download(name, source, Path(scratch))
        for archive in raw.glob("*.gz"):
            archive.unlink()
        try:
            raw.parent.rename(target)
        except OSError as error:
            # Another process may have filled the cache meanwhile, which is as good.
            if not _is_complete(target):
                raise OSError(f"the data folder {target} is incomplete and could not be replaced: {error}") from error


def _extract_or_download(name: str, source: Any, root: Path) -> None:
    raw, found = root / _FOLDERS[name] / "raw", _found_gz(name)
    for archive in found:
        if checksum(raw / archive.name) != (wanted := _SUMS[name][archive.name]):
            raise ValueError(
                f"{archive} must have the SHA-256 sum {wanted}, but has another: delete it or fetch it again"
            )
    try:
        if not found:
            print(f"{name} is not on this machine: it is downloaded to {cache_folder()}", file=sys.stderr, flush=True)
            for archive_name, digest in _SUMS[name].items():
                _download(archive_name, digest, source.mirrors, raw)
        source(root, download=True)  # All archives are there: it only extracts them.
    except (RuntimeError, OSError) as error:
        cause = str(error).splitlines()[-1]
        raise DatasetMissing(
            f"{name} is not on this machine and could not be downloaded ({cause}): set FEDASSAY_DATA "
            f"to a folder that holds {_FOLDERS[name]}/raw/{_IDX_FILES[0]}.gz and the three other archives, "
            f"or connect to a network (FEDASSAY_DATA is {os.environ.get('FEDASSAY_DATA') or 'not set'})"
        ) from error


def _download(archive: str, digest: str, mirrors: Sequence[str], raw: Path) -> None:
    """Download an archive from the first mirror that has it with this SHA-256 sum."""
    for mirror in mirrors:
        try:
            torch.hub.download_url_to_file(f"{mirror}{archive}", str(raw / archive), digest, progress=False)
        except (RuntimeError, OSError):
            if mirror == mirrors[-1]:
                raise
        else:
            return


def _found_gz(name: str) -> list[Path]:
    """The four archives in FEDASSAY_DATA, or an empty list when one is missing."""
    folder, paths = DataFolder.from_environment(), [f"{_FOLDERS[name]}/raw/{idx}.gz" for idx in _IDX_FILES]
    return [folder.root / path for path in paths] if folder.root and folder.has(*paths) else []


def _is_complete(folder: Path) -> bool:
    return all((folder / "raw" / idx).is_file() for idx in _IDX_FILES)
