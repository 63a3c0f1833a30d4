"""Uses pilot trials to choose the score threshold that should refute a false claim best on the counted trials."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import FloatArray
from ..binomial import privacy_loss, upper_bound
from ..curve import Curve

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
    """Return how far an attack's error rates lie under a trade-off curve, in standard deviations of their estimate.

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
    score_in, score_out = np.sort(member), np.sort(nonmember)
    cuts = score_cuts(np.unique(np.concatenate([score_in, score_out])))
    fp = len(score_out) - np.searchsorted(score_out, cuts, side="right")
    fn = np.searchsorted(score_in, cuts, side="right")
    if plan.curve is not None:
        # Half a count more, because a rate of 0 would have no spread and an infinite margin.
        fpr, fnr = (fp + 0.5) / (len(score_out) + 1), (fn + 0.5) / (len(score_in) + 1)
        margins = margin(plan.curve, fpr, fnr, plan.trials)
        best = int(np.argmax(margins))
        if margins[best] > 0:
            return Cut(threshold=float(cuts[best]), margin=float(margins[best]), bound=0.0)
    bounds = _expected(fp, len(score_out), fn, len(score_in), plan)
    best = int(np.argmax(bounds))
    return Cut(threshold=float(cuts[best]), margin=0.0, bound=float(bounds[best]))


def _expected(fp: ArrayLike, n0: int, fn: ArrayLike, n1: int, plan: CountingPlan) -> FloatArray:
    """The bound expected from the counted trials."""
    # At rates worse than those seen, because the best of many cuts looks better than it is.
    expected = [np.floor(upper_bound(k, n, _CAUTION) * plan.trials) for k, n in ((fp, n0), (fn, n1))]
    fpr_high, fnr_high = (upper_bound(k, plan.trials, plan.alpha / 2) for k in expected)
    return privacy_loss(fpr_high, fnr_high, plan.delta)


def score_cuts(levels: FloatArray) -> FloatArray:
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
