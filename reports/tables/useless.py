"""Find models that are of no use: no better than an answer that ignores its input."""

from collections.abc import Sequence

from ...audit.binomial import upper_bound
from ...suites.results.record import Record
from .numerals import metric_value

_ERROR = 0.05
"""Probability that a model which guesses counts as better than guessing."""
_ROUNDING = 1e-9


def useless_words(rows: Sequence[Record]) -> str:
    """Return why a model is of no use, from its measured utility rows of all seeds; empty if it is, or cannot be
    judged.

    A classifier of ``k`` classes must exceed an accuracy of 1/k by more than chance on the test images of one seed
    (one-sided Clopper-Pearson bound), and a mean accuracy over classes of 1/k, which every model has that names one
    class always, however large that class is. A regression must exceed an R2 of 0, which the mean of the labels has.
    """
    shown = {name: [row for row in rows if row.metric == name] for name in ("accuracy", "class_accuracy_mean", "r2")}
    if shown["r2"] and _mean(shown["r2"]) <= 0:
        return "no better than always answering the mean"
    accuracy, by_class = shown["accuracy"], shown["class_accuracy_mean"]
    classes = max((row.n or 0 for row in by_class), default=0)
    images = min((row.n or 0 for row in accuracy), default=0)
    if classes < 2 or images < 1:
        return ""
    found, guess = _mean(accuracy), 1 / classes
    low = 1 - float(upper_bound(images - round(found * images), images, _ERROR))
    if low <= guess:
        return f"not clearly better than guessing, {metric_value('accuracy', guess)}"
    if _mean(by_class) <= guess + _ROUNDING:
        return "no better than always naming the same class"
    return ""


def _mean(rows: Sequence[Record]) -> float:
    return sum(row.value or 0.0 for row in rows) / len(rows)
