"""Utility: what a model is worth on the test images, and where that is not defined."""

from dataclasses import dataclass

from torch import Tensor

UTILITIES = ("accuracy", "iou", "precision", "recall", "f_score")
"""Metrics of a model: the first of a classifier, the others of a segmentation."""


@dataclass(frozen=True, kw_only=True)
class Utility:
    """One metric, higher is better; ``value`` is None where it is not defined, and ``reason`` says why.

    ``n``: what the value rests on, of which ``unit`` says what it is.
    """

    metric: str
    value: float | None
    n: int
    unit: str
    reason: str = ""


def of_labels(accuracy: float, images: int) -> tuple[Utility, ...]:
    """Of a classifier."""
    return (Utility(metric="accuracy", value=accuracy, n=images, unit="share of test images"),)


def of_pixels(found: Tensor, wanted: Tensor) -> tuple[Utility, ...]:
    """Of a segmentation ``found (n, h, w)`` held against ``wanted``, alike, both booleans.

    IoU, precision, recall and F of the pixels to be found, counted over all images together: with TP hits, FP false
    alarms and FN misses, TP / (TP + FP + FN), TP / (TP + FP), TP / (TP + FN) and 2 TP / (2 TP + FP + FN). A model that
    marks nothing has no precision; its recall, IoU and F are 0. Without a pixel to find there is no recall, and none of
    the others once nothing is marked.

    Raises:
        ValueError: for unequal shapes.
    """
    if found.shape != wanted.shape:
        raise ValueError(f"found must be {tuple(wanted.shape)} as wanted, got {tuple(found.shape)}")
    hits = int((found & wanted).sum())
    alarms, misses = int((found & ~wanted).sum()), int((wanted & ~found).sum())
    nothing = "no pixel of the test images is to be found, and the model marks none"
    return (
        _share("iou", hits, hits + alarms + misses, nothing),
        _share("precision", hits, hits + alarms, "the model marks no pixel of any test image"),
        _share("recall", hits, hits + misses, "no pixel of the test images is to be found"),
        _share("f_score", 2 * hits, 2 * hits + alarms + misses, nothing),
    )


def _share(metric: str, part: int, whole: int, reason: str) -> Utility:
    unit = "share of test pixels"
    if whole == 0:
        return Utility(metric=metric, value=None, n=0, unit=unit, reason=reason)
    return Utility(metric=metric, value=part / whole, n=whole, unit=unit)
