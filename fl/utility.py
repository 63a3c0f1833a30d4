"""Measures the quality of a model on labelled images, with a reason where a metric is not defined."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .objective import CLASSIFICATION, MULTILABEL, NEXT_TOKEN, REGRESSION, SEGMENTATION

LOSS = "loss"
_ERRORS = ("mean_absolute_error", "mean_squared_error")
UTILITIES = (
    *("accuracy", "iou", "precision", "recall", "f_score"),
    *("r2", *_ERRORS, "macro_f1", "subset_accuracy", LOSS),
)
"""Metrics of a model; ``utility_of`` states which task has which."""


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The result of one model on n labelled images: its predictions, the truth and its losses.

    For a classifier ``found`` (predicted classes) and ``wanted`` (labels) are ``(n,)``, for a segmentation model
    booleans ``(n, h, w)``: the pixels that the model marks, and those to find. For several labels per sample they are
    booleans ``(n, labels)``, for a regression numbers ``(n, labels)``, and for a text the next tokens ``(n, length)``.
    ``losses (n,)`` holds the loss of each image (see ``objective``; cross-entropy with the natural logarithm).
    ``task``: name of the objective. ``scale``: one unit of each label of a regression in the unit in which errors are
    reported; empty: 1.

    Raises:
        ValueError: if the shapes do not fit together.
    """

    found: Tensor
    wanted: Tensor
    losses: Tensor
    task: str = CLASSIFICATION
    scale: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.found.shape != self.wanted.shape:
            raise ValueError(
                f"found (predictions) must have the shape {tuple(self.wanted.shape)} of wanted (the truth), "
                f"got {tuple(self.found.shape)}"
            )
        if self.losses.shape != self.wanted.shape[:1]:
            raise ValueError(f"losses must have shape ({len(self.wanted)},), got {tuple(self.losses.shape)}")


@dataclass(frozen=True, kw_only=True)
class Utility:
    """The value of one utility metric, or the reason why it is not defined.

    ``value`` is None where the metric is not defined; ``reason`` then explains why.

    ``n``: the number of items behind the value; ``unit`` names these items.
    """

    metric: str
    value: float | None
    n: int
    unit: str
    reason: str = ""

    @property
    def direction(self) -> Literal["higher_better", "lower_better"]:
        """Whether a higher or a lower value is better."""
        return "lower_better" if self.metric in (LOSS, *_ERRORS) else "higher_better"


def utility_of(outcomes: Outcomes) -> tuple[Utility, ...]:
    """Compute every utility metric of a model from its ``outcomes``, the most important one first and the loss last.

    A classifier has accuracy, as has a model of texts (the share of next tokens that it predicts), a segmentation model
    IoU, precision, recall and F-score of its pixels. With several labels per sample a model has the macro F1 and the
    subset accuracy, and a regression R2, mean absolute and mean squared error. The loss is the mean over the images.
    """
    return *_METRICS[outcomes.task](outcomes), _loss(outcomes)


def _of_labels(outcomes: Outcomes) -> tuple[Utility, ...]:
    right = (outcomes.found == outcomes.wanted).double()
    unit = "share of next tokens of test texts" if outcomes.task == NEXT_TOKEN else "share of test images"
    return (Utility(metric="accuracy", value=float(right.mean()), n=len(right), unit=unit),)


def _loss(outcomes: Outcomes) -> Utility:
    mean = outcomes.losses.double().mean()
    # Noise can make logits so large that the cross-entropy overflows; records hold finite numbers only.
    finite = bool(mean.isfinite())
    return Utility(
        metric=LOSS,
        value=float(mean) if finite else None,
        n=len(outcomes.losses),
        unit="mean over test images",
        reason="" if finite else "the mean loss on the test images is not a finite number",
    )


def _of_pixels(outcomes: Outcomes) -> tuple[Utility, ...]:
    """IoU, precision, recall and F-score over the pixels of all images together.

    With TP hits, FP false alarms and FN misses they are TP / (TP + FP + FN), TP / (TP + FP), TP / (TP + FN) and
    2 TP / (2 TP + FP + FN). A model that marks no pixel has no precision; its recall, IoU and F-score are 0. Without
    any pixel to find, recall is not defined; if then no pixel is marked either, no metric is.
    """
    found, wanted = outcomes.found, outcomes.wanted
    hits = int((found & wanted).sum())
    alarms, misses = int((found & ~wanted).sum()), int((wanted & ~found).sum())
    # A metric without a denominator is not 0: 0 would rank the model below one that made mistakes.
    nothing = "no test image has a pixel to find, and the model marks none"
    return (
        _share("iou", hits, hits + alarms + misses, nothing),
        _share("precision", hits, hits + alarms, "the model marks no pixel of any test image"),
        _share("recall", hits, hits + misses, "no test image has a pixel to find"),
        _share("f_score", 2 * hits, 2 * hits + alarms + misses, nothing),
    )


def _of_flags(outcomes: Outcomes) -> tuple[Utility, ...]:
    """The mean F1 over those labels that have one, and the share of samples whose labels are all right."""
    each = _f1_of_labels(outcomes, torch.zeros(len(outcomes.wanted), dtype=torch.int64), 1)[0]
    known = each[~each.isnan()]
    right = (outcomes.found == outcomes.wanted).all(1).double()
    return (
        Utility(
            metric="macro_f1",
            value=float(known.mean()) if len(known) else None,
            n=len(known),
            unit="mean over labels of F1",
            reason="" if len(known) else "no label holds for any test sample, and the model predicts none",
        ),
        Utility(metric="subset_accuracy", value=float(right.mean()), n=len(right), unit="share of test samples"),
    )


def _f1_of_labels(outcomes: Outcomes, groups: Tensor, count: int) -> Tensor:
    """2 TP / (2 TP + FP + FN) of each label in each group, ``(count, labels)``; NaN where the label neither holds nor
    is predicted.
    """
    found, wanted = outcomes.found, outcomes.wanted
    empty = torch.zeros(count, wanted.shape[1], dtype=torch.float64)
    hits = empty.index_add(0, groups, (found & wanted).double())
    wrong = empty.index_add(0, groups, (found ^ wanted).double())
    return 2 * hits / (2 * hits + wrong)


def _of_numbers(outcomes: Outcomes) -> tuple[Utility, ...]:
    """R2 (mean over labels of one minus squared error over variance), and errors in the labels' own unit."""
    n = len(outcomes.wanted)
    r2 = float(_r2(outcomes, torch.zeros(n, dtype=torch.int64), 1)[0])
    gap = (outcomes.found - outcomes.wanted).double() * torch.tensor(outcomes.scale or (1.0,), dtype=torch.float64)
    values = {"r2": r2, _ERRORS[0]: float(gap.abs().mean()), _ERRORS[1]: float(gap.square().mean())}
    units = {"r2": "1 - squared error / variance", _ERRORS[0]: "unit of the label", _ERRORS[1]: "squared unit of label"}
    return tuple(
        Utility(
            metric=metric,
            value=value if math.isfinite(value) else None,
            n=n,
            unit=units[metric],
            reason=""
            if math.isfinite(value)
            else "the labels of all test samples are equal"
            if math.isfinite(values[_ERRORS[1]])
            else "a prediction for a test sample, or its square, is not a finite number",
        )
        for metric, value in values.items()
    )


def _r2(outcomes: Outcomes, groups: Tensor, count: int) -> Tensor:
    """R2 within each group, ``(count,)``: the mean over the labels that vary there; NaN where none does."""
    wanted, sizes = outcomes.wanted.double(), torch.bincount(groups, minlength=count).unsqueeze(1)
    empty = torch.zeros(count, wanted.shape[1], dtype=torch.float64)
    means = empty.index_add(0, groups, wanted) / sizes
    about = empty.index_add(0, groups, (wanted - means[groups]).square())
    errors = empty.index_add(0, groups, (outcomes.found.double() - wanted).square())
    # A constant label leaves rounding errors of its mean, by which nothing can be divided.
    about[about <= 1e-12 * sizes] = torch.nan
    return (1 - errors / about).nanmean(1)


def _share(metric: str, part: int, whole: int, reason: str) -> Utility:
    unit = "share of test pixels"
    # The reason is printed in place of a number.
    if whole == 0:
        return Utility(metric=metric, value=None, n=0, unit=unit, reason=reason)
    return Utility(metric=metric, value=part / whole, n=whole, unit=unit)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How unequally a metric of utility falls on groups (classes or clients).

    ``worst``: mean over the worst groups; ``mean`` and ``std``: mean and standard deviation over all ``groups``, each
    group with the same weight. The deviation divides by the number of groups, not by one less: it describes these
    groups, and is no estimate for others. Li et al. (2020, q-FFL) report its square, the variance over clients.
    """

    worst: float
    mean: float
    std: float
    groups: int


def spread_of(values: Tensor, worst_share: float = 0.0) -> Spread | None:
    """Return the spread of the values ``(groups,)``, without NaN values; None if all are NaN.

    ``worst_share``: share of the groups, rounded up, whose mean is ``worst``; by default it is the single worst group.
    Li et al. (2020) report the worst 10 % of the clients.
    """
    kept = values[~values.isnan()].double().sort().values
    if not len(kept):
        return None
    worst = max(1, math.ceil(worst_share * len(kept)))
    std = float(kept.std(correction=0))
    return Spread(worst=float(kept[:worst].mean()), mean=float(kept.mean()), std=std, groups=len(kept))


def by_class(outcomes: Outcomes, classes: int) -> Tensor:
    """Return the accuracy on the images of each class, ``(classes,)``; NaN for a class without images.

    For a segmentation model it is the IoU of each of its two classes of pixels: those to find and all others. For
    several labels per sample it is the F1 of each label. A regression and a text have no classes: ``(0,)``.
    """
    if outcomes.task == CLASSIFICATION:
        return by_group(outcomes, outcomes.wanted, classes)
    if outcomes.task in (REGRESSION, NEXT_TOKEN):
        return torch.zeros(0, dtype=torch.float64)
    if outcomes.task == MULTILABEL:
        return _f1_of_labels(outcomes, torch.zeros(len(outcomes.wanted), dtype=torch.int64), 1)[0]
    found, wanted = outcomes.found, outcomes.wanted
    groups = torch.zeros(len(wanted), dtype=torch.int64)
    return torch.cat([_iou(found, wanted, groups, 1), _iou(~found, ~wanted, groups, 1)])


def by_group(outcomes: Outcomes, groups: Tensor, count: int) -> Tensor:
    """Return the first metric of ``utility_of`` on the images of each group, ``(count,)``, float64.

    ``groups (n,)``: the number of each image's group, in 0..count - 1. A group without images has NaN, and one in which
    the metric is not defined, such as R2 where all labels are equal.
    """
    if outcomes.task == SEGMENTATION:
        return _iou(outcomes.found, outcomes.wanted, groups, count)
    if outcomes.task == REGRESSION:
        return _r2(outcomes, groups, count)
    if outcomes.task == MULTILABEL:
        return _f1_of_labels(outcomes, groups, count).nanmean(1)
    right = (outcomes.found == outcomes.wanted).double()
    if outcomes.task == NEXT_TOKEN:
        right = right.mean(1)
    return torch.bincount(groups, right, count) / torch.bincount(groups, minlength=count)


def _iou(found: Tensor, wanted: Tensor, groups: Tensor, count: int) -> Tensor:
    both, either = ((pixels.flatten(1).sum(1).double()) for pixels in (found & wanted, found | wanted))
    return torch.bincount(groups, both, count) / torch.bincount(groups, either, count)


_METRICS = {
    CLASSIFICATION: _of_labels,
    SEGMENTATION: _of_pixels,
    MULTILABEL: _of_flags,
    REGRESSION: _of_numbers,
    NEXT_TOKEN: _of_labels,
}
