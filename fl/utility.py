"""Measures the quality of a model on the test images, with a reason where a metric is not defined."""

from dataclasses import dataclass

from torch import Tensor

UTILITIES = ("accuracy", "iou", "precision", "recall", "f_score")
"""Metrics of a model: accuracy for a classifier, the others for a segmentation model."""


@dataclass(frozen=True, kw_only=True)
class Utility:
    """The value of one utility metric, higher is better, or the reason why it is not defined.

    ``value`` is None where the metric is not defined; ``reason`` then explains why.

    ``n``: the number of items behind the value; ``unit`` names these items.
    """

    metric: str
    value: float | None
    n: int
    unit: str
    reason: str = ""


def of_labels(accuracy: float, images: int) -> tuple[Utility, ...]:
    """Return the utility of a classifier, which is its accuracy; ``images`` is the number of test images."""
    return (Utility(metric="accuracy", value=accuracy, n=images, unit="share of test images"),)


def of_pixels(found: Tensor, wanted: Tensor) -> tuple[Utility, ...]:
    """Compute the utility of a segmentation model: IoU, precision, recall and F-score of its pixels.

    ``found (n, h, w)`` is compared with the truth ``wanted (n, h, w)``, both booleans.

    IoU, precision, recall and F-score over the pixels of all images together. With TP hits, FP false alarms and FN
    misses they are TP / (TP + FP + FN), TP / (TP + FP), TP / (TP + FN) and 2 TP / (2 TP + FP + FN). A model that marks
    no pixel has no precision; its recall, IoU and F-score are 0. Without any pixel to find, recall is not defined; if
    then no pixel is marked either, no metric is.

    Raises:
        ValueError: if the shapes differ.
    """
    if found.shape != wanted.shape:
        raise ValueError(
            f"found (marked pixels) must have the shape {tuple(wanted.shape)} of wanted (target pixels), "
            f"got {tuple(found.shape)}"
        )
    hits = int((found & wanted).sum())
    alarms, misses = int((found & ~wanted).sum()), int((wanted & ~found).sum())
    # A metric without a denominator is not 0: 0 would rank the model below one that made mistakes.
    nothing = "no pixel of the test images is to be found, and the model marks none"
    return (
        _share("iou", hits, hits + alarms + misses, nothing),
        _share("precision", hits, hits + alarms, "the model marks no pixel of any test image"),
        _share("recall", hits, hits + misses, "no pixel of the test images is to be found"),
        _share("f_score", 2 * hits, 2 * hits + alarms + misses, nothing),
    )


def _share(metric: str, part: int, whole: int, reason: str) -> Utility:
    unit = "share of test pixels"
    # The reason is printed in place of a number.
    if whole == 0:
        return Utility(metric=metric, value=None, n=0, unit=unit, reason=reason)
    return Utility(metric=metric, value=part / whole, n=whole, unit=unit)
