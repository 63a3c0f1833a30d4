"""Combine a measurement over seeds and images into one value with a confidence interval."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ...suites.results.record import Record

LEVEL = 0.95
"""Confidence level of every interval of a report; joint for the attacks that are compared with each other."""
# Enough for the 2.5 % quantiles, each of which then rests on fifty draws.
BOOTSTRAP_DRAWS = 2000
BOOTSTRAP_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """A pooled value and its confidence interval; if the values allow none, ``low`` and ``high`` are None and
    ``method`` states the reason.

    ``over``: what the interval covers other draws of, such as ``3 seeds``; empty without one.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    method: str
    over: str = ""


def grouped(records: "Iterable[Record]", *fields: str) -> "list[list[Record]]":
    """Group result rows that agree in all of ``fields``; groups are in the order of their first row."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(getattr(record, field) for field in fields), []).append(record)
    return list(groups.values())


def mean_over_seeds(
    values: Sequence[float], *, share: bool = False, limits: tuple[float, float] = (-math.inf, math.inf)
) -> Pooled:
    """Compute the mean of ``values``, array ``(n,)`` with one entry per seed (n >= 1), with a two-sided 95 % t
    interval.

    Equal values give no interval: a width of zero would claim certainty. ``share``: whether the values are shares in
    [0, 1], such as an accuracy; where the interval would leave that range, it is computed on the logit scale (delta
    method), on which it cannot. ``limits``: the least and the largest value that the metric can have, at which the
    interval ends.
    """
    import numpy as np
    from scipy.special import expit, logit, stdtrit

    sample = _sample(values)
    mean = float(sample.mean())
    if len(sample) == 1:
        return Pooled(value=mean, low=None, high=None, n=1, method="one seed, no interval")
    if np.ptp(sample) == 0.0:
        return Pooled(value=mean, low=None, high=None, n=len(sample), method="all seeds equal, no interval")
    # ddof=1: with three seeds the other estimate of the variance would be a third too small.
    standard_error = float(sample.std(ddof=1)) / len(sample) ** 0.5
    half = float(stdtrit(len(sample) - 1, 0.5 + LEVEL / 2)) * standard_error
    low, high, method = mean - half, mean + half, "mean over seeds, 95 % t interval"
    if share and 0 < mean < 1 and not 0 <= low <= high <= 1:
        # The derivative of the logit at the mean is 1 / (m (1 - m)).
        half /= mean * (1 - mean)
        low, high = float(expit(logit(mean) - half)), float(expit(logit(mean) + half))
        method += " on the logit scale"
    # Values outside of the limits are impossible, so the shorter interval covers the true mean as often.
    low, high = max(low, limits[0]), min(high, limits[1])
    return Pooled(value=mean, low=low, high=high, n=len(sample), method=method, over=f"{len(sample)} seeds")


def count_over_seeds(correct: int, units: int, *, seeds: int, kind: str) -> Pooled:
    """Return the share ``correct`` of ``units`` over all seeds with its exact two-sided 95 % interval (Clopper and
    Pearson 1934).

    For seeds with equal shares, which give no interval over seeds. The units are treated as independent trials with
    one probability. ``kind``: what is counted, such as ``uploads``.
    """
    from ...audit.binomial import upper_bound

    alpha = (1 - LEVEL) / 2
    return Pooled(
        value=correct / units,
        low=1 - float(upper_bound(units - correct, units, alpha)),
        high=float(upper_bound(correct, units, alpha)),
        n=seeds,
        method=f"all seeds equal, 95 % Clopper-Pearson over the {kind} of all seeds",
        over=f"{units} {kind} of all seeds",
    )


_QUALITIES = ("accuracy", "iou", "macro_f1")
_LIMITS = {
    "mean_absolute_error": (0.0, math.inf),
    "mean_squared_error": (0.0, math.inf),
    "loss": (0.0, math.inf),
    **{f"{of}_{name}_std": (0.0, math.inf) for of in ("class", "client") for name in _QUALITIES},
    **dict.fromkeys(("r2", "client_r2_worst", "client_r2_mean"), (-math.inf, 1.0)),
}


_ATTACK_LIMITS = {
    "label_over_chance": (-math.inf, 1.0),
    "label_count_error": (0.0, math.inf),
    "column_error": (0.0, math.inf),
    "column_mse": (0.0, math.inf),
}
"""Of metrics of attacks. Two have a unit that begins with ``share of``, but may be negative, or above 1."""


def limits_of(metric: str) -> tuple[float, float]:
    """Return the least and the largest value that a metric can have, where that is known and finite."""
    return _LIMITS.get(metric, (-math.inf, math.inf))


_SPREAD = [f"{of}_{name}_{part}" for of in ("class", "client") for name in _QUALITIES for part in ("worst", "mean")]
_SHARES = frozenset({*_QUALITIES, *_SPREAD, "auc", "subset_accuracy", "tpr", "fpr"})


def is_share(record: "Record") -> bool:
    """Return whether a result row's value is a share or a probability, which lies in [0, 1]."""
    if record.metric in _ATTACK_LIMITS:
        return False
    return record.unit.startswith(("probability", "share of")) or record.metric in _SHARES


def range_of(record: "Record") -> tuple[float, float]:
    """Return the least and the largest value that a result row's metric can have."""
    if is_share(record):
        return 0.0, 1.0
    # An attack's metric may have the name of a utility metric.
    own = limits_of(record.metric) if record.role == "utility" else (-math.inf, math.inf)
    return _ATTACK_LIMITS.get(record.metric, own)


def named_share(metric: str) -> bool:
    """Return whether the values of a metric, given by its name alone, lie in [0, 1]."""
    return metric in _SHARES


def median_over_images(values: Sequence[float]) -> Pooled:
    """Compute the median over images with a 95 % percentile-bootstrap interval.

    ``values``: (n,), one per image and seed, n >= 1.

    The bootstrap treats rows as independent. Images of one training run share its noise, which makes the interval too
    narrow. The draws have a fixed seed, so equal values give equal intervals in every report.
    """
    import numpy as np

    sample = _sample(values)
    median = float(np.median(sample))
    if len(sample) == 1:
        return Pooled(value=median, low=None, high=None, n=1, method="one image, no interval")
    # A generator of its own, so that a report neither reads nor changes the global random state.
    rows = np.random.default_rng(BOOTSTRAP_SEED).integers(len(sample), size=(BOOTSTRAP_DRAWS, len(sample)))
    medians = np.median(sample[rows], axis=1)
    low, high = np.quantile(medians, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    method = "median over images and seeds, 95 % percentile bootstrap"
    over = f"{len(sample)} images"
    return Pooled(value=median, low=float(low), high=float(high), n=len(sample), method=method, over=over)


def _sample(values: Sequence[float]) -> "np.ndarray":
    import numpy as np

    sample = np.asarray(values, dtype=float)
    if sample.ndim != 1 or sample.size == 0 or not np.isfinite(sample).all():
        raise ValueError(f"values must be a one-dimensional, non-empty array of finite numbers, got {values!r}")
    return sample
