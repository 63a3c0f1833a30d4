"""Reads a data set from a numpy archive (.npz), without pickle."""

import zipfile
import zlib
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ....audit.wording import nearest
from ...fields import check_count
from ...objective import MULTILABEL, REGRESSION
from ..dataset import Dataset
from .labels import class_numbers
from .limit import check_size
from .options import SplitOptions, check_choice, check_names, check_range
from .pixels import CHANNELS, RANGES, arranged, kept, scaled
from .samples import Samples, dataset_of
from .targets import LabelRule, check_numbers, check_task, flags, is_classification

ARRAYS = (
    "x_train",
    "y_train",
    "x_test",
    "y_test",
    "owner_train",
    "mask_train",
    "mask_test",
    "target_train",
    "target_test",
)


@dataclass(frozen=True, kw_only=True)
class NpzOptions(SplitOptions):
    """The options of a numpy archive.

    Args:
        pixels: range of the pixels: "0..1", "0..255", or "auto" (see ``pixels.scaled``).
        channels: axis of the channels: "first", "last", or "auto" (see ``pixels.arranged``).
        classes: number of classes, >= 2, where some have no sample.
        ignore: names of further arrays of the archive, which are not read.
        task: "classification", as by default, "regression" or "multilabel".
        label_range: public range of the numbers of a regression, two numbers, which is scaled to [0, 1].
        label_scale: "standardise": numbers of a regression without a range get mean 0 and standard deviation 1 over the
            training samples; "none": they are kept.
    """

    pixels: str = "auto"
    channels: str = "auto"
    classes: int | None = None
    ignore: tuple[str, ...] = ()
    task: str = ""
    label_range: tuple[float, ...] = ()
    label_scale: str = "standardise"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("pixels", self.pixels, RANGES)
        check_choice("channels", self.channels, CHANNELS)
        check_names("ignore", self.ignore)
        if self.classes is not None:
            check_count("classes", self.classes, least=2)
            if not is_classification(self.task):
                raise ValueError(f"classes can be set only for a classification, got task {self.task!r}")
        check_task(self.task)
        check_choice("label_scale", self.label_scale, ("standardise", "none"))
        if self.label_range != ():
            check_range("label_range", self.label_range)
        if self.task != REGRESSION and (self.label_range or self.label_scale == "none"):
            raise ValueError(f"label_range and label_scale need task = {REGRESSION!r}, got task {self.task!r}")


def read_npz(path: Path, name: str, options: NpzOptions) -> Dataset:
    """Read a data set from a numpy archive.

    - ``x_train``: images (n, height, width), (n, channel, height, width) or (n, height, width, channel), or rows (n,
      features), which are kept as they are; ``y_train``: (n,), class numbers from 0 on, or names of classes. For task
      "regression" (n,) or (n, k) numbers; for task "multilabel" (n, k) zeros and ones.
    - ``x_test``, ``y_test``: the test part; without them a part is split off (``SplitOptions``).
    - ``owner_train``: (n,), the owner of each training sample, a number or a text.
    - ``mask_train``, ``mask_test``: (n, height, width), true where a pixel is privacy-sensitive.
    - ``target_train``, ``target_test``: (n, height, width), true for the pixels that a segmentation model has to find;
      ``y_train`` may then be missing, and is whether an image has such a pixel.

    Raises ValueError, with file, array and row, for anything else.
    """
    arrays, file = _arrays(path, options), path.name
    _check_lengths(arrays, file)
    parts = [part for part in ("train", "test") if f"x_{part}" in arrays]
    images = {f"x_{part}": arranged(arrays[f"x_{part}"], f"{file}: x_{part}", options.channels) for part in parts}
    shapes = [one.shape[1:] for one in images.values()]
    if len(set(shapes)) > 1:
        raise ValueError(f"{file}: x_train and x_test must hold samples of one shape, got {shapes[0]} and {shapes[1]}")
    rows = arrays["x_train"].ndim == 2
    inputs, note = kept(images, file=file) if rows else scaled(images, file=file, pixels=options.pixels)
    marks = {name: _booleans(arrays, name, file) for name in arrays if name.startswith(("mask", "target"))}
    rule: LabelRule | None = None
    if "y_train" not in arrays and not is_classification(options.task):
        raise ValueError(
            f"{file} must hold an array y_train for task {options.task!r}, got {nearest('y_train', arrays)}"
        )
    if not is_classification(options.task):
        if "target_train" in marks:
            raise ValueError(f"{file}: task {options.task!r} and an array target_train cannot be given together")
        labels, classes, names, rule = _targets({f"y_{part}": arrays[f"y_{part}"] for part in parts}, file, options)
    elif "target_train" in marks and "y_train" not in arrays:
        labels = [np.asarray(marks[f"target_{part}"].any((1, 2)), dtype=np.int64) for part in parts]
        classes, names = 2, tuple[str, ...]()
    else:
        given = {f"y_{part}": arrays[f"y_{part}"] for part in parts}
        labels, classes, names = class_numbers(given, file=file, classes=options.classes)
    owners = owner_numbers(arrays["owner_train"], f"{file}: owner_train") if "owner_train" in arrays else None
    samples = [
        Samples(
            images=inputs[place],
            labels=labels[place],
            owners=owners if part == "train" else None,
            masks=marks.get(f"mask_{part}"),
            targets=marks.get(f"target_{part}"),
        )
        for place, part in enumerate(parts)
    ]
    return dataset_of(
        samples[0],
        samples[1] if len(samples) > 1 else None,
        name=name,
        file=file,
        options=options,
        classes=classes,
        class_names=names,
        rows=rows,
        notes=(note,),
        rule=rule,
    )


def write_npz(dataset: Dataset, path: Path) -> None:
    """Write a data set as a numpy archive that ``read_npz`` reads back with the same arrays.

    The names of classes are not written. Numbers of a regression are written as they are held, so that they are read
    back with ``task = "regression"`` and ``label_scale = "none"``, and errors are reported in their scaled unit.
    """
    arrays: dict[str, Any] = {}
    for part in ("train", "test"):
        images = getattr(dataset, f"{part}_images").numpy()
        arrays[f"x_{part}"] = images[:, 0, 0] if dataset.rows else images
        arrays[f"y_{part}"] = getattr(dataset, f"{part}_labels").numpy()
        for ours in ("mask", "target"):
            if (values := getattr(dataset, f"{part}_{ours}s")) is not None:
                arrays[f"{ours}_{part}"] = values.numpy()
    if dataset.train_owners is not None:
        arrays["owner_train"] = dataset.train_owners.numpy()
    np.savez(path, **arrays)


def owner_numbers(owners: np.ndarray, place: str) -> np.ndarray:
    """Return owners ``(n,)``, whole numbers or texts, as the numbers 0, 1, ... in their sorted order."""
    if owners.ndim != 1 or owners.dtype.kind not in "iuUS":
        raise ValueError(
            f"{place} must hold one owner per sample, (n,) whole numbers or texts, got shape {owners.shape} of "
            f"{owners.dtype}"
        )
    return np.unique(owners, return_inverse=True)[1].astype(np.int64)


def _targets(
    given: dict[str, np.ndarray], file: str, options: NpzOptions
) -> tuple[list[np.ndarray], int, tuple[str, ...], LabelRule | None]:
    """The labels of each part ``(n, k)`` that are no classes, their number, no names, and how they are scaled."""
    found = []
    for name, labels in given.items():
        place = f"{file}: {name}"
        if labels.dtype.kind not in "iufb" or labels.ndim not in (1, 2) or 0 in labels.shape:
            raise ValueError(
                f"{place} must hold numbers of shape (n,) or (n, k) for task {options.task!r}, got shape "
                f"{labels.shape} of {labels.dtype}"
            )
        found.append(labels.reshape(len(labels), -1))
    count = found[0].shape[1]
    if len({labels.shape[1] for labels in found}) > 1:
        raise ValueError(f"{file}: {' and '.join(given)} must hold equally many labels per sample")
    places = {name: [f"{file}: {name}, column {column}" for column in range(count)] for name in given}
    if options.task == MULTILABEL:
        return [flags(labels, places[name]) for labels, name in zip(found, given, strict=True)], count, (), None
    numbers = [check_numbers(labels, places[name]) for labels, name in zip(found, given, strict=True)]
    ranges = dict.fromkeys(range(count), options.label_range) if options.label_range else {}
    standardise = options.label_scale == "standardise"
    return numbers, count, (), LabelRule(places=places[next(iter(given))], ranges=ranges, standardise=standardise)


def _arrays(path: Path, options: NpzOptions) -> dict[str, np.ndarray]:
    try:
        found = _headers(path)
        _check_names(path.name, found, options)
        check_size(path.name, sum(prod(shape) for shape, _ in found.values()))
        for name, (_, dtype) in found.items():
            if dtype.hasobject:
                raise ValueError(
                    f"{path.name}: array {name} holds Python objects, which are never read, because reading them could "
                    "run code: save it as numbers or texts"
                )
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in found if name in ARRAYS}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{path.name} must be a numpy archive as numpy.savez writes it: {error}") from None


def _headers(path: Path) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and type of each array, without its numbers: a file of a few bytes may claim to hold billions of them."""
    found = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            with archive.open(member) as content:
                try:
                    version = np.lib.format.read_magic(content)
                    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else _newer_header
                    shape, _, dtype = read(content)
                except ValueError as error:
                    raise ValueError(f"{path.name}: {member} is not an array as numpy saves it: {error}") from None
                found[member.removesuffix(".npy")] = (shape, dtype)
    return found


def _newer_header(content: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    return np.lib.format.read_array_header_2_0(content)


def _check_names(file: str, found: dict[str, Any], options: NpzOptions) -> None:
    # Not silently skipped: a misspelt owner_train would make a data set without owners.
    for name in found:
        if name not in ARRAYS and name not in options.ignore:
            raise ValueError(
                f"{file}: array {name!r} is unknown; known arrays: {nearest(name, ARRAYS)}. List it in ignore if it is "
                "not needed"
            )
    for name, instead in (("x_train", ""), ("y_train", "target_train")):
        if name not in found and instead not in found:
            raise ValueError(f"{file} must hold an array {name}, got {nearest(name, found)}")
    for name in found:
        kind, _, part = name.partition("_")
        partner = "y_test" if name == "x_test" and "y_train" in found else f"x_{part}"
        if name in ARRAYS and partner not in found:
            raise ValueError(f"{file}: array {name} needs an array {partner}, which is missing")
        other = f"{kind}_{'test' if part == 'train' else 'train'}"
        if kind in ("mask", "target") and "x_test" in found and other not in found:
            raise ValueError(f"{file}: array {name} needs an array {other}, which is missing")


def _check_lengths(arrays: dict[str, np.ndarray], file: str) -> None:
    for name, array in arrays.items():
        whole = f"x_{name.rpartition('_')[2]}"
        lengths = [len(one) if one.ndim else 0 for one in (array, arrays[whole])]
        if lengths[0] != lengths[1]:
            raise ValueError(
                f"{file}: {name} and {whole} must have equal lengths, got {lengths[0]} and {lengths[1]} rows"
            )


def _booleans(arrays: dict[str, np.ndarray], name: str, file: str) -> np.ndarray:
    values = arrays[name]
    if values.ndim != 3 or values.dtype.kind not in "biu" or not np.isin(values, (0, 1)).all():
        raise ValueError(
            f"{file}: {name} must be (n, height, width) booleans (or 0 and 1), got shape {values.shape} of "
            f"{values.dtype}"
        )
    return values.astype(bool)
