"""Pool a measurement over seeds and images into one value with a confidence interval, also round by round."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np

from ...suites.results.claims_file import StatedClaim
from ...suites.results.record import Record
from .run_folder import RunFolder, once_per_run

K = TypeVar("K")
T = TypeVar("T")
LEVEL = 0.95
"""Confidence level of every interval of a report; joint for the attacks that are compared with each other."""
# Enough for the 2.5 % quantiles, each of which then rests on fifty draws.
BOOTSTRAP_DRAWS = 2000
BOOTSTRAP_SEED = 0
TWO_SEEDS = "2 seeds, no interval"
_JACKKNIFE = re.compile(r"t interval by a jackknife of (\d+) groups")


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """A pooled value and its confidence interval; if the values allow none, ``low`` and ``high`` are None and
    ``method`` states the reason.

    ``over``: what the interval covers other draws of, such as ``3 seeds``; empty without one. ``both``: the values of
    two seeds, which are shown in place of an interval. ``limits``: the smallest and the largest possible value.
    ``at_level``: computes the interval at another confidence level; None if that takes more than is stored.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    method: str
    over: str = ""
    both: tuple[float, ...] = ()
    limits: tuple[float, float] = (-math.inf, math.inf)
    at_level: Callable[[float], tuple[float, float]] | None = field(default=None, compare=False, repr=False)

    def joint(self, of: int) -> "Pooled":
        """Return the confidence interval widened so that it holds jointly for ``of`` values (Bonferroni): the interval
        of the same method at the higher level. Where that needs more than is stored, each end moves away from the value
        by the ratio of quantiles (of Student's t for a jackknife, else of the normal distribution), an approximation.
        """
        from scipy.special import ndtri, stdtrit

        if self.low is None or self.high is None or of == 1:
            return self
        if self.at_level is not None:
            low, high = self.at_level(1 - (1 - LEVEL) / of)
            return replace(self, low=low, high=high)
        tail, groups = (1 - LEVEL) / 2, _JACKKNIFE.search(self.method)
        own, wide = (float(stdtrit(int(groups[1]) - 1, one) if groups else ndtri(one)) for one in (tail, tail / of))
        low, high = (self.value + wide / own * (end - self.value) for end in (self.low, self.high))
        return replace(self, low=max(low, self.limits[0]), high=min(high, self.limits[1]))


def gathered(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Group the second members of pairs by the first members; both keep the order of their first occurrence."""
    groups: dict[K, list[T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def grouped(rows: Iterable[T], *fields: str) -> list[list[T]]:
    """Group rows that agree in all of ``fields``; groups are in the order of their first row."""
    return list(gathered((tuple(getattr(row, field) for field in fields), row) for row in rows).values())


def shared(row: object, *names: str) -> dict[str, Any]:
    """Return some fields of a row, keyed by name, for a table row that has the same fields."""
    return {name: getattr(row, name) for name in names}


def mean_over_seeds(
    values: Sequence[float],
    *,
    share: bool = False,
    limits: tuple[float, float] = (-math.inf, math.inf),
    level: float = LEVEL,
) -> Pooled:
    """Compute the mean of ``values``, array ``(n,)`` with one entry per seed (n >= 1), with a two-sided t interval.

    Equal values give no interval: a width of zero would claim certainty. Nor do two: it would reach 12.7 standard
    errors to each side, which informs no reader. ``share``: whether the values are shares in
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
        return Pooled(
            value=mean,
            low=None,
            high=None,
            n=len(sample),
            method="all seeds have the same value, so there is no interval",
        )
    if len(sample) == 2:
        return Pooled(value=mean, low=None, high=None, n=2, method=TWO_SEEDS, both=tuple(sample.tolist()))
    # ddof=1: with three seeds the other estimate of the variance would be a third too small.
    standard_error = float(sample.std(ddof=1)) / len(sample) ** 0.5
    own = float(stdtrit(len(sample) - 1, 0.5 + level / 2)) * standard_error
    on_logits = share and 0 < mean < 1 and not 0 <= mean - own <= mean + own <= 1
    least, most = (max(limits[0], 0.0), min(limits[1], 1.0)) if share else limits

    # The scale stays that of ``level``: at a higher level it would not always give an interval that holds the own one.
    def at_level(confidence: float) -> tuple[float, float]:
        half = float(stdtrit(len(sample) - 1, 0.5 + confidence / 2)) * standard_error
        low, high = mean - half, mean + half
        if on_logits:
            # The derivative of the logit at the mean is 1 / (m (1 - m)).
            half /= mean * (1 - mean)
            low, high = float(expit(logit(mean) - half)), float(expit(logit(mean) + half))
        # Values outside of the limits are impossible, so the shorter interval covers the true mean as often.
        return max(low, least), min(high, most)

    low, high = at_level(level)
    method = f"mean over seeds, {100 * level:g} % t interval{' on the logit scale' if on_logits else ''}"
    over = f"{len(sample)} seeds"
    return Pooled(value=mean, low=low, high=high, n=len(sample), method=method, over=over, at_level=at_level)


def count_over_seeds(correct: int, units: int, *, seeds: int, kind: str) -> Pooled:
    """Return the share ``correct`` of ``units`` over all seeds with its exact two-sided 95 % interval (Clopper and
    Pearson 1934).

    For seeds with equal shares, which give no interval over seeds. The units are treated as independent trials with
    one probability. ``kind``: what is counted, such as ``uploads``.
    """
    low, high = exact_ends(correct, units, LEVEL)
    return Pooled(
        value=correct / units,
        low=low,
        high=high,
        n=seeds,
        method=f"all seeds have the same value; 95 % Clopper-Pearson interval over the {kind} of all seeds",
        over=f"{units} {kind} of all seeds",
        at_level=partial(exact_ends, correct, units),
    )


def exact_ends(correct: int, units: int, level: float) -> tuple[float, float]:
    """Return the two-sided Clopper-Pearson interval of the share ``correct`` of ``units`` at a confidence level."""
    from ...audit.binomial import upper_bound

    alpha = (1 - level) / 2
    return 1 - float(upper_bound(units - correct, units, alpha)), float(upper_bound(correct, units, alpha))


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
    "mse": (0.0, math.inf),
    "lpips": (0.0, math.inf),
}
"""Of metrics of attacks. Two have a unit that begins with ``share of``, but may be negative, or above 1."""


def limits_of(metric: str) -> tuple[float, float]:
    """Return the smallest and the largest possible value of a metric, if they are known and finite."""
    return _LIMITS.get(metric, (-math.inf, math.inf))


_SPREAD = [f"{of}_{name}_{part}" for of in ("class", "client") for name in _QUALITIES for part in ("worst", "mean")]
_SHARES = frozenset({*_QUALITIES, *_SPREAD, "auc", "subset_accuracy", "tpr", "fpr"})


def is_share(record: Record) -> bool:
    """Return whether a result row's value is a share or a probability, which lies in [0, 1]."""
    if record.metric in _ATTACK_LIMITS:
        return False
    return record.unit.startswith(("probability", "share of")) or record.metric in _SHARES


def range_of(record: Record) -> tuple[float, float]:
    """Return the smallest and the largest possible value of a result row's metric."""
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


Curve = Mapping[int, Pooled]
"""Number of rounds so far -> mean over seeds, in the order of the rounds."""


@dataclass(frozen=True, kw_only=True)
class Leakage:
    """The AUC of one attack on one defense after each round."""

    federation: str
    defense: str
    control: bool
    attack: str
    null: bool
    curve: Curve


@once_per_run
def leakages(folder: RunFolder) -> list[Leakage]:
    """Pool the AUC after each round over seeds for each federation, defense and attack, in the suite's order; null
    attacks, which ignore what they observe, come last.

    Attacks that scored only once, at the end, are left out.
    """
    order = folder.order
    scored = (record for record in folder.rows("attack", "null", status="ok") if record.metric == "auc")
    found = [
        Leakage(
            **shared(group[0], "federation", "defense", "control", "attack"),
            null=group[0].role == "null",
            curve=curve,
        )
        for group in grouped(scored, "federation", "defense", "observer", "attack")
        if len(curve := _curve(folder, group, "auc")) > 1
    ]
    return sorted(found, key=lambda one: (order.place(one), one.null, order.attack(one.attack)))


def utility_curve(folder: RunFolder, federation: str, defense: str, metric: str = "accuracy") -> Curve:
    """Return the test accuracy, or another metric of utility such as the loss, after each round; empty if training
    stored no values by round.
    """
    return _trainings(folder)(federation, defense, metric)


@once_per_run
def _trainings(folder: RunFolder) -> Callable[[str, str, str], Curve]:
    """A function that reads and pools a curve on first use, because several figures draw the same curves."""
    rows = grouped(folder.rows("utility", status="ok"), "federation", "defense", "metric")
    groups = {(group[0].federation, group[0].defense, group[0].metric): group for group in rows}

    @cache
    def curve(federation: str, defense: str, metric: str) -> Curve:
        return _curve(folder, groups.get((federation, defense, metric), []), metric)

    return curve


def spent(folder: RunFolder, federation: str, defense: str) -> list[StatedClaim]:
    """Return the defense's claims that also state the epsilon spent up to intermediate rounds."""
    return [one for one in folder.claims_on(federation, defense) if one.spent]


def thinned(rounds: Iterable[int], count: int) -> list[int]:
    """Choose at most ``count`` of these rounds for a table, evenly spaced and always including the last one."""
    ordered = sorted(rounds)
    # A set, because a short list would give the same place several times.
    places = {round((number + 1) * len(ordered) / count) - 1 for number in range(count)}
    return [ordered[place] for place in sorted(places) if place >= 0]


def _curve(folder: RunFolder, records: Iterable[Record], name: str) -> Curve:
    """The mean over seeds at each round that all seeds have."""
    stored = [folder.files.rounds(record) for record in sorted(records, key=lambda record: record.seed or 0)]
    seeds = [{int(row["round"]): row for row in rows if {"round", name} <= row.keys()} for rows in stored if rows]
    # A failed seed may have fewer rounds; a mean over changing seeds would jump where one of them ends.
    common = sorted(set.intersection(*(set(rows) for rows in seeds))) if seeds else []
    return {number: _pooled([rows[number] for rows in seeds], name) for number in common}


def _pooled(rows: list[dict[str, float]], name: str) -> Pooled:
    """The mean over seeds; for a single seed with the interval that its cell stored, if any."""
    ends = {f"{name}_low", f"{name}_high"}
    if len(rows) == 1 and ends <= rows[0].keys():
        only = rows[0]
        return Pooled(value=only[name], low=only[f"{name}_low"], high=only[f"{name}_high"], n=1, method="of this run")
    # Sorted, because the order of summation would change the last digit.
    return mean_over_seeds(sorted(row[name] for row in rows), share=named_share(name), limits=limits_of(name))
