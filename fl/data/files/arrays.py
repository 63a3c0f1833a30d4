"""Turns named arrays, of a numpy archive or of Python code, into a data set."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator

from ....audit.output_file import parsed_json
from ....audit.wording import nearest
from ...objective import CLASSIFICATION, REGRESSION
from ..dataset import Dataset
from .options import Names, Range, Scale, SplitOptions, Task, refuse_rows
from .readers import arrays_of
from .samples import Labels, Samples, check_single_precision, class_numbers, dataset_of, owner_numbers, target_numbers

KINDS = ("x", "y", "owner", "mask", "target")
ARRAYS = tuple(f"{kind}_{part}" for kind in KINDS for part in ("train", "test") if (kind, part) != ("owner", "test"))
TOPS = (1, 255, 4095, 65535)
"""The largest value of a pixel: as a fraction, and of 8, 12 and 16 bits."""
_FACTS = "facts"
"""The array of an archive that ``write_npz`` wrote, with all facts that are no arrays, as JSON."""


class ArrayOptions(SplitOptions):
    """The options for reading a data set from arrays.

    Args:
        pixels: range of the pixels, such as "0..1" or "0..255"; "auto" finds it (see ``_unit_pixels``).
        channels: axis of the channels: "first", "last", or "auto" (see ``_arranged``).
        classes: number of classes, >= 2, where some have no sample.
        ignore: names of further arrays of an archive, which are not read.
        task: "classification", "regression" or "multilabel".
        label_range: public range of the numbers of a regression, two numbers, which is scaled to [0, 1].
        label_scale: "standardise": numbers of a regression without a range get mean 0 and standard deviation 1 over the
            training samples; "none": they are kept.
    """

    pixels: Literal["auto", "0..1", "0..255", "0..4095", "0..65535"] = "auto"
    channels: Literal["auto", "first", "last"] = "auto"
    classes: int | None = Field(default=None, ge=2, strict=True)
    ignore: Names = ()
    task: Task = "classification"
    label_range: Range | None = None
    label_scale: Scale = "standardise"

    @model_validator(mode="after")
    def _check(self) -> "ArrayOptions":
        if self.classes is not None and self.task != CLASSIFICATION:
            raise ValueError(f"classes can be set only for a classification, got task {self.task!r}")
        if self.task != REGRESSION and (self.label_range or self.label_scale == "none"):
            raise ValueError(f"label_range and label_scale need task = {REGRESSION!r}, got task {self.task!r}")
        return self


def read_npz(path: Path, name: str, options: ArrayOptions) -> Dataset:
    """Read a data set from a numpy archive (see ``dataset_of_arrays``), also from one that ``write_npz`` wrote."""
    found = arrays_of(path, lambda one: one not in options.ignore)
    facts = found.pop(_FACTS, None)
    if facts is None:
        return dataset_of_arrays(found, file=path.name, name=name, options=options)
    if options.model_fields_set:
        raise ValueError(f"{path.name} holds a data set as it is, so that no option applies, got {options}")
    tensors: dict[str, Any] = {key: torch.from_numpy(array) for key, array in found.items() if array is not None}
    return Dataset(**tensors, **{key: _as_tuple(one) for key, one in parsed_json(str(facts)).items()}, name=name)


def write_npz(dataset: Dataset, path: Path) -> None:
    """Write a data set as a numpy archive from which ``read_npz`` reads it back."""
    given = {one.name: getattr(dataset, one.name) for one in fields(dataset) if one.init and one.name != "name"}
    if dataset.strokes:  # From which the masks follow.
        given |= {"train_masks": None, "test_masks": None}
    arrays = {key: value.numpy() for key, value in given.items() if isinstance(value, torch.Tensor)}
    facts = {key: value for key, value in given.items() if key not in arrays}
    arrays[_FACTS] = np.array(json.dumps(facts))
    np.savez(path, **arrays)  # type: ignore[arg-type]


def dataset_of_arrays(
    given: Mapping[str, Any],
    *,
    file: str,
    name: str,
    options: ArrayOptions | None = None,
    class_names: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> Dataset:
    """Build a data set from these arrays.

    - ``x_train``: images (n, height, width), (n, channel, height, width) or (n, height, width, channel), or rows (n,
      features), which are kept as they are; ``y_train``: (n,), class numbers from 0 on, or names of classes. For task
      "regression" (n,) or (n, k) numbers; for task "multilabel" (n, k) zeros and ones.
    - ``x_test``, ``y_test``: the test part; without them a part is split off (``SplitOptions``).
    - ``owner_train``: (n,), the owner of each training sample, a number or a text.
    - ``mask_train``, ``mask_test``: (n, height, width), true where a pixel is privacy-sensitive.
    - ``target_train``, ``target_test``: (n, height, width), true for the pixels that a segmentation model has to find;
      ``y_train`` may then be missing, and is whether an image has such a pixel.

    Raises ValueError, with ``file``, array and row, for anything else; rows of a test part are counted after those of
    its training part.
    """
    options = options or ArrayOptions()
    arrays = {key: np.asarray(one) for key, one in given.items() if one is not None}
    _check_names(arrays, file, options.task)
    joined = {kind: _joined(arrays, kind, file) for kind in KINDS if f"{kind}_train" in arrays}
    rows, x = joined["x"].ndim == 2, _arranged(joined["x"], f"{file}: x", options.channels)
    images, note = _kept_rows(x, f"{file}: x") if rows else _unit_pixels(x, f"{file}: x", options.pixels)
    samples: Samples = {"images": images}
    samples |= {f"{kind}s": _booleans(joined[kind], f"{file}: {kind}") for kind in ("mask", "target") if kind in joined}
    if "y" not in joined:
        samples["labels"], labels = np.asarray(samples["targets"].any((1, 2)), dtype=np.int64), Labels(classes=2)
    elif options.task == CLASSIFICATION:
        samples["labels"], labels = class_numbers(joined["y"], f"{file}: y", options.classes, class_names)
    else:
        samples["labels"], labels = _targets(joined["y"], f"{file}: y", options)
    count = len(arrays["x_train"])
    if "owner" in joined:
        # Of the test part no owner is needed: a model does not learn from it.
        owners = owner_numbers(joined["owner"], f"{file}: owner_train")
        samples["owners"] = np.pad(owners, (0, len(x) - count))
    test = np.arange(len(x)) >= count if "x_test" in arrays else None
    facts: dict[str, Any] = {"name": name, "rows": rows, "notes": (note, *notes)}
    return dataset_of(samples, test, labels, file=file, options=options, **facts)


def _check_names(arrays: Mapping[str, np.ndarray], file: str, task: str) -> None:
    """Raise ValueError for an array that is unknown, or lacks another one or its length."""
    needed = {"x_train": "x_train", "y_train": "target_train" if task == CLASSIFICATION else "y_train"}
    for name, instead in needed.items():
        if name not in arrays and instead not in arrays:
            raise ValueError(f"{file} must hold an array {name}, got {nearest(name, arrays)}")
    if "target_train" in arrays and task != CLASSIFICATION:
        raise ValueError(f"{file}: task {task!r} and an array target_train cannot be given together")
    for name, array in arrays.items():
        kind, _, part = name.partition("_")
        if name not in ARRAYS:  # Not silently skipped: a misspelt owner_train would make a data set without owners.
            known = f"known arrays: {nearest(name, ARRAYS)}"
            raise ValueError(f"{file}: array {name!r} is unknown; {known}. List it in ignore if it is not needed")
        others = [f"x_{part}", *([f"{kind}_train", f"{kind}_test"] if "x_test" in arrays and kind != "owner" else [])]
        if lacking := [one for one in others if one not in arrays]:
            raise ValueError(f"{file}: array {name} needs an array {lacking[0]}, which is missing")
        lengths = [one.shape[0] if one.ndim else 0 for one in (array, arrays[f"x_{part}"])]
        if lengths[0] != lengths[1]:
            rows = f"{lengths[0]} and {lengths[1]} rows"
            raise ValueError(f"{file}: {name} and x_{part} must have equal lengths, got {rows}")
    if "x_test" in arrays and "y_train" in arrays and "y_test" not in arrays:
        raise ValueError(f"{file}: array x_test needs an array y_test, which is missing")


def _joined(arrays: Mapping[str, np.ndarray], kind: str, file: str) -> np.ndarray:
    """The training and, where there is one, the test part of an array as one."""
    parts = [arrays[name] for name in (f"{kind}_train", f"{kind}_test") if name in arrays]
    kinds = [(one.shape[1:], one.dtype if one.dtype.kind in "mMV" else one.dtype.kind in "US") for one in parts]
    if kinds[0] != kinds[-1]:
        found = " and ".join(f"{one.shape[1:]} of {one.dtype}" for one in parts)
        raise ValueError(f"{file}: {kind}_train and {kind}_test must hold samples of one shape and kind, got {found}")
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def _targets(values: np.ndarray, place: str, options: ArrayOptions) -> tuple[np.ndarray, Labels]:
    """Labels that are no classes ``(n, k)``, and what they mean."""
    if values.dtype.kind not in "iufb" or values.ndim not in (1, 2) or 0 in values.shape:
        got = f"shape {values.shape} of {values.dtype}"
        raise ValueError(f"{place} must hold numbers of shape (n,) or (n, k) for task {options.task!r}, got {got}")
    columns = values.reshape(len(values), -1)
    count = columns.shape[1]
    places = tuple(f"{place}, column {column}" for column in range(count))
    bounds = (options.label_range,) * count
    labels = Labels(task=options.task, classes=count, places=places, bounds=bounds, scale=options.label_scale)
    return target_numbers(columns, options.task, places), labels


def _booleans(values: np.ndarray, place: str) -> np.ndarray:
    if values.ndim != 3 or values.dtype.kind not in "biu" or not np.isin(values, (0, 1)).all():
        got = f"shape {values.shape} of {values.dtype}"
        raise ValueError(f"{place} must be (n, height, width) booleans (or 0 and 1), got {got}")
    return values.astype(bool)


def _arranged(images: np.ndarray, place: str, channels: str) -> np.ndarray:
    """The images as (n, channel, height, width).

    Grey images may be (n, height, width); images of one or three channels (n, channel, height, width) or (n, height,
    width, channel); rows of a table (n, features) become (n, 1, 1, features). ``channels``: which axis holds the
    channels, "first" or "last"; "auto" finds the one axis of length 1 or 3.
    """
    if images.dtype.kind not in "biuf" or images.ndim not in (2, 3, 4) or not images.size:
        raise ValueError(
            f"{place} must be real numbers: images (n, height, width), (n, channel, height, width) or (n, height, "
            f"width, channel), or rows (n, features); got shape {images.shape} of {images.dtype}"
        )
    if images.ndim < 4:
        return images[:, None, None, :] if images.ndim == 2 else images[:, None]
    first, last = (images.shape[axis] in (1, 3) for axis in (1, 3))
    if channels == "auto" and first == last:
        found = "both" if first else "neither"
        raise ValueError(
            f"{place} has shape {images.shape}, in which {found} of the second and the last axis may be the channels "
            '(1 or 3): set channels to "first" or "last"'
        )
    return images.transpose(0, 3, 1, 2) if channels == "last" or (channels == "auto" and last) else images


def _unit_pixels(images: np.ndarray, place: str, pixels: str) -> tuple[np.ndarray, str]:
    """Images (n, c, h, w) as float32 in [0, 1], and a sentence that reports what was done.

    "auto" keeps numbers in [0, 1], and divides whole numbers by the largest value of 8, 12 or 16 bits, the first that
    no pixel exceeds.
    """
    refuse_rows(~np.isfinite(images), f"{place} must hold finite numbers, got NaN or infinity")
    low, high = float(images.min()), float(images.max())
    whole = images.dtype.kind in "iub" or bool((images == np.rint(images)).all())
    fits = [top for top in TOPS if low >= 0 and high <= top and (whole or top == 1)]
    top = int(pixels.removeprefix("0..")) if pixels != "auto" else fits[0] if fits else 0
    if not top or low < 0 or high > top:
        wanted = "0..1, or whole numbers in 0..255, 0..4095 or 0..65535" if pixels == "auto" else pixels
        # Dividing numbers such as 0..2.6 by 255 would give black images without an error.
        raise ValueError(
            f"{place} must hold pixels in {wanted}, got {low:g} to {high:g}: scale them to 0..1, or set pixels, such "
            'as "0..255". A model can subtract a mean and divide by a standard deviation itself (normalise)'
        )
    note = f"Pixels from {low:g} to {high:g} were " + ("kept as they are." if top == 1 else f"divided by {top}.")
    return images.astype(np.float32) / np.float32(top), note


def _kept_rows(values: np.ndarray, place: str) -> tuple[np.ndarray, str]:
    """Rows as float32, unchanged, and a sentence that reports it."""
    refuse_rows(~np.isfinite(values), f"{place} must hold finite numbers, got NaN or infinity")
    for number, column in enumerate(values.reshape(len(values), -1).T):
        check_single_precision(column, f"{place}: column {number}")
    return values.astype(np.float32), "The numbers of the rows are kept as they are."


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(one) for one in value) if isinstance(value, list) else value
