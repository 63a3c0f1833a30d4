"""Compute how many labels behind each update an attack counted correctly, compared with a guess of equal counts."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from ...audit.arrays import BoolArray, FloatArray
from ...audit.binomial import upper_bound


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value with its confidence interval; both ends are None if there is none."""

    value: float
    low: float | None = None
    high: float | None = None
    method: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The value and its interval as fields of a result row."""
        ends = {"ci_low": self.low, "ci_high": self.high, "ci_level": None if self.low is None else 0.95}
        return {"value": self.value, **ends, "ci_method": self.method}

    def over_chance(self, chance: float) -> "Interval":
        """Return this accuracy rescaled, so that ``chance`` scores 0 and a perfect attack 1."""
        low, high = (None if end is None else (end - chance) / (1 - chance) for end in (self.low, self.high))
        return replace(self, value=(self.value - chance) / (1 - chance), low=low, high=high)


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelScores:
    """The scores of a label attack, as arrays with one entry per client update; properties pool them over all updates.

    Args:
        accuracy: (n,), multiset accuracy: labels counted correctly, divided by the number of labels (or of guesses, if
            larger).
        chance: (n,), the accuracy of the reference, by default equal counts for all classes: 1/classes for one sample.
        total_variation: (n,), distance of the two class distributions, in [0, 1]; 0 is correct.
        exact: (n,), true where every class's count is correct; for one-sample uploads, where the label is.
        count_error: (n,), absolute error of a class's count in samples, on average over the classes.
        existence: (n,), class-existence accuracy: share of classes correctly guessed as present or absent.
        counted: (n,), label-count accuracy (Ma et al. 2023): share of classes with a correct count. It includes absent
            classes with a count of zero, which are most of ten classes in small lots.
        sizes: (n,), samples behind each upload.
    """

    accuracy: FloatArray
    chance: FloatArray
    total_variation: FloatArray
    exact: BoolArray
    count_error: FloatArray
    existence: FloatArray
    counted: FloatArray
    sizes: FloatArray

    @property
    def chance_accuracy(self) -> float:
        """The fraction of labels that the reference counts correctly, by default equal counts for all classes."""
        return float(np.average(self.chance, weights=self.sizes))

    @property
    def over_chance(self) -> Interval | None:
        """The accuracy of label counts with its confidence interval, rescaled so that the reference, by default a guess
        of equal counts for all classes, scores 0 and a perfect attack 1. Worse guesses have negative scores.

        None where the reference is the truth: then there is nothing to infer.
        """
        if np.isclose(self.chance_accuracy, 1):
            return None
        weights = self.sizes * (1 - self.chance)
        # Weighted by the possible gain: the weighted mean of these ratios is then the ratio of the means.
        gains = np.divide(self.accuracy - self.chance, 1 - self.chance, out=np.zeros(len(weights)), where=weights > 0)
        return mean_interval(gains, weights)


def mean_interval(values: ArrayLike, weights: ArrayLike | None = None) -> Interval:
    """Compute the mean of ``values (n,)``, weighted by ``weights (n,)``, with a 95 % t interval over the n client
    updates.

    The variance of a weighted mean is that of its linear approximation. The interval is not truncated to the metric's
    range. There is none for a single value, or for equal ones.
    """
    sample = np.asarray(values, dtype=np.float64)
    share = np.ones(len(sample)) if weights is None else np.asarray(weights, dtype=np.float64)
    mean = float(np.average(sample, weights=share))
    # Equal values would give an interval of width zero, which would claim certainty.
    if len(sample) < 2 or np.ptp(sample) == 0:
        return Interval(value=mean)
    error = float((share / share.mean() * (sample - mean)).std(ddof=1)) / len(sample) ** 0.5
    half = float(stdtrit(len(sample) - 1, 0.975)) * error
    return Interval(value=mean, low=mean - half, high=mean + half, method="95 % t over uploads")


def rate_interval(right: ArrayLike) -> Interval:
    """Compute the fraction of true values in ``right (n,)``, with a two-sided 95 % Clopper-Pearson interval."""
    given = np.asarray(right, dtype=bool)
    n, k = len(given), int(given.sum())
    # The lower bound on successes is the complement of the upper bound on failures.
    low, high = 1 - float(upper_bound(n - k, n, 0.025)), float(upper_bound(k, n, 0.025))
    return Interval(value=k / n, low=low, high=high, method="95 % Clopper-Pearson over uploads")


def score_labels(counts: ArrayLike, truth: ArrayLike, reference: ArrayLike | None = None) -> LabelScores:
    """Compare guessed label counts with the true ones for each of n client updates. Both are arrays ``(n, classes)`` of
    numbers of samples per class; true counts are integers, and guessed counts may be fractions.

    ``reference``: (n, classes), the counts that an adversary without any information guesses; None: equal ones.

    Guessed counts may be fractions. A guess of more labels than there are is divided by the number of guesses, because
    otherwise guessing many of every class would be perfect. Raises ValueError for unequal shapes, negative numbers, or
    a row of zeros.
    """
    guessed, true = _checked_counts("counts", counts), _checked_counts("truth", truth)
    if guessed.shape != true.shape:
        raise ValueError(f"counts and truth must have the same shape, got {guessed.shape} and {true.shape}")
    if not np.array_equal(true, np.rint(true)):
        raise ValueError(
            "truth must hold whole numbers, the number of samples of each class, got "
            f"{true[true != np.rint(true)][0]:g}"
        )
    named, sizes = guessed.sum(1, keepdims=True), true.sum(1, keepdims=True)
    uninformed = sizes / true.shape[1] if reference is None else np.asarray(reference, dtype=np.float64)
    return LabelScores(
        accuracy=(np.minimum(guessed, true).sum(1, keepdims=True) / np.maximum(named, sizes))[:, 0],
        chance=(np.minimum(uninformed, true).sum(1, keepdims=True) / sizes)[:, 0],
        total_variation=np.abs(guessed / named - true / sizes).sum(1) / 2,
        exact=(guessed == true).all(1),
        count_error=np.abs(guessed - true).mean(1),
        existence=((guessed > 0) == (true > 0)).mean(1),
        counted=(guessed == true).mean(1),
        sizes=sizes[:, 0],
    )


def _checked_counts(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"{name} must have shape (n, classes), got shape {array.shape}")
    if not (np.isfinite(array).all() and array.min() >= 0):
        raise ValueError(f"{name} must be finite and >= 0, got {array.min()} to {array.max()}")
    # Scores divide by the number of labels.
    empty = np.flatnonzero(array.sum(1) == 0)
    if len(empty):
        raise ValueError(
            f"{name} must count at least one label for every client update, got none for updates {empty.tolist()}"
        )
    return array
