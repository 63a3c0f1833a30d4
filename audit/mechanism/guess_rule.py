"""A rule that guesses a run's input from the score of its output, and withholds the guess between two thresholds."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..power.cut import CountingPlan, score_cuts
from .expected_bound import expected_bound, raised_rate, selection_bias


class Guesses(NamedTuple):
    """How many outputs are guessed to be of the second and of the first input."""

    second: int
    first: int


@dataclass(frozen=True, kw_only=True)
class GuessRule:
    """A score above ``high`` is a guess of the second input, one of at most ``low`` a guess of the first.

    ``high`` may be infinite, ``low`` minus infinity: then there are no such guesses. Raises ValueError unless
    ``low`` <= ``high``.
    """

    high: float
    low: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"low must be <= high, got {self.low} and {self.high}")

    def __str__(self) -> str:
        above, below = f"> {self.high:.6g}", f"<= {self.low:.6g}"
        return above if math.isinf(self.low) else below if math.isinf(self.high) else f"{above} or {below}"

    @property
    def threshold(self) -> float:
        """The finite threshold; that of the second input where both are finite."""
        return self.low if math.isinf(self.high) else self.high

    def guesses(self, scores: FloatArray) -> Guesses:
        """Count the guesses for scores (n,)."""
        return Guesses(int(np.count_nonzero(scores > self.high)), int(np.count_nonzero(scores <= self.low)))


def best_rule(
    member: FloatArray,
    nonmember: FloatArray,
    plan: CountingPlan,
    caution: float = 1.0,
    compared: int = 1,
    *,
    both_sides: bool = False,
) -> tuple[GuessRule, float]:
    """Return the rule with the largest expected bound on epsilon at delta 0, and that bound.

    ``member``: (n1,), ``nonmember``: (n0,) pilot scores of the second and of the first input; ``caution``: how many
    times the selection bias of a threshold, of ``compared`` scores, is subtracted; ``both_sides``: whether both
    thresholds are finite.
    """
    score_in, score_out = np.sort(member), np.sort(nonmember)
    cuts = score_cuts(np.unique(np.concatenate([score_in, score_out])))
    under_in, under_out = (np.searchsorted(side, cuts, side="right") / len(side) for side in (score_in, score_out))
    # One more at each end: nothing above plus infinity, nothing below minus infinity.
    right, right_low = np.r_[1 - under_in, 0.0], np.r_[0.0, under_out]
    wrong, wrong_low = np.r_[1 - under_out, 0.0], np.r_[0.0, under_in]
    pilot = min(len(member), len(nonmember))
    # Apart, because each of the two thresholds is the best of many by itself.
    wrong, wrong_low = (
        raised_rate(likely, rare, pilot, caution * selection_bias(likely, rare, pilot, compared))
        for likely, rare in ((right, wrong), (right_low, wrong_low))
    )
    bounds = expected_bound(right[:, np.newaxis] + right_low, wrong[:, np.newaxis] + wrong_low, plan, fair_coins=True)
    highs, lows = np.r_[cuts, math.inf], np.r_[-math.inf, cuts]
    bounds[highs[:, np.newaxis] < lows] = -math.inf
    if both_sides:
        bounds[-1], bounds[:, 0] = -math.inf, -math.inf
    high, low = np.unravel_index(int(np.argmax(bounds)), bounds.shape)
    return GuessRule(high=float(highs[high]), low=float(lows[low])), float(bounds[high, low])
