"""The samples of one part of a data set while it is read, and the data set that one or two parts make."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...objective import CLASSIFICATION, MULTILABEL, REGRESSION
from ..dataset import Dataset
from .columns.notation import same_but_for_case
from .options import SplitOptions
from .split import split_note, test_rows
from .targets import LabelRule, empty_labels


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Checked samples, as arrays with one row per sample.

    images: (n, channel, height, width) float32; labels: (n,) int64, (n, labels) booleans where each holds or not, or
    (n, labels) float64 numbers to predict; owners: (n,) int64 from 0 on, or None; masks,
    targets: (n, height, width) booleans, or None.
    """

    images: np.ndarray
    labels: np.ndarray
    owners: np.ndarray | None = None
    masks: np.ndarray | None = None
    targets: np.ndarray | None = None

    def at(self, chosen: np.ndarray) -> "Samples":
        """Return the samples where ``chosen (n,)`` is true."""
        return Samples(
            images=self.images[chosen],
            labels=self.labels[chosen],
            owners=None if self.owners is None else self.owners[chosen],
            masks=None if self.masks is None else self.masks[chosen],
            targets=None if self.targets is None else self.targets[chosen],
        )


def dataset_of(
    train: Samples,
    test: Samples | None,
    *,
    name: str,
    file: str,
    options: SplitOptions,
    classes: int,
    class_names: tuple[str, ...] = (),
    rows: bool = False,
    notes: tuple[str, ...] = (),
    rule: LabelRule | None = None,
    columns: tuple[tuple[str, int], ...] = (),
) -> Dataset:
    """Return the data set of these samples; without a test part, one is split off the training part and reported.

    ``rule``: how the labels of a regression are scaled. The task is a regression where there is one, and otherwise
    follows from the shape of the labels. Raises ValueError, starting with ``file``, if there are too few samples or
    owners to split, or a label cannot be scaled.
    """
    task = REGRESSION if rule else MULTILABEL if train.labels.ndim == 2 else CLASSIFICATION
    if test is None:
        classes_of = train.labels if task == CLASSIFICATION else np.zeros(len(train.labels), dtype=np.int64)
        chosen = test_rows(classes_of, train.owners, options, file)
        notes = (split_note(chosen, train.owners, options), *notes)
        train, test = train.at(~chosen), train.at(chosen)
    scale: tuple[float, ...] = ()
    if rule is not None:
        *labels, scale, note = rule.applied(train.labels, test.labels)
        train, test = (replace(part, labels=one) for part, one in zip((train, test), labels, strict=True))
        notes = (*notes, note)
    if task == MULTILABEL:
        notes = (*notes, *empty_labels(train.labels, class_names or tuple(map(str, range(classes)))))
    if task == CLASSIFICATION and (alike := same_but_for_case(np.array(class_names, dtype=str))):
        notes = (*notes, f"Classes that differ only by case or blanks: {', '.join(map(repr, alike[:4]))}.")
    # Numbered again: an owner whose samples are all test samples is no owner of the training part.
    owners = None if train.owners is None else np.unique(train.owners, return_inverse=True)[1]
    return Dataset(
        name=name,
        train_images=_tensor(train.images),
        train_labels=_tensor(train.labels),
        test_images=_tensor(test.images),
        test_labels=_tensor(test.labels),
        classes=classes,
        train_masks=_optional(train.masks),
        test_masks=_optional(test.masks),
        train_targets=_optional(train.targets),
        test_targets=_optional(test.targets),
        train_owners=_optional(owners),
        rows=rows,
        class_names=class_names,
        notes=notes,
        task=task,
        label_scale=scale,
        columns=columns,
    )


def _optional(values: np.ndarray | None) -> Tensor | None:
    return None if values is None else _tensor(values)


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))
