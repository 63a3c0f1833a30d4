"""Combine a measurement over seeds and images into one value with a confidence interval."""

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
    """

    value: float
    low: float | None
    high: float | None
    n: int
    method: str


def grouped(records: "Iterable[Record]", *fields: str) -> "list[list[Record]]":
    """Group result rows that agree in all of ``fields``; groups are in the order of their first row."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(getattr(record, field) for field in fields), []).append(record)
    return list(groups.values())


def mean_over_seeds(values: Sequence[float]) -> Pooled:
    """Compute the mean of ``values``, array ``(n,)`` with one entry per seed (n >= 1), with a two-sided 95 % t
    interval.

    The interval is not cut to the metric's range. Equal values give no interval: a width of zero would claim certainty.
    """
    import numpy as np
    from scipy.special import stdtrit

    sample = _sample(values)
    mean = float(sample.mean())
    if len(sample) == 1:
        return Pooled(value=mean, low=None, high=None, n=1, method="one seed, no interval")
    if np.ptp(sample) == 0.0:
        return Pooled(value=mean, low=None, high=None, n=len(sample), method="all seeds equal, no interval")
    # ddof=1: with three seeds the other estimate of the variance would be a third too small.
    standard_error = float(sample.std(ddof=1)) / len(sample) ** 0.5
    half = float(stdtrit(len(sample) - 1, 0.5 + LEVEL / 2)) * standard_error
    return Pooled(
        value=mean, low=mean - half, high=mean + half, n=len(sample), method="mean over seeds, 95 % t interval"
    )


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
    return Pooled(value=median, low=float(low), high=float(high), n=len(sample), method=method)


def _sample(values: Sequence[float]) -> "np.ndarray":
    import numpy as np

    sample = np.asarray(values, dtype=float)
    if sample.ndim != 1 or sample.size == 0 or not np.isfinite(sample).all():
        raise ValueError(f"values must be a one-dimensional, non-empty array of finite numbers, got {values!r}")
    return sample
