"""Scores that separate two groups of observations: a linear score, and scores of cells, of places and of repeated
values, which see differences that a linear score cannot.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.claim import Claim
from ...audit.mechanism.columns import Columns, coordinates
from ...audit.mechanism.scores import Score, learn_marginals
from ...audit.mechanism.search import Event
from ...audit.mechanism.trials import scored_events
from ...audit.threshold import CountingPlan

_TAIL, _LARGE = 1e-3, 1e30
"""Share of the runs beyond each end of a number's range, and what stands for one that is not finite."""
_SHRINKAGE = 0.05
"""Least share of the covariance that is replaced by its diagonal, so that it can be inverted."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Limits:
    """The range of each number (numbers,) in the runs from which a score is learned, and its scale there."""

    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, runs: FloatArray) -> "_Limits":
        low, high = np.quantile(_finite(runs), [_TAIL, 1 - _TAIL], axis=0)
        return cls(low=low, high=high)

    @property
    def scale(self) -> FloatArray:
        return self.high - self.low

    def kept(self, runs: FloatArray) -> FloatArray:
        # A run that diverged has numbers of any size, or none: cut off, it remains an observation like any other.
        return np.clip(_finite(runs), self.low, self.high)


def _finite(runs: FloatArray) -> FloatArray:
    return np.nan_to_num(runs, nan=_LARGE, posinf=_LARGE, neginf=-_LARGE)


def discriminant(out: FloatArray, within: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return the linear discriminant (Fisher 1936) of two groups ``(n, numbers)``; higher values mean the group
    ``within``.

    Numbers are cut off at their extremes in these groups. The covariance is shrunk towards its diagonal, by the share
    that Ledoit and Wolf (2004) estimate, so that there may be more numbers than runs.
    """
    limits = _Limits.of(np.concatenate([out, within]))
    # A number that never varies, or varies by rounding alone, carries nothing that a score could use.
    useful = limits.scale > 1e-9 * np.maximum(1e-30, np.maximum(np.abs(limits.low), np.abs(limits.high)))
    if not useful.any():
        return lambda runs: np.zeros(len(runs))

    def scaled(runs: FloatArray) -> FloatArray:
        return ((limits.kept(runs) - limits.low) / np.where(useful, limits.scale, 1.0))[:, useful]

    zero, one = scaled(out), scaled(within)
    difference = one.mean(0) - zero.mean(0)
    centred = np.concatenate([zero - zero.mean(0), one - one.mean(0)])
    deviations = np.sqrt(np.square(centred).mean(0) + 1e-9)
    direction = _solved(centred / deviations, difference / deviations) / deviations
    return lambda runs: scaled(runs) @ direction


def _solved(units: FloatArray, difference: FloatArray) -> FloatArray:
    """Return the inverse of the shrunk covariance of ``units (n, numbers)``, each of variance 1, times a difference."""
    runs, numbers = units.shape
    # Both tables have the same norm; the smaller one is solved (Woodbury's identity for the table of the runs).
    table = (units.T @ units if numbers <= runs else units @ units.T) / runs
    share = max(_SHRINKAGE, shrinkage(units, float(np.square(table).sum())))
    shrunk = (1 - share) * table + share * np.eye(len(table))
    if numbers <= runs:
        return np.asarray(np.linalg.solve(shrunk, difference))
    outside = (1 - share) / runs * (units.T @ np.linalg.solve(shrunk, units @ difference))
    return np.asarray((difference - outside) / share)


def shrinkage(units: FloatArray, norm: float) -> float:
    """Return the share of the covariance that should be replaced by the mean variance (Ledoit and Wolf 2004, section
    3.3).

    ``units``: (n, numbers), of mean 0. ``norm``: the sum of the covariance's squared entries.
    """
    lengths = np.square(units).sum(1)
    spread = norm - float(lengths.mean()) ** 2 / units.shape[1]
    error = (float(np.square(lengths).mean()) - norm) / len(units)
    return min(1.0, max(0.0, error / spread)) if spread > 0 else 1.0


_MARGIN = 3.0
"""Standard deviations below a stated curve, in the pilot's own runs, from which an event breaks the claim."""
_BINS = (8, 32)
_MOST_LOOKED_AT = 100
"""Numbers all of which are looked at; of more, those that differ most."""


def places_of(outputs: FloatArray) -> FloatArray:
    """Return features that show positions in rows ``(n, k)``, shape (n, 3 k): each number divided by the largest of its
    row, whether the number is the largest, and its fractional part.
    """
    sizes = np.abs(np.nan_to_num(outputs))
    largest = sizes.max(axis=1, keepdims=True)
    rest = [sizes == largest, np.mod(np.nan_to_num(outputs), 1.0)]
    return np.concatenate([np.divide(sizes, largest, where=largest > 0, out=np.zeros_like(sizes)), *rest], axis=1)


def clearest_event(out: FloatArray, within: FloatArray, claim: Claim, *, trials: int, alpha: float) -> Event | None:
    """Return the event that violates the claim most clearly in a pilot's runs ``(n, numbers)``; None if no event does.

    Scores are learned on one half of the runs of each group, and judged on the other. ``trials``: runs of each group
    that will be counted, at the level ``alpha``.
    """
    half = min(len(out), len(within)) // 2
    if half < 2 or bool(np.isnan(out[:half]).all() and np.isnan(within[:half]).all()):
        return None
    plan = CountingPlan(trials=trials, delta=claim.delta, alpha=alpha, curve=claim.curve)
    # A margin is stated in standard deviations of the counted runs.
    scale = math.sqrt((len(out) - half) / trials)
    events = [one.event for one in scored_events(out, within, plan, thorough=False, more=_of_cells)]
    found = [one for one in events if one.cut.margin * scale > _MARGIN or one.cut.bound > claim.epsilon]
    return max(found, key=lambda one: one.cut.promise, default=None)


def _of_cells(out: FloatArray, within: FloatArray) -> list[Score]:
    places = Columns("places of the largest and fractional parts", places_of)
    views = [coordinates(), places] if out.shape[1] <= _MOST_LOOKED_AT else []
    return [learn_marginals(within, out, columns, bins) for columns in views for bins in _BINS]
