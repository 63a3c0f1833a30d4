"""Describes a data set: its kind, sizes, classes, owners and balance, and which models and tasks fit it."""

import torch
from torch import Tensor

from ..objective import CLASSIFICATION, MULTILABEL, NEXT_TOKEN, REGRESSION
from .dataset import Dataset

_NAMED = 12


def description(dataset: Dataset) -> dict[str, str]:
    """Return the facts about a data set by their names, each as a short text."""
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
    return {"numbers to predict": f"{dataset.classes} ({_first(found, '; ')})"}


def _flags(dataset: Dataset) -> dict[str, str]:
    """The share of training samples for which each label holds."""
    names = dataset.class_names or tuple(map(str, range(dataset.classes)))
    shares = dataset.train_labels.double().mean(0).tolist()
    found = [f"{name}: {share:.1%}" for name, share in zip(names, shares, strict=True)]
    each = float(dataset.train_labels.double().sum(1).mean())
    return {
        "labels": f"{dataset.classes} ({_first(found, ', ')})",
        "balance": f"{each:.2g} labels per sample on average",
    }


def _tokens(dataset: Dataset) -> dict[str, str]:
    """The size of the vocabulary, and how much of the texts its most frequent token makes up."""
    shares = torch.bincount(dataset.train_labels.flatten(), minlength=dataset.classes).double()
    return {"vocabulary": f"{dataset.classes} tokens, the most frequent {float(shares.max() / shares.sum()):.1%}"}


_LABELS = {CLASSIFICATION: _classes, REGRESSION: _numbers, MULTILABEL: _flags, NEXT_TOKEN: _tokens}


def _first(found: list[str], separator: str) -> str:
    more = f", and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{separator.join(found[:_NAMED])}{more}"


def _by_class(dataset: Dataset, counts: Tensor) -> str:
    """The training samples of each class, of many classes the first ones only."""
    names = dataset.class_names or tuple(map(str, range(dataset.classes)))
    shown = [f"{name}: {count}" for name, count in zip(names, counts.tolist(), strict=False)]
    return f" ({_first(shown, ', ')})"


def _balance(counts: Tensor) -> str:
    shares = counts.double() / counts.sum()
    empty = int((counts == 0).sum())
    has = "class has" if empty == 1 else "classes have"
    lacking = f"; {empty} {has} no training sample" if empty else ""
    return f"smallest class {float(shares.min()):.1%}, largest class {float(shares.max()):.1%}{lacking}"
