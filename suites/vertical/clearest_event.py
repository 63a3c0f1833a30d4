"""The score of a pilot's runs that a linear one is blind to: of cells, of places, of values that repeat."""

import math
from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.claim import Claim
from ...audit.mechanism.candidates import candidates
from ...audit.mechanism.columns import Columns, Coordinates
from ...audit.mechanism.scores import Score, learn_marginals
from ...audit.mechanism.search import Event, fix_event
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
    found = []
    for score in _learned(out[:half], within[:half]):
        values = [score.score(side[half:]) for side in (within, out)]
        event = fix_event(score, values[0], values[1], plan)
        # A margin is stated in standard deviations of the counted runs.
        if event.cut.margin * math.sqrt((len(out) - half) / trials) > _MARGIN or event.cut.bound > claim.epsilon:
            found.append(event)
    return max(found, key=lambda one: one.cut.promise, default=None)


def _learned(out: FloatArray, within: FloatArray) -> list[Score]:
    scores = list(candidates(within, out, (0, 1), thorough=False, low_bits=False))
    views: list[Columns] = [Coordinates(), Places()] if out.shape[1] <= _MOST else []
    scores += [learn_marginals(within, out, columns, bins) for columns in views for bins in _BINS]
    return scores
