"""Turns data sets of PyTorch, torchvision and the library Hugging Face Datasets into data sets of this package."""

import inspect
import os
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from ....audit.wording import nearest
from ..dataset import Dataset
from .arrays import ArrayOptions, dataset_of_arrays
from .features import TableOptions, dataset_of_table
from .images import ImageOptions, pixels_of

PREFIX = "torchvision/"
# LSUN reads a pickle that no checksum protects (CIFAR's are verified before they are read); the others hold no data.
_REFUSED = ("LSUN", "LSUNClass", "FakeData", "DatasetFolder", "ImageFolder", "VisionDataset")
_SIGNS = ("dataset_dict.json", "state.json")
_TEST = ("test", "validation", "valid", "val")


class TorchvisionOptions(ImageOptions):
    """The options of a data set of torchvision: those of images, and ``root``.

    Args:
        root: the folder given to torchvision's class, relative to the suite file; by default the folder that
            ``FEDASSAY_DATA`` names.
    """

    root: str = ""


class HuggingFaceOptions(ImageOptions, TableOptions):
    """The options of a Hugging Face data set: those of images, or of a table without images."""


def from_torch(
    train: Any,
    test: Any = None,
    *,
    name: str,
    owners: Sequence[int | str] | None = None,
    class_names: Sequence[str] = (),
    options: ImageOptions | None = None,
) -> Dataset:
    """Read all samples of one or two PyTorch data sets once, and return them as a data set.

    Args:
        train, test: map-style data sets, ``len(data)`` and ``data[i] -> (image, label)``. An image is a Pillow image,
            or a tensor or array (height, width), (channel, height, width) or (height, width, channel), in [0, 1] or as
            whole numbers; a row of a table is (features,), whose numbers are kept. Labels are class numbers from 0 on.
            Data that change with each call, such as random augmentation, are read as they come the first time. Without
            ``test`` a part is split off.
        name: the data set's name in records.
        owners: (n,), the owner of each training sample.
        class_names: the name of each class.
        options: of images and of the split.

    Raises ValueError, with the number of the sample, for anything else.
    """
    options = options or ImageOptions()
    read = ArrayOptions(test_share=options.test_share, split_seed=options.split_seed)
    given = {"train": train} if test is None else {"train": train, "test": test}
    items = {part: _items(data, f"{name}: {part}") for part, data in given.items()}
    arrays: dict[str, Any] = {f"y_{part}": _labels(pairs, f"{name}: {part}") for part, pairs in items.items()}
    places = [f"{name}: {part}: sample {number}" for part, pairs in items.items() for number in range(len(pairs))]
    images, notes = [image for pairs in items.values() for image, _ in pairs], list[str]()
    if all(isinstance(image, Path | BytesIO) or hasattr(image, "convert") for image in images):
        pixels, read, notes = pixels_of(images, options, name, places)
    else:
        pixels = _stacked(images, places)
        # PyTorch puts channels first; only where they cannot be there is the last axis tried.
        if isinstance(images[0], Tensor) and images[0].ndim == 3 and len(images[0]) in (1, 3):
            read = read.model_copy(update={"channels": "first"})
    arrays["x_train"] = pixels[: len(items["train"])]
    if test is not None:
        arrays["x_test"] = pixels[len(items["train"]) :]
    if owners is not None:
        arrays["owner_train"] = np.asarray(owners)
    if len(class_names):
        read = read.model_copy(update={"classes": len(class_names)})
    facts: dict[str, Any] = {"class_names": tuple(class_names), "notes": tuple(notes)}
    return dataset_of_arrays(arrays, file=name, name=name, options=read, **facts)


def read_torchvision(name: str, folder: str, options: TorchvisionOptions) -> Dataset:
    """Read the data set ``torchvision/NAME``, of torchvision's class ``NAME``; nothing is downloaded.

    Images are classified by the labels that the class gives, which must be whole numbers. The training and the test
    part are those of the class's argument ``train`` or ``split``; without one a part is split off.

    Raises ValueError for an unknown class, files that are missing or damaged, and labels that are no class numbers.
    """
    import torchvision  # Imported late: 2.6 s.

    base, kinds = torchvision.datasets.VisionDataset, vars(torchvision.datasets).items()
    known = [one for one, kind in kinds if inspect.isclass(kind) and issubclass(kind, base) and one not in _REFUSED]
    word = name.removeprefix(PREFIX)
    if word not in known:
        raise ValueError(f"torchvision has no data set {word!r} that can be read; it has {nearest(word, known)}")
    root = Path(folder, options.root) if options.root else os.environ.get("FEDASSAY_DATA")
    if not root:
        raise ValueError(f"{name} needs a folder: set root, or the environment variable FEDASSAY_DATA")
    kind = getattr(torchvision.datasets, word)
    train, test = (_part(kind, str(root), part, name) for part in ("train", "test"))
    names = tuple(map(str, getattr(train, "classes", ()) or ()))
    return from_torch(train, test, name=name, class_names=names, options=options)


def is_saved_dataset(path: Path) -> bool:
    """Return whether ``save_to_disk`` of Hugging Face Datasets wrote this folder."""
    return any((path / sign).is_file() for sign in _SIGNS)


def read_hugging_face(path: Path, name: str, options: HuggingFaceOptions) -> Dataset:
    """Read a data set that ``save_to_disk`` wrote: one split, or the splits ``train`` and ``test`` (or ``validation``).

    With a column of images, these are the samples, and all other columns but label and owner are not used. Without one,
    every other column is a feature of a table (see ``dataset_of_table``).

    Raises ValueError where the package ``datasets`` is missing or the folder does not fit.
    """
    try:
        import datasets
    except ImportError:
        raise ValueError(
            f"{path} is a Hugging Face data set, which can be read only with the package datasets: install it, for "
            "example by pip install 'fedassay[hf]'"
        ) from None
    try:
        found = datasets.load_from_disk(str(path))
    except (FileNotFoundError, OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} cannot be read as a Hugging Face data set: {error}") from None
    parts = found if isinstance(found, dict) else {"train": found}
    if "train" not in parts:
        raise ValueError(f"{path} must have a split train, got {', '.join(parts)}")
    train, test = parts["train"], next((parts[word] for word in _TEST if word in parts), None)
    if options.label not in train.column_names and not options.labels:
        raise ValueError(f"{path} has no column {options.label!r} (label); it has {', '.join(train.column_names)}")
    pictures = [one for one, feature in train.features.items() if isinstance(feature, datasets.Image)]
    if options.test or options.separator:
        raise ValueError(f"{path}: test and separator are options of text files, and no option of a saved data set")
    if not pictures:
        table = options.model_copy(update={"test": "" if test is None else "the test split"})
        frames = [None if one is None else one.to_pandas() for one in (train, test)]
        return dataset_of_table(frames[0], frames[1], file=path.name, name=name, options=table)
    if len(pictures) > 1:
        raise ValueError(f"{path} must have one column of images, got {', '.join(pictures)}")
    if of_tables := options.model_fields_set - set(ImageOptions.model_fields) - {"label", "owner"}:
        raise ValueError(f"{path}: {min(of_tables)} is an option of tables, but column {pictures[0]} holds images")
    # Opened by this package, which does not open every format that Pillow knows.
    columns = (pictures[0], options.label, datasets.Image(decode=False))
    owner = options.owner or ("owner" if "owner" in train.column_names else "")
    return from_torch(
        _Pairs(train, *columns),
        None if test is None else _Pairs(test, *columns),
        name=name,
        owners=np.asarray(train[owner]).tolist() if owner else None,
        class_names=tuple(getattr(train.features[options.label], "names", ()) or ()),
        options=options,
    )


class _Pairs:
    """The rows of a split as pairs (image, label)."""

    def __init__(self, split: Any, image: str, label: str, unread: Any) -> None:
        self.split, self.image, self.label = split.cast_column(image, unread), image, label

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        row: Mapping[str, Any] = self.split[number]
        stored = row[self.image]
        return BytesIO(stored["bytes"]) if stored["bytes"] else Path(stored["path"]), row[self.label]


def _items(data: Any, place: str) -> list[tuple[Any, Any]]:
    try:
        items = [data[number] for number in range(len(data))]
    except TypeError as error:
        raise ValueError(f"{place} must be a map-style data set, with len(data) and data[i]: {error}") from None
    if not items:
        raise ValueError(f"{place} must hold at least one sample, got none")
    for number, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise ValueError(f"{place} must give pairs (image, label), got {type(item).__name__} for sample {number}")
    return [(image, label) for image, label in items]


def _labels(pairs: Sequence[tuple[Any, Any]], place: str) -> np.ndarray:
    found = []
    for number, (_, label) in enumerate(pairs):
        value = label.item() if isinstance(label, Tensor | np.generic) and np.ndim(label) == 0 else label
        if not isinstance(value, int):
            raise ValueError(f"{place}: the label of sample {number} must be a class number, got {label!r:.80}")
        found.append(int(value))
    return np.array(found)


def _stacked(images: Sequence[Any], places: Sequence[str]) -> np.ndarray:
    """Tensors or arrays of one shape as one array."""
    arrays = [image.numpy() if isinstance(image, Tensor) else image for image in images]
    for array, place in zip(arrays, places, strict=True):
        if not isinstance(array, np.ndarray) or array.ndim not in (1, 2, 3):
            raise ValueError(f"{place} must be an image of Pillow, a tensor or an array, got {type(array).__name__}")
        if array.shape != arrays[0].shape:
            raise ValueError(f"{place} must have the shape of the first sample, {arrays[0].shape}, got {array.shape}")
    return np.stack(arrays)


def _part(kind: Any, root: str, part: str, name: str) -> Any:
    """The training or the test part; None for the test part of a class that has no parts."""
    known, chosen = inspect.signature(kind.__init__).parameters, dict[str, Any]()
    if "train" in known:
        chosen["train"] = part == "train"
    elif "split" in known:
        chosen["split"] = part
    elif part == "test":
        return None
    if "download" in known:
        chosen["download"] = False
    try:
        return kind(root, **chosen)
    except (RuntimeError, OSError, ValueError, TypeError, ImportError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{name} ({part} part) cannot be read from {root}, and nothing is downloaded: {words[:300]}"
        ) from None
