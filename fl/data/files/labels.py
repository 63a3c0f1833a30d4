"""Turns labels as a file holds them into class numbers."""

from collections.abc import Mapping

import numpy as np

from ....audit.wording import counted

MOST_CLASSES = 10_000


def class_numbers(
    given: Mapping[str, np.ndarray], *, file: str, classes: int | None = None
) -> tuple[list[np.ndarray], int, tuple[str, ...]]:
    """Return the class numbers of each part (int64), the number of classes, and the names of the classes.

    given: for the name of each array or column, (n,) whole numbers, or texts. Whole numbers are class numbers, from 0
    on; texts are names of classes, which get the numbers 0, 1, ... in alphabetical order. ``classes``: the number of
    classes where some have no sample; by default one more than the largest number. Names are empty for numbers.

    Raises ValueError, with file, array and row, for labels of another type or shape, below 0 or not below ``classes``,
    and for fewer than two classes in the first part.
    """
    for name, labels in given.items():
        _check_type(f"{file}: {name}", labels)
    texts = [labels.dtype.kind in "US" for labels in given.values()]
    if any(texts) and not all(texts):
        raise ValueError(f"{file}: {' and '.join(given)} must both be numbers or both be texts, got one of each")
    names: tuple[str, ...] = ()
    if any(texts):
        known, numbers = np.unique(np.concatenate(list(given.values())), return_inverse=True)
        names = tuple(map(str, known))
        found = np.split(numbers.astype(np.int64), np.cumsum([len(labels) for labels in given.values()])[:-1])
    else:
        for name, labels in given.items():
            _check_small(f"{file}: {name}", labels)
        found = [labels.astype(np.int64) for labels in given.values()]
    count = classes if classes is not None else max(int(labels.max()) for labels in found) + 1
    for name, labels in zip(given, found, strict=True):
        check_class_numbers(f"{file}: {name}", labels, count)
    check_several(f"{file}: {next(iter(given))}", found[0])
    return found, count, names


def check_class_numbers(place: str, labels: np.ndarray, classes: int) -> None:
    """Raise ValueError, with the first row at fault, unless all ``labels (n,)`` are in [0, classes)."""
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise ValueError(
            f"{place} must hold class numbers from 0 to {classes - 1}, got {labels[wrong[0]]} in row {wrong[0]} "
            f"({counted(len(wrong), 'such row')})"
        )
    # A label such as 900000 would otherwise make a model with so many outputs.
    if classes > MOST_CLASSES:
        raise ValueError(
            f"{place} must hold class numbers 0, 1, 2 and so on, below {MOST_CLASSES}; the largest is {labels.max()}"
        )


def _check_small(place: str, labels: np.ndarray) -> None:
    """Raise ValueError for whole numbers beyond those of 64 bits with a sign, which would become negative ones."""
    wrong = np.flatnonzero(labels.astype(np.uint64) > np.iinfo(np.int64).max if labels.dtype.kind == "u" else [])
    if len(wrong):
        raise ValueError(
            f"{place} must hold class numbers 0, 1, 2 and so on, below {MOST_CLASSES}, got {labels[wrong[0]]} in row "
            f"{wrong[0]} ({counted(len(wrong), 'such row')})"
        )


def check_several(place: str, labels: np.ndarray) -> None:
    """Raise ValueError unless the ``labels (n,)`` name at least two classes."""
    if len(np.unique(labels)) < 2:
        raise ValueError(f"{place} must hold at least two classes, got only class {labels[0]} in {len(labels)} rows")


def _check_type(place: str, labels: np.ndarray) -> None:
    if labels.ndim != 1:
        raise ValueError(
            f"{place} must have one class per sample, shape (n,), got shape {labels.shape}: in a numpy archive, set "
            'task = "multilabel" if each of several labels holds (1) or not (0), or task = "regression" if they are '
            "numbers to predict"
        )
    if labels.dtype.kind not in "iubUS":
        raise ValueError(
            f"{place} must hold whole numbers (class numbers from 0 on) or texts (class names), got {labels.dtype}: in "
            'a numpy archive, set task = "regression" if they are numbers to predict; otherwise convert classes to int'
        )
    if not len(labels):
        raise ValueError(f"{place} must hold at least one label, got none")
