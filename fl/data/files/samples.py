"""Holds the labels, owners and parts of a data set while a file is read, and builds the data set from them."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...objective import CLASSIFICATION, MULTILABEL, REGRESSION
from ..dataset import Dataset, first_of, fixed_order
from .options import SplitOptions, refuse_rows

MOST_CLASSES = 10_000
LARGEST_SINGLE = 3e38
"""The size up to which numbers are finite in single precision, in which features are kept."""
Bounds = tuple[float, float] | None
Samples = dict[str, np.ndarray]
"""Arrays with one row per sample: ``images`` (n, channel, height, width) float32, ``labels`` (see ``Labels``), and
where known ``owners`` (n,) whole numbers, which count for training samples, and ``masks`` and ``targets`` (n, height,
width) booleans."""


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The meaning of a data set's labels, such as the names of classes.

    Args:
        task: "classification": labels are (n,) int64; "multilabel": (n, classes) booleans; "regression": (n, classes)
            float64 numbers to predict, which are still to be scaled.
        classes: number of classes, of labels that each hold or not, or of numbers.
        names: the name of each of them, or empty.
        places, bounds: file and array or column of each number to predict, and its public range or None.
        scale: "standardise" or "none", for numbers without a public range.
    """

    task: str = CLASSIFICATION
    classes: int
    names: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    bounds: tuple[Bounds, ...] = ()
    scale: str = "standardise"


def dataset_of(
    samples: Samples,
    test: np.ndarray | None,
    labels: Labels,
    *,
    file: str,
    options: SplitOptions,
    notes: tuple[str, ...] = (),
    **facts: Any,
) -> Dataset:
    """Build a data set from these samples, with further ``facts`` of ``Dataset``.

    ``test``: (n,) booleans, the samples of the test part; None splits one off, which is reported. Raises ValueError,
    starting with ``file``, if there are too few samples or owners to split, too few classes, or a number to predict
    cannot be scaled.
    """
    if test is None:
        test, note = drawn_test_rows(samples, file, options)
        notes = (note, *notes)
    scale: tuple[float, ...] = ()
    if labels.task == REGRESSION:
        samples["labels"], scale, note = _scaled_labels(samples["labels"], ~test, labels)
        notes = (*notes, note)
    elif labels.task == CLASSIFICATION and "targets" not in samples and len(np.unique(samples["labels"][~test])) < 2:
        raise ValueError(f"{file} must have labels of at least two classes among its training samples, got one")
    first = len(test) - int(test.sum())
    # Slices need no memory of their own, where the test part is the end.
    train_rows, test_rows = (~test, test) if test[:first].any() else (slice(first), slice(first, None))
    tensors: dict[str, Any] = {}
    for part, chosen in (("train", train_rows), ("test", test_rows)):
        for key, array in samples.items():
            tensors[f"{part}_{key}"] = torch.from_numpy(np.ascontiguousarray(array[chosen]))
    if "owners" in samples:
        # Numbered again: an owner whose samples are all test samples is no owner of the training part.
        tensors["train_owners"] = torch.unique(tensors["train_owners"], return_inverse=True)[1]
        del tensors["test_owners"]
    notes = (*notes, *_remarks(samples["labels"], test, labels))
    known: dict[str, Any] = {"classes": labels.classes, "class_names": labels.names, "task": labels.task}
    return Dataset(**tensors, **known, label_scale=scale, notes=notes, **facts)


def drawn_test_rows(samples: Samples, place: str, options: SplitOptions) -> tuple[np.ndarray, str]:
    """Draw the samples that become the test part, ``(n,)`` booleans; also return a sentence that reports it.

    ``samples``: with ``labels``, and ``owners`` where they are known. With owners, all samples of an owner lie in one
    part: otherwise an owner who is in no federation would still appear in the public test data. Without owners every
    class is split in the same proportion, as far as whole samples allow. The split depends on ``split_seed`` and the
    number of samples only, not on a run's seed.

    Raises ValueError, starting with ``place``, if one of the two parts would be empty.
    """
    labels, owners = samples["labels"], samples.get("owners")
    count = len(labels)
    groups = labels if labels.ndim == 1 and owners is None else np.zeros(count, dtype=np.int64)
    units = np.arange(count) if owners is None else owners
    rank = np.empty(count, dtype=np.int64)
    rank[fixed_order(f"test part {options.split_seed}", count).numpy()] = np.arange(count)
    chosen = np.zeros(count, dtype=bool)
    for group in np.unique(groups):
        kinds, first = np.unique(units[groups == group], return_index=True)
        order = kinds[np.argsort(rank[groups == group][first], kind="stable")]
        # At least one unit stays for training.
        wanted = min(round(options.test_share * len(order)), len(order) - 1)
        chosen |= np.isin(units, order[:wanted]) & (groups == group)
    share, whole = f"test_share {options.test_share:g}", "" if owners is None else ", whole owners at a time"
    if not chosen.any():
        what = "samples of a class" if owners is None else "owners"
        raise ValueError(f"{place} has too few {what} for a test part ({share}): give a test part, or raise test_share")
    return chosen, (
        f"The data set has no test part: {int(chosen.sum())} of {count} samples were split off as one{whole} ({share}, "
        f"split_seed {options.split_seed})."
    )


def class_numbers(
    labels: np.ndarray, place: str, classes: int | None = None, names: tuple[str, ...] = ()
) -> tuple[np.ndarray, Labels]:
    """Convert labels ``(n,)``, whole numbers or texts, to class numbers, and return them with their meaning.

    Whole numbers are class numbers, from 0 on; texts are names of classes, which get the numbers 0, 1, ... in
    alphabetical order. ``classes``: the number of classes where some have no sample; by default one more than the
    largest number.

    Raises ValueError, with place and row, for labels of another type or shape, below 0 or not below ``classes``.
    """
    if labels.ndim != 1 or labels.dtype.kind not in "iubUS":
        raise ValueError(
            f"{place} must have one class per sample, (n,) whole numbers (class numbers from 0 on) or texts (class "
            f'names), got shape {labels.shape} of {labels.dtype}: set task = "multilabel" if each of several labels '
            'holds (1) or not (0), or task = "regression" if they are numbers to predict'
        )
    if labels.dtype.kind in "US":
        known, labels = np.unique(labels, return_inverse=True)
        names = tuple(map(str, known))
    count = classes or len(names) or int(labels.max()) + 1
    # A label such as 900000 would otherwise make a model with so many outputs.
    most = min(count, MOST_CLASSES)
    refuse_rows((labels < 0) | (labels >= most), f"{place} must hold class numbers from 0 to {most - 1}, got another")
    return labels.astype(np.int64), Labels(classes=count, names=names)


def target_numbers(values: np.ndarray, task: str, places: tuple[str, ...], *, first: int = 0) -> np.ndarray:
    """Convert labels that are no classes, ``(n, labels)``: to booleans if several labels may hold at once, or to
    float64 numbers to predict.

    Raises ValueError, with the first row at fault, for other numbers than 0 and 1 or a single label (multilabel), and
    for NaN and infinity (regression). ``first``: the number of the first row.
    """
    if task == MULTILABEL and values.shape[1] < 2:
        raise ValueError(f"{places[0]} is a single label: several labels per sample (task {task}) need at least two")
    for column, place in zip(values.T, places, strict=True):
        if task == MULTILABEL:
            refuse_rows(~np.isin(column, (0, 1)), f"{place} must hold 0 or 1, got another value", first=first)
        else:
            refuse_rows(~np.isfinite(column), f"{place} must hold finite numbers, got NaN or infinity", first=first)
    return values.astype(np.bool_ if task == MULTILABEL else np.float64)


def scaled(
    numbers: np.ndarray, train: np.ndarray, place: str, bounds: Bounds, scale: str
) -> tuple[np.ndarray, float, float]:
    """Return numbers ``(n,)`` after scaling, and the shift and the unit of the scale, which come from the training rows
    alone.

    A missing number (NaN) becomes the mean of the training rows. ``bounds``: a public range, which is scaled to [0, 1];
    otherwise ``scale``: "standardise" or "none". Where the training rows are constant, all are 0 and so is the unit.

    Raises ValueError, with place and row, for numbers outside of the range, or that single precision cannot hold.
    """
    missing = np.isnan(numbers)
    known = numbers[train & ~missing]
    with np.errstate(over="ignore", invalid="ignore"):  # What overflows is refused below.
        shift, unit = float(known.mean()), float(known.std())
        filled = np.where(missing, np.clip(known, *bounds).mean() if bounds else shift, numbers)
        if bounds:
            outside = (filled < bounds[0]) | (filled > bounds[1])
            refuse_rows(outside, f"{place} must lie in its range {bounds[0]:g}..{bounds[1]:g}, got another", first=1)
            shift, unit = bounds[0], bounds[1] - bounds[0]
        elif scale == "none":
            check_single_precision(filled, place, first=1)
            shift, unit = 0.0, 1.0
        # Constant up to rounding: dividing by the deviation would blow up the rounding error, which whole numbers do
        # not have: 10**15 and 10**15 + 1 are two values.
        elif known.min() == known.max() or (unit <= 1e-12 * abs(shift) and not (known == np.rint(known)).all()):
            return np.zeros(len(numbers)), shift, 0.0
        found = (filled - shift) / unit
    too_large = ~(np.abs(found) < LARGEST_SINGLE) | ~np.isfinite(unit)
    refuse_rows(too_large, f"{place} must hold numbers that fit in single precision, got a larger one", first=1)
    return found, shift, unit


def check_single_precision(values: np.ndarray, place: str, *, first: int = 0) -> None:
    """Raise ValueError, with place and row, if numbers ``(n,)`` overflow in single precision, or if two different whole
    numbers become equal there; fractions are rounded without an error.
    """
    size, remedy = np.abs(values.astype(np.float64)), ": change their unit, or subtract a constant"
    refuse_rows(size > LARGEST_SINGLE, f"{place} holds a number that is too large", remedy, first=first)
    if (size > 2**24).any() and (values == np.rint(values)).all():
        different = np.unique(values)
        same = np.isin(values, different[1:][np.diff(different.astype(np.float32)) == 0])
        sentence = f"{place} holds different whole numbers that are one number in single precision, such as"
        refuse_rows(same, sentence, remedy, first=first)


def owner_numbers(owners: np.ndarray, place: str) -> np.ndarray:
    """Convert owners ``(n,)``, whole numbers or texts, to the numbers 0, 1, ... in their sorted order."""
    if owners.ndim != 1 or owners.dtype.kind not in "iuUS":
        got = f"shape {owners.shape} of {owners.dtype}"
        raise ValueError(f"{place} must hold one owner per sample, (n,) whole numbers or texts, got {got}")
    return np.unique(owners, return_inverse=True)[1].astype(np.int64)


def same_but_for_case(texts: np.ndarray) -> list[str]:
    """Return, in alphabetical order, the texts that differ from another one of the texts only in case or blanks."""
    forms = {text: "".join(text.split()).casefold() for text in np.unique(texts).tolist()}
    counts = Counter(forms.values())
    return [text for text, form in forms.items() if counts[form] > 1]


def _scaled_labels(values: np.ndarray, train: np.ndarray, labels: Labels) -> tuple[np.ndarray, tuple[float, ...], str]:
    """Numbers to predict as scaled, float32, one scaled unit of each in its own unit, and a sentence."""
    found, shifts, units = [], list[float](), list[float]()
    for column, place, bounds in zip(values.T, labels.places, labels.bounds, strict=True):
        numbers, shift, unit = scaled(column, train, place, bounds, labels.scale)
        if not unit or len(np.unique(column[train])) < 2:
            raise ValueError(f"{place} must hold at least two different numbers in the training part, got one")
        found.append(numbers)
        shifts.append(shift)
        units.append(unit)
    words = [", ".join(f"{one:.4g}" for one in each) for each in (shifts, units)]
    note = f"From the numbers to predict {words[0]} was subtracted, and the result was divided by {words[1]}."
    if None in labels.bounds and labels.scale == "standardise":
        note += (
            " These are mean and standard deviation of the training rows where there is no public range: they depend "
            "on private rows, and no claim covers them."
        )
    return np.stack(found, axis=1).astype(np.float32), tuple(units), note


def _remarks(values: np.ndarray, test: np.ndarray, labels: Labels) -> list[str]:
    """What a reader should know about the labels: those that are always equal, without samples, or look alike."""
    names, found = list(labels.names) or [str(number) for number in range(labels.classes)], list[str]()
    if labels.task == MULTILABEL:
        ends = [(name, row.all(), row.any()) for name, row in zip(names, values[~test].T, strict=True)]
        if sure := [f"{name} ({'all' if every else 'none'})" for name, every, some in ends if every or not some]:
            found.append(f"Labels that are equal in all training rows, and cannot be learnt: {first_of(sure)}.")
    if labels.task == CLASSIFICATION:
        for part, chosen in (("training", ~test), ("test", test)):
            counts = np.bincount(values[chosen], minlength=labels.classes)
            if absent := [name for name, count in zip(names, counts, strict=True) if not count]:
                found.append(f"Classes without a {part} sample: {first_of(absent)}.")
        if not labels.names and not (values[~test] == 0).any():
            found.append("No training sample has class 0: class numbers are kept as they are, and start at 0.")
        if alike := same_but_for_case(np.array(labels.names, dtype=str)):
            found.append(f"Classes that differ only by case or blanks: {first_of([repr(one) for one in alike])}.")
    return found
