"""Threshold policies are rules that choose the score above which an attack guesses "member", and count its errors.

A score above the threshold is a guess of "member", a score equal to it is not. No policy chooses the best threshold
on the trials that it counts: that errs in 9 to 44 % of runs at a nominal 5 %.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..arrays import FloatArray
from ..binomial import ErrorCounts, check_number, privacy_loss, upper_bound
from ..curve import Curve
from ..wording import plain
from .cut import CountingPlan, best_cut


class ThresholdPolicy(Protocol):
    """The interface of a rule that chooses score thresholds; ``str(policy)`` is its name in a measurement."""

    def counts(self, member: FloatArray, nonmember: FloatArray, *, delta: float, alpha: float) -> list[ErrorCounts]:
        """Return the attack's error counts at each score threshold of the policy, each with its share of ``alpha``.

        ``member``: (n1,), ``nonmember``: (n0,) scores.
        """


@dataclass(frozen=True)
class FixedThreshold:
    """A policy with one score threshold that was fixed before the scores were seen. Raises ValueError unless it is
    finite.
    """

    threshold: float

    def __post_init__(self) -> None:
        _check_threshold(self.threshold)

    def __str__(self) -> str:
        return "fixed"

    def counts(self, member: FloatArray, nonmember: FloatArray, *, delta: float, alpha: float) -> list[ErrorCounts]:
        return [_errors(member, nonmember, float(self.threshold), alpha)]


@dataclass(frozen=True)
class SplitThreshold:
    """A policy that chooses the threshold on a random part of the scores and counts errors on the rest.

    A random ``fraction`` of each side chooses, by the largest Clopper-Pearson lower bound on epsilon.

    With a ``curve``, the cut that most likely falls under it is chosen. Raises ValueError for a ``fraction`` outside
    (0, 1) and for a split that leaves a part of a side empty.
    """

    fraction: float
    seed: int = 0
    curve: Curve | None = None

    def __post_init__(self) -> None:
        if not 0 < self.fraction < 1:
            raise ValueError(
                f"fraction (share of the scores that sets the threshold) must lie in (0, 1), got {self.fraction}"
            )

    def __str__(self) -> str:
        return f"split(fraction={plain(self.fraction)}, seed={self.seed})"

    def counts(self, member: FloatArray, nonmember: FloatArray, *, delta: float, alpha: float) -> list[ErrorCounts]:
        (chosen_in, chosen_out), (counted_in, counted_out) = self.halves(member, nonmember)
        if self.curve is None:
            threshold = best_bound_threshold(chosen_in, chosen_out, delta, alpha)
        else:
            # A plan has one number of trials; the smaller side limits what the audit can prove.
            left = min(len(counted_in), len(counted_out))
            plan = CountingPlan(trials=left, delta=delta, alpha=alpha, curve=self.curve)
            threshold = best_cut(chosen_in, chosen_out, plan).threshold
        return [_errors(counted_in, counted_out, threshold, alpha)]

    def halves(
        self, member: FloatArray, nonmember: FloatArray
    ) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
        """Return the scores (with, without the canary) that choose the threshold, and those that are counted."""
        rng = np.random.default_rng(self.seed)
        chosen_in, counted_in = self._parts("member", member, rng)
        chosen_out, counted_out = self._parts("nonmember", nonmember, rng)
        return (chosen_in, chosen_out), (counted_in, counted_out)

    def _parts(self, side: str, scores: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        chosen = round(self.fraction * len(scores))
        if not 0 < chosen < len(scores):
            raise ValueError(
                f"splitting {len(scores)} {side} scores by fraction {plain(self.fraction)} leaves one part empty"
            )
        # Scores may arrive in an informative order (by seed, by round), which a split by position would leak.
        shuffled = rng.permutation(scores)
        return shuffled[:chosen], shuffled[chosen:]


@dataclass(frozen=True)
class BonferroniThresholds:
    """A policy with several score thresholds that were fixed before the scores were seen; the best result is reported.

    Each of the k thresholds is tested at alpha / k. Raises ValueError if there is none.
    """

    thresholds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.thresholds:
            raise ValueError("BonferroniThresholds needs at least one threshold, got none")
        for threshold in self.thresholds:
            _check_threshold(threshold)

    def __str__(self) -> str:
        return f"bonferroni(k={len(self.thresholds)})"

    def counts(self, member: FloatArray, nonmember: FloatArray, *, delta: float, alpha: float) -> list[ErrorCounts]:
        # The union bound: choosing the best of k bounds at alpha each would err with up to k alpha.
        share = alpha / len(self.thresholds)
        return [_errors(member, nonmember, float(threshold), share) for threshold in self.thresholds]


def _errors(member: FloatArray, nonmember: FloatArray, threshold: float, alpha: float) -> ErrorCounts:
    return ErrorCounts(
        threshold=threshold,
        false_positives=int(np.count_nonzero(nonmember > threshold)),
        false_negatives=int(np.count_nonzero(member <= threshold)),
        n0=len(nonmember),
        n1=len(member),
        alpha=alpha,
    )


def best_bound_threshold(member: FloatArray, nonmember: FloatArray, delta: float, alpha: float) -> float:
    """Choose the score threshold with the largest lower bound on epsilon (Clopper-Pearson).

    ``member``: (n1,), ``nonmember``: (n0,) scores; higher means member.
    """
    levels = np.unique(np.concatenate([member, nonmember]))
    # Midway between scores, so that no counted score near one of these is a tie.
    cuts = levels[:-1] / 2 + levels[1:] / 2 if len(levels) > 1 else levels
    false_positives = len(nonmember) - np.searchsorted(np.sort(nonmember), cuts, side="right")
    false_negatives = np.searchsorted(np.sort(member), cuts, side="right")
    fpr_high = upper_bound(false_positives, len(nonmember), alpha / 2)
    fnr_high = upper_bound(false_negatives, len(member), alpha / 2)
    return float(cuts[np.argmax(privacy_loss(fpr_high, fnr_high, delta))])


def _check_threshold(threshold: float) -> None:
    check_number("threshold", threshold)
    if not math.isfinite(threshold):
        raise ValueError(f"a threshold must be finite, got {threshold}")
