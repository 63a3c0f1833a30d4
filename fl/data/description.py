"""Describes a data set: its kind, sizes, classes, owners and balance, and which models and tasks fit it."""

import torch
from torch import Tensor

from .dataset import Dataset

_NAMED = 12


def description(dataset: Dataset) -> dict[str, str]:
    """Return the facts about a data set by their names, each as a short text."""
    channels, height, width = dataset.shape
    table = dataset.rows or (channels, height) == (1, 1)
    facts = {"kind": "rows of a table" if table else "images"}
    if table:
        facts["features"] = str(width)
    else:
        facts["size"] = f"{height}x{width} pixels (height x width)"
        facts["colour"] = {1: "grey", 3: "colour (3 channels)"}.get(channels, f"{channels} channels")
    facts["samples"] = f"{len(dataset.train_labels)} training, {len(dataset.test_labels)} test"
    facts["range"] = f"{float(dataset.train_images.min()):.4g} to {float(dataset.train_images.max()):.4g}"
    counts = torch.bincount(dataset.train_labels, minlength=dataset.classes)
    facts["classes"] = f"{dataset.classes}{_by_class(dataset, counts)}"
    facts["balance"] = _balance(counts)
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
    tasks = [f"{kind} classification" + (" (binary)" if dataset.classes == 2 else "")]
    return [*tasks, "segmentation"] if dataset.train_targets is not None else tasks


def _by_class(dataset: Dataset, counts: Tensor) -> str:
    """The training samples of each class, of many classes the first ones only."""
    names = dataset.class_names or tuple(map(str, range(dataset.classes)))
    shown = [f"{name}: {count}" for name, count in zip(names, counts.tolist(), strict=False)]
    more = f", and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return f" ({', '.join(shown[:_NAMED])}{more})"


def _balance(counts: Tensor) -> str:
    shares = counts.double() / counts.sum()
    empty = int((counts == 0).sum())
    lacking = f"; {empty} classes have no training sample" if empty else ""
    return f"smallest class {float(shares.min()):.1%}, largest class {float(shares.max()):.1%}{lacking}"
