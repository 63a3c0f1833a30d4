"""Thresholds: the score above which an attack guesses "member", chosen on pilot trials, and its errors counted on
others.

A score above the threshold is a guess of "member", a score equal to it is not. No policy chooses the best threshold on
the trials that it counts: that errs in 9 to 44 % of runs at a nominal 5 %.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from .arrays import FloatArray, IntArray
from .binomial import ErrorCounts, check_number, privacy_loss, upper_bound
from .curve import Curve
from .wording import plain

# More candidates cost time and gain nothing, because neighbouring cuts count nearly the same errors.
_CUTS = 400
# The level at which pilot rates are raised before cuts are compared.
_CAUTION = 0.05


@dataclass(frozen=True, kw_only=True)
class CountingPlan:
    """The number of trials that an audit will count, with the claim, alpha and delta by which it will judge them.

    ``trials`` is the number counted with the canary and again without it; ``curve`` is the stated trade-off curve.
    """

    trials: int
    delta: float
    alpha: float
    curve: Curve | None


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A score threshold with the result expected at it: the ``margin`` by which error rates lie below the claimed
    trade-off curve, or the ``bound`` on epsilon.

    ``margin`` is how far its error rates lie under the stated curve; ``bound`` is the lower bound on epsilon.

    ``margin`` is 0 where no cut lies under the curve, and ``bound`` is 0 where one does. ``bound`` is negative where
    the trials are too few to prove anything.
    """

    threshold: float
    margin: float
    bound: float

    @property
    def promise(self) -> tuple[float, float]:
        """The sort key of a score threshold: the more clearly the threshold is expected to refute a claim, the higher
        the key.
        """
        return self.margin, self.bound


def margin(curve: Curve, fpr: ArrayLike, fnr: ArrayLike, n: int) -> FloatArray:
    """Return how far an attack's error rates lie below a trade-off curve, in standard deviations of their estimate.

    It is ``f(fpr) - fnr`` over the standard deviation of its estimate from ``n`` trials with and ``n`` without the
    canary; it is positive under the curve.

    ``fpr``, ``fnr``: rates in (0, 1), broadcastable. The threshold with the largest margin is the most likely to
    refute; it does not depend on ``n``.
    """
    false_in, false_out = np.broadcast_arrays(np.asarray(fpr, dtype=np.float64), np.asarray(fnr, dtype=np.float64))
    # Half the distance to 0 or 1 at most, so that both ends of the difference quotient are rates.
    step = np.minimum(1e-3, np.minimum(false_in, 1 - false_in) / 2)
    slope = (curve.fnr(false_in + step) - curve.fnr(false_in - step)) / (2 * step)
    spread = np.sqrt((false_out * (1 - false_out) + slope**2 * false_in * (1 - false_in)) / n)
    return np.asarray((curve.fnr(false_in) - false_out) / spread, dtype=np.float64)


def best_cut(member: FloatArray, nonmember: FloatArray, plan: CountingPlan) -> Cut:
    """Choose, on pilot scores, the threshold that is expected to refute a false claim best on the trials that are
    counted.

    That is the one with the largest margin under the stated curve if any lies under it, else the one with the largest
    expected bound on epsilon.

    ``member``: (n1,), ``nonmember``: (n0,) finite scores that will not be counted.
    """
    cuts, fn, below_out = below_cuts(member, nonmember)
    fp = len(nonmember) - below_out
    if plan.curve is not None:
        # Half a count more, because a rate of 0 would have no spread and an infinite margin.
        fpr, fnr = (fp + 0.5) / (len(nonmember) + 1), (fn + 0.5) / (len(member) + 1)
        margins = margin(plan.curve, fpr, fnr, plan.trials)
        best = int(np.argmax(margins))
        if margins[best] > 0:
            return Cut(threshold=float(cuts[best]), margin=float(margins[best]), bound=0.0)
    bounds = _expected(fp, len(nonmember), fn, len(member), plan)
    best = int(np.argmax(bounds))
    return Cut(threshold=float(cuts[best]), margin=0.0, bound=float(bounds[best]))


def _expected(fp: ArrayLike, n0: int, fn: ArrayLike, n1: int, plan: CountingPlan) -> FloatArray:
    """The bound expected from the counted trials."""
    fpr_high, fnr_high = (
        _of_pilot(n, plan.trials, plan.alpha)[np.asarray(k)]
        if n <= 20 * _CUTS
        else _raised(k, n, plan.trials, plan.alpha)
        for k, n in ((fp, n0), (fn, n1))
    )
    return privacy_loss(fpr_high, fnr_high, plan.delta)


# Cached: a pilot tries many scores, and each has many cuts.
@lru_cache(maxsize=64)
def _of_pilot(n: int, trials: int, alpha: float) -> FloatArray:
    return _raised(np.arange(n + 1), n, trials, alpha)


def _raised(errors: ArrayLike, n: int, trials: int, alpha: float) -> FloatArray:
    """The bound on an error rate that is expected of the counted trials, from the errors in ``n`` pilot trials."""
    # At rates worse than those seen, because the best of many cuts looks better than it is.
    return upper_bound(np.floor(upper_bound(errors, n, _CAUTION) * trials), trials, alpha / 2)


def below_cuts(member: FloatArray, nonmember: FloatArray) -> tuple[FloatArray, IntArray, IntArray]:
    """Return thresholds between scores, and how many scores of ``member`` (n1,) and of ``nonmember`` (n0,) are at or
    below each.
    """
    cuts = _score_cuts(np.unique(np.concatenate([member, nonmember])))
    below_in, below_out = (np.searchsorted(np.sort(side), cuts, side="right") for side in (member, nonmember))
    return cuts, below_in, below_out


def _score_cuts(levels: FloatArray) -> FloatArray:
    """Cuts midway between scores; of very many, evenly spaced ones and ever denser ones towards both ends."""
    if len(levels) == 1:
        return levels
    last = len(levels) - 2
    chosen = np.arange(last + 1)
    if last >= _CUTS:
        # The best bound often lies far out, where a handful of scores decides about the FPR.
        tail = np.geomspace(1, last, _CUTS // 3).astype(int) - 1
        chosen = np.unique(np.concatenate([tail, last - tail, np.linspace(0, last, _CUTS // 3).astype(int)]))
    # Halved before they are added: the sum of two scores near 1e308 would overflow.
    return np.asarray(levels[chosen] / 2 + levels[chosen + 1] / 2, dtype=np.float64)


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


CHOOSING = 0.2
"""Share of the scores that sets the threshold of a split where none is stated. A half proves a tenth to a third less of
Gaussian scores, and refutes half as often at epsilon 1."""


def choosing(scores: int, fraction: float = CHOOSING) -> int:
    """Return how many of the ``scores`` of one side are used to choose the threshold; of two scores, one chooses it."""
    return max(round(fraction * scores), min(1, scores - 1))


def scores_of(counted: int) -> int:
    """Return the smallest number of scores, of members or of non-members, of which at least ``counted`` remain when a
    share ``CHOOSING`` of them chooses the threshold.
    """
    return next(n for n in count(max(counted, int(counted / (1 - CHOOSING)) - 1)) if n - choosing(n) >= counted)


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
        """Return the scores, or rows (n, d), with and without the canary that choose the threshold, and those that are
        counted.
        """
        rng = np.random.default_rng(self.seed)
        chosen_in, counted_in = self._parts("member", member, rng)
        chosen_out, counted_out = self._parts("nonmember", nonmember, rng)
        return (chosen_in, chosen_out), (counted_in, counted_out)

    def _parts(self, side: str, scores: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        chosen = choosing(len(scores), self.fraction)
        if not 0 < chosen < len(scores):
            raise ValueError(
                f"splitting {len(scores)} {side} trials by fraction {plain(self.fraction)} leaves one part empty"
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
    levels = levels if len(levels) > 1 else levels.repeat(2)
    inside, outside, count = np.sort(member), np.sort(nonmember), len(levels) - 1

    def cuts(at: IntArray) -> FloatArray:
        # Midway between scores, so that no counted score near one of these is a tie.
        return np.asarray(levels[at] / 2 + levels[at + 1] / 2)

    def bounds(positives_at: IntArray, negatives_at: IntArray) -> FloatArray:
        false_positives = len(outside) - np.searchsorted(outside, cuts(positives_at), side="right")
        false_negatives = np.searchsorted(inside, cuts(negatives_at), side="right")
        fpr_high = upper_bound(false_positives, len(outside), alpha / 2)
        return privacy_loss(fpr_high, upper_bound(false_negatives, len(inside), alpha / 2), delta)

    # No cut of an interval has fewer false positives than its last one, or fewer false negatives than its first one.
    # What these would prove together is below the best cut for most intervals, and the others are halved.
    step, best = 1 << max(0, count.bit_length() - 7), -math.inf
    first = np.arange(0, count, step)
    while step > 1:
        best = max(best, float(bounds(first, first).max()))
        first = first[bounds(np.minimum(first + step, count - 1), first) >= best]
        step //= 2
        first = np.add.outer(first, [0, step]).ravel()
        first = first[first < count]
    return float(cuts(first[np.argmax(bounds(first, first))]))


def _check_threshold(threshold: float) -> None:
    check_number("threshold", threshold)
    if not math.isfinite(threshold):
        raise ValueError(f"a threshold must be finite, got {threshold}")
