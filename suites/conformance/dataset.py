"""Conformance checks of data sets."""

import torch

from ...fl.data.dataset import Dataset
from ...fl.objective import CLASSIFICATION, MULTILABEL, NEXT_TOKEN, REGRESSION
from ...fl.seeded import seeded
from .check import Check, Fault, Subject, built, require

_LABELS = {
    CLASSIFICATION: "classes",
    REGRESSION: "numbers to predict",
    MULTILABEL: "labels per image",
    NEXT_TOKEN: "tokens",
}


def ranges(subject: Subject) -> str | None:
    """Its images are finite and in [0, 1], and its labels and owners are in range."""
    data: Dataset = subject.make()
    # Built again from its own arrays: the data set may have changed them after it was checked.
    names = [
        "name",
        "train_images",
        "train_labels",
        "test_images",
        "test_labels",
        "classes",
        "train_owners",
        "rows",
        "task",
    ]
    Dataset(**{name: getattr(data, name) for name in names})
    return (
        f"{len(data.train_labels)} + {len(data.test_labels)} images {data.shape}, {data.classes} {_LABELS[data.task]}"
    )


def classes(subject: Subject) -> str | None:
    """Every class has a training sample; the labels of other tasks vary."""
    data: Dataset = subject.make()
    if data.task != CLASSIFICATION:
        constant = (data.train_labels == data.train_labels[0]).all(0)
        equal = torch.flatten(torch.nonzero(constant)).tolist()
        require(not equal, f"labels {equal[:10]} of {data.classes} are equal in all training samples")
        return None
    counts = torch.bincount(data.train_labels, minlength=data.classes)
    lacking = torch.flatten(torch.nonzero(counts == 0)).tolist()
    require(not lacking, f"classes {lacking[:10]} of {data.classes} have no training sample")
    return None


def same_again(subject: Subject) -> str | None:
    """It is the same at every load, whatever the global random generators."""
    first: Dataset = subject.make()
    with seeded(1):
        again: Dataset = subject.make()
    if first.digest != again.digest:
        raise Fault(
            "a second load gave other data: worker processes and resumed runs load it again, so draw with a fixed seed"
        )
    return None


def no_shared_images(subject: Subject) -> str | None:
    """No test image is also a training image with another label."""
    data: Dataset = subject.make()
    labels = data.train_labels.tolist(), data.test_labels.tolist()
    train = {row.tobytes(): label for row, label in zip(data.train_images.numpy(), labels[0], strict=True)}
    pairs = [
        (train[key], label)
        for row, label in zip(data.test_images.numpy(), labels[1], strict=True)
        if (key := row.tobytes()) in train
    ]
    other = sum(a != b for a, b in pairs)
    require(not other or other < len(data.test_labels) / 2, f"{other} test images are training images of another label")
    return f"{len(pairs)} test images are also training images" if pairs else None


CHECKS: tuple[Check, ...] = (built, ranges, classes, same_again, no_shared_images)
