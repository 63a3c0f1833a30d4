"""A data set holds labelled images, rows or texts and, where known, masks of sensitive pixels and owners.

Masks of privacy-sensitive pixels are computed after PSI (Xiao et al. 2025).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...audit.wording import nearest
from ..objective import CLASSIFICATION, MULTILABEL, NEXT_TOKEN, REGRESSION, objective_of
from ..streams import Streams

# A pixel this bright belongs to the stroke.
_INK = 0.1


def stroke_box(images: Tensor) -> Tensor:
    """Return a mask of the smallest box around each image's pixels brighter than 0.1.

    ``images (n, c, h, w)`` give masks ``(n, h, w)``.

    Meant for digits on a black background; empty for a black image.
    """
    ink = images.numpy().max(1) > _INK
    down, across = _span(ink.any(2)), _span(ink.any(1))
    return torch.from_numpy(down[:, :, None] & across[:, None, :])


def box_mask(boxes: Sequence[tuple[int, int, int, int]], height: int, width: int) -> Tensor:
    """Return a boolean mask ``(height, width)`` that is true inside any of the boxes.

    Each box is (left, top, right, bottom).

    Right and bottom edges are exclusive; boxes are cut at the image's border.
    """
    mask = torch.zeros(height, width, dtype=torch.bool)
    for left, top, right, bottom in boxes:
        # Negative edges count from the end in numpy and torch, so they are cut at 0.
        mask[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = True
    return mask


def _span(there: np.ndarray) -> np.ndarray:
    """``(n, k)``: true from the first true entry of each row to its last."""
    begun = np.logical_or.accumulate(there, axis=1)
    left = np.logical_or.accumulate(there[:, ::-1], axis=1)[:, ::-1]
    return np.asarray(begun & left, dtype=np.bool_)


class DatasetMissing(FileNotFoundError):
    """The error raised when a data set is neither in FEDASSAY_DATA nor in the cache and could not be downloaded."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """A data set of labelled images, split into training and test images.

    The tensors are shared by all callers and must not be changed.

    Args:
        train_images, test_images: (n, channel, height, width) float32 in [0, 1]; rows of a table (n, 1, 1, features).
        train_labels, test_labels: (n,) int64 in [0, classes); for task ``multilabel`` (n, classes) booleans, and for
            task ``regression`` (n, classes) float32, best with mean 0 and deviation 1, or in [0, 1]. For task
            ``next_token`` images are texts, (n, 1, 1, length) whole numbers in [0, classes), and labels (n, length).
        classes: number of classes, of labels that each hold or not, of numbers to predict, or of tokens.
        train_masks, test_masks: (n, height, width) booleans, true where a pixel is privacy-sensitive (PSI); None where
            this is not known.
        strokes: the images are strokes on black, and the masks are the smallest boxes around the strokes.
        train_targets, test_targets: (n, height, width) booleans, the pixels that a segmentation has to find (those that
            were tampered with); None where there is nothing to find.
        train_owners: (n,) int64, >= 0, the owner of each training image (writer, receipt); None where not known.
        rows: the images are rows of a table, (n, 1, 1, features), whose numbers may be any finite ones.
        class_names: the name of each class, label or number, or empty.
        columns: of rows, the name of each column of the table and how many features it became, in order; empty: not
            known.
        task: what the labels are: ``classification``, ``regression``, ``multilabel`` or ``next_token``.
        label_scale: of a regression, the size of one unit of each label in the data's own unit, > 0, by which errors
            are reported in that unit; empty: 1.
        notes: sentences on what a reader did to the data, such as splitting off a test part.

    Raises ValueError for other shapes, types or ranges.
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: int
    train_masks: Tensor | None = None
    test_masks: Tensor | None = None
    strokes: bool = False
    train_targets: Tensor | None = None
    test_targets: Tensor | None = None
    train_owners: Tensor | None = None
    rows: bool = False
    class_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    task: str = CLASSIFICATION
    label_scale: tuple[float, ...] = ()
    columns: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            images: Tensor = getattr(self, f"{part}_images")
            _check_part(part, images)
            objective_of(self.task).check(f"{part}_labels", getattr(self, f"{part}_labels"), images, self.classes)
            _check_range(part, images, self.rows)
            check_masks(f"{part}_masks", getattr(self, f"{part}_masks"), images)
            check_masks(f"{part}_targets", getattr(self, f"{part}_targets"), images)
        if self.train_images.shape[1:] != self.test_images.shape[1:]:
            shapes = f"{tuple(self.train_images.shape[1:])} and {tuple(self.test_images.shape[1:])}"
            raise ValueError(f"train and test images must have one shape, got {shapes}")
        _check_owners(self.train_owners, len(self.train_labels))
        if self.label_scale and (len(self.label_scale) != self.classes or not min(self.label_scale) > 0):
            raise ValueError(f"label_scale must hold {self.classes} numbers > 0, one per label, got {self.label_scale}")
        _check_columns(self.columns, self.shape)
        if self.strokes:
            if self.train_masks is not None or self.test_masks is not None:
                raise ValueError(
                    "masks (of sensitive pixels) must be None if strokes is true, because strokes derives the masks "
                    "from the images; got both"
                )
            object.__setattr__(self, "train_masks", stroke_box(self.train_images))
            object.__setattr__(self, "test_masks", stroke_box(self.test_images))

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the name and of all given arrays, in hexadecimal."""
        return _digest(self)

    @classmethod
    def of_parts(cls, name: str, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], **facts: Any) -> "Dataset":
        """Build a data set from a training part and a test part, each with images and labels, and further ``facts``."""
        (train_images, train_labels), (test_images, test_labels) = train, test
        facts |= {"train_images": train_images, "train_labels": train_labels}
        return cls(name=name, test_images=test_images, test_labels=test_labels, **facts)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of one image: (channel, height, width)."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width


def check_masks(name: str, masks: Tensor | None, images: Tensor) -> None:
    """Raise ValueError unless ``masks`` is None or has one boolean per image pixel, shape ``(n, h, w)``."""
    wanted = (len(images), *images.shape[2:])
    if masks is not None and (tuple(masks.shape) != wanted or masks.dtype != torch.bool):
        raise ValueError(f"{name} must be booleans of shape {wanted}, got {tuple(masks.shape)} of {masks.dtype}")


def fixed_order(purpose: str, count: int) -> Tensor:
    """Return a fixed shuffle of the indices of ``count`` items, the same for every seed and every version of numpy.

    The result has shape ``(count,)`` and type int64.
    """
    # Raw bits and a stable sort, not `permutation`, whose result may change with numpy's version.
    raw = Streams(0).generator(purpose).bit_generator.random_raw(count)
    return torch.from_numpy(np.argsort(raw, kind="stable"))


def _check_part(part: str, images: Tensor) -> None:
    if images.ndim != 4 or images.dtype != torch.float32:
        raise ValueError(
            f"{part}_images must be (n, channel, height, width) float32, got {tuple(images.shape)} of {images.dtype}"
        )
    if len(images) == 0:
        raise ValueError(f"{part}_images must hold at least one image, got none")


def _check_range(part: str, images: Tensor, rows: bool) -> None:
    if rows:
        if images.shape[1:3] != (1, 1) or not bool(images.isfinite().all()):
            raise ValueError(f"{part}_images must be rows (n, 1, 1, features) of finite numbers, got {images.shape}")
    elif not (images.min() >= 0 and images.max() <= 1):
        raise ValueError(f"{part}_images must be in [0, 1], got {float(images.min())} to {float(images.max())}")


def _check_owners(owners: Tensor | None, count: int) -> None:
    if owners is None:
        return
    if owners.shape != (count,) or owners.dtype != torch.int64:
        raise ValueError(f"train_owners must be int64 of shape ({count},), got {tuple(owners.shape)} of {owners.dtype}")
    if owners.min() < 0:
        raise ValueError(f"train_owners must be >= 0, got {int(owners.min())}")


def _check_columns(columns: tuple[tuple[str, int], ...], shape: tuple[int, int, int]) -> None:
    if not columns:
        return
    names, widths = zip(*columns, strict=True)
    if shape != (1, 1, sum(widths)) or min(widths) < 1 or len(set(names)) < len(names):
        raise ValueError(
            f"columns must give each column of a table's rows a name of its own and a number of features, "
            f"{shape[2]} in all, got {columns[:3]}"
        )


def feature_numbers(columns: Sequence[int | str], named: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    """Return the numbers that the features of some columns have in the flattened record; the columns are given by
    number or by name.

    ``named``: of a table, the name of each column and the number of its features. Raises ValueError for an unknown
    name.
    """
    found, start = dict[str, range](), 0
    for name, width in named:
        found[name] = range(start, start + width)
        start += width
    numbers: list[int] = []
    for one in columns:
        if isinstance(one, int):
            numbers.append(one)
        elif one in found:
            numbers += found[one]
        else:
            known = f"known: {nearest(one, found)}" if found else "the columns of this data set have no names"
            raise ValueError(f"columns: unknown column {one!r}; {known}")
    return tuple(numbers)


# In this order and only where given, so that a data set without annotations has the digest of its images and labels.
_ANNOTATIONS = ("train_masks", "test_masks", "train_targets", "test_targets", "train_owners")


def _digest(dataset: Dataset) -> str:
    digest = hashlib.sha256(dataset.name.encode())
    for array in (dataset.train_images, dataset.train_labels, dataset.test_images, dataset.test_labels):
        _add(digest, array)
    for name in _ANNOTATIONS:
        annotation = getattr(dataset, name)
        # Masks of strokes follow from the images.
        if annotation is not None and not (dataset.strokes and name.endswith("masks")):
            digest.update(name.encode())
            _add(digest, annotation)
    # Only where the task is another one, so that data sets with classes keep their digests.
    if dataset.task != CLASSIFICATION:
        digest.update(f"{dataset.task} {dataset.label_scale}".encode())
    return digest.hexdigest()


def _add(digest: "hashlib._Hash", array: Tensor) -> None:
    # The shape too: equal bytes of another shape are other data.
    digest.update(f"{tuple(array.shape)}".encode())
    digest.update(array.contiguous().numpy().data)


_NAMED = 12


def description(dataset: Dataset) -> dict[str, str]:
    """Return facts about a data set, keyed by name, each as a short text."""
    channels, height, width = dataset.shape
    table = dataset.rows or (channels, height) == (1, 1)
    text = dataset.task == NEXT_TOKEN
    facts = {"kind": "texts" if text else "rows of a table" if table else "images"}
    if text:
        facts["length"] = f"{width} tokens"
    elif table:
        facts["features"] = str(width)
    else:
        facts["size"] = f"{height}x{width} pixels (height x width)"
        facts["colour"] = {1: "grey", 3: "colour (3 channels)"}.get(channels, f"{channels} channels")
    facts["samples"] = f"{len(dataset.train_labels)} training, {len(dataset.test_labels)} test"
    facts["range"] = f"{float(dataset.train_images.min()):.4g} to {float(dataset.train_images.max()):.4g}"
    facts |= _LABELS[dataset.task](dataset)
    if dataset.train_owners is None:
        facts["owners"] = "not known"
    else:
        sizes = torch.unique(dataset.train_owners, return_counts=True)[1]
        facts["owners"] = f"{len(sizes)}, with {int(sizes.min())} to {int(sizes.max())} training samples each"
    if dataset.train_masks is not None:
        facts["sensitive pixels"] = f"{float(dataset.train_masks.double().mean()):.1%} of the training pixels"
    facts["tasks"] = ", ".join(_tasks(dataset, table))
    facts["SHA-256"] = dataset.digest
    return facts


def _tasks(dataset: Dataset, table: bool) -> list[str]:
    kind = "table" if table else "image"
    if dataset.task == NEXT_TOKEN:
        return ["prediction of the next token"]
    if dataset.task == REGRESSION:
        return [f"{kind} regression"]
    if dataset.task == MULTILABEL:
        return [f"{kind} classification with several labels"]
    tasks = [f"{kind} classification" + (" (binary)" if dataset.classes == 2 else "")]
    return [*tasks, "segmentation"] if dataset.train_targets is not None else tasks


def _classes(dataset: Dataset) -> dict[str, str]:
    counts = torch.bincount(dataset.train_labels, minlength=dataset.classes)
    return {"classes": f"{dataset.classes}{_by_class(dataset, counts)}", "balance": _balance(counts)}


def _numbers(dataset: Dataset) -> dict[str, str]:
    """The range, mean and deviation of each number to predict, as the model gets them, and their unit."""
    scale, found = dataset.label_scale or (1.0,) * dataset.classes, []
    for column, values in enumerate(dataset.train_labels.double().T):
        name = f"{dataset.class_names[column]}: " if dataset.class_names else ""
        unit = "" if scale[column] == 1 else f", in units of {scale[column]:.4g}"
        low, high, mean, std = (
            float(one) for one in (values.min(), values.max(), values.mean(), values.std(correction=0))
        )
        found.append(f"{name}{low:.4g} to {high:.4g}, mean {round(mean, 2) + 0:.4g}, deviation {std:.3g}{unit}")
    return {"numbers to predict": f"{dataset.classes} ({first_of(found, '; ')})"}


def _flags(dataset: Dataset) -> dict[str, str]:
    """The share of training samples for which each label holds."""
    names = dataset.class_names or tuple(map(str, range(dataset.classes)))
    shares = dataset.train_labels.double().mean(0).tolist()
    found = [f"{name}: {share:.1%}" for name, share in zip(names, shares, strict=True)]
    each = float(dataset.train_labels.double().sum(1).mean())
    return {
        "labels": f"{dataset.classes} ({first_of(found)})",
        "balance": f"{each:.2g} labels per sample on average",
    }


def _tokens(dataset: Dataset) -> dict[str, str]:
    """The size of the vocabulary, and how much of the texts its most frequent token makes up."""
    shares = torch.bincount(dataset.train_labels.flatten(), minlength=dataset.classes).double()
    return {"vocabulary": f"{dataset.classes} tokens, the most frequent {float(shares.max() / shares.sum()):.1%}"}


_LABELS = {CLASSIFICATION: _classes, REGRESSION: _numbers, MULTILABEL: _flags, NEXT_TOKEN: _tokens}


def first_of(found: list[str], separator: str = ", ") -> str:
    """Join words to one phrase; if there are many words, name only the first ones."""
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{separator.join(found[:_NAMED])}{more}"


def _by_class(dataset: Dataset, counts: Tensor) -> str:
    """The training samples of each class, of many classes the first ones only."""
    names = dataset.class_names or tuple(map(str, range(dataset.classes)))
    shown = [f"{name}: {count}" for name, count in zip(names, counts.tolist(), strict=False)]
    return f" ({first_of(shown)})"


def _balance(counts: Tensor) -> str:
    shares = counts.double() / counts.sum()
    empty = int((counts == 0).sum())
    has = "class has" if empty == 1 else "classes have"
    lacking = f"; {empty} {has} no training sample" if empty else ""
    return f"smallest class {float(shares.min()):.1%}, largest class {float(shares.max()):.1%}{lacking}"
