"""The score of a pilot's runs that a linear one is blind to: of cells, of places, of values that repeat."""

import math
from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.claim import Claim
from ...audit.mechanism.columns import Columns, Coordinates
from ...audit.mechanism.scores import Score, learn_marginals
from ...audit.mechanism.search import Event
from ...audit.mechanism.trials import pilot_events
from ...audit.threshold import CountingPlan

_MARGIN = 3.0
"""Standard deviations below a stated curve, in the pilot's own runs, from which an event breaks the claim."""
_BINS = (8, 32)
_MOST = 100
"""Numbers all of which are looked at; of more, those that differ most."""


@dataclass(frozen=True)
class Places:
    """Sizes over the row's largest one, whether a number is the largest, and its fractional part."""

    def __str__(self) -> str:
        return "places of the largest and fractional parts"

    def of(self, outputs: FloatArray) -> FloatArray:
        """Return an array (n, 3 k) for an array (n, k)."""
        sizes = np.abs(np.nan_to_num(outputs))
        largest = sizes.max(axis=1, keepdims=True)
        rest = [sizes == largest, np.mod(np.nan_to_num(outputs), 1.0)]
        return np.concatenate([np.divide(sizes, largest, where=largest > 0, out=np.zeros_like(sizes)), *rest], axis=1)


def clearest_event(out: FloatArray, within: FloatArray, claim: Claim, *, trials: int, alpha: float) -> Event | None:
    """Return the event that breaks the claim most clearly in a pilot's runs ``(n, numbers)``, None where none does.

    Scores are learned on one half of the runs of each group, and judged on the other. ``trials``: runs of each group
    that will be counted, at the level ``alpha``.
    """
    half = min(len(out), len(within)) // 2
    if half < 2 or bool(np.isnan(out[:half]).all() and np.isnan(within[:half]).all()):
        return None
    plan = CountingPlan(trials=trials, delta=claim.delta, alpha=alpha, curve=claim.curve)
    # A margin is stated in standard deviations of the counted runs.
    scale = math.sqrt((len(out) - half) / trials)
    events = pilot_events(out, within, plan, thorough=False, more=_of_cells)
    found = [one for one in events if one.cut.margin * scale > _MARGIN or one.cut.bound > claim.epsilon]
    return max(found, key=lambda one: one.cut.promise, default=None)


def _of_cells(out: FloatArray, within: FloatArray) -> list[Score]:
    views: list[Columns] = [Coordinates(), Places()] if out.shape[1] <= _MOST else []
    return [learn_marginals(within, out, columns, bins) for columns in views for bins in _BINS]
