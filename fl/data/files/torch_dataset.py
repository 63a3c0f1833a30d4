"""Turns a map-style ``torch.utils.data.Dataset`` of (image, label) pairs into a data set of this package."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from ..dataset import Dataset
from .labels import class_numbers
from .npz import owner_numbers
from .pictures import PictureOptions, facts_of, picture_notes, pixels_of
from .pixels import arranged, kept, scaled
from .samples import Samples, dataset_of


def from_torch(
    train: Any,
    test: Any = None,
    *,
    name: str,
    owners: Sequence[int | str] | None = None,
    class_names: Sequence[str] = (),
    options: PictureOptions | None = None,
) -> Dataset:
    """Read all samples of one or two PyTorch data sets once, and return them as a data set.

    Args:
        train, test: map-style data sets, ``len(data)`` and ``data[i] -> (image, label)``. An image is a Pillow image,
            or a tensor or array (height, width), (channel, height, width) or (height, width, channel), in [0, 1] or as
            whole numbers in 0..255; a row of a table is (features,), whose numbers are kept. Labels are class numbers
            from 0 on. Data that change with each call, such as random augmentation, are read as they come the first
            time. Without ``test`` a part is split off.
        name: the data set's name in records.
        owners: (n,), the owner of each training sample.
        class_names: the name of each class.
        options: of images and of the split.

    Raises ValueError, with the number of the sample, for anything else.
    """
    options = options or PictureOptions()
    given = {"train": train} if test is None else {"train": train, "test": test}
    parts = {part: _read(data, f"{name}: {part}", options) for part, data in given.items()}
    images = {f"{part} images": one.images for part, one in parts.items()}
    rows = all(one.rows for one in parts.values())
    inputs, note = kept(images, file=name) if rows else scaled(images, file=name)
    labels = {f"{part} labels": one.labels for part, one in parts.items()}
    found, classes, _ = class_numbers(labels, file=name, classes=len(class_names) or None)
    owned = None if owners is None else owner_numbers(np.asarray(owners), f"{name}: owners")
    if owned is not None and len(owned) != len(inputs[0]):
        raise ValueError(f"{name}: owners must have one owner per sample, got {len(owned)} for {len(inputs[0])}")
    samples = [Samples(images=one, labels=two) for one, two in zip(inputs, found, strict=True)]
    return dataset_of(
        replace(samples[0], owners=owned),
        samples[1] if len(samples) > 1 else None,
        name=name,
        file=name,
        options=options,
        classes=classes,
        class_names=tuple(class_names),
        rows=rows,
        notes=tuple(dict.fromkeys([note, *(note for one in parts.values() for note in one.notes)])),
    )


@dataclass(frozen=True, kw_only=True)
class _Read:
    """One part: images (n, c, h, w), labels (n,), what was done, and whether the samples are rows."""

    images: np.ndarray
    labels: np.ndarray
    notes: list[str]
    rows: bool = False


def _read(data: Any, place: str, options: PictureOptions) -> _Read:
    try:
        count = len(data)
        items = [data[number] for number in range(count)]
    except TypeError as error:
        raise ValueError(f"{place} must be a map-style data set, with len(data) and data[i]: {error}") from None
    if not count:
        raise ValueError(f"{place} must hold at least one sample, got none")
    for number, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise ValueError(f"{place} must give pairs (image, label), got {type(item).__name__} for sample {number}")
    labels = np.array([_label(item[1], f"{place}: the label of sample {number}") for number, item in enumerate(items)])
    first = items[0][0]
    if hasattr(first, "convert"):
        facts = [facts_of(image, place) for image, _ in items]
        pixels = pixels_of(facts, lambda number: items[number][0], options, place)
        return _Read(images=pixels, labels=labels, notes=picture_notes(facts, options))
    arrays = [_array(image, f"{place}: sample {number}") for number, (image, _) in enumerate(items)]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        found = ", ".join(map(str, sorted(shapes)[:5]))
        raise ValueError(f"{place} must hold samples of one shape, got {len(shapes)} shapes: {found}")
    # PyTorch puts channels first; only where they cannot be there is the last axis tried.
    first_axis = isinstance(first, Tensor) and first.ndim == 3 and len(first) in (1, 3)
    pixels = arranged(np.stack(arrays), place, "first" if first_axis else "auto")
    return _Read(images=pixels, labels=labels, notes=[], rows=arrays[0].ndim == 1)


def _array(image: object, place: str) -> np.ndarray:
    array = image.numpy() if isinstance(image, Tensor) else image
    if not isinstance(array, np.ndarray) or array.ndim not in (1, 2, 3):
        raise ValueError(f"{place} must be an image of Pillow, a tensor or an array, got {type(image).__name__}")
    return array


def _label(label: object, place: str) -> int:
    value = label.item() if isinstance(label, Tensor | np.generic) and np.ndim(label) == 0 else label
    if not isinstance(value, int):
        raise ValueError(f"{place} must be a class number, got {label!r:.80}")
    return int(value)
