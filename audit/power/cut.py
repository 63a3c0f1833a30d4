"""Cut: the threshold on a score that should show most at the trials to be counted, chosen on others."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import FloatArray
from ..binomial import privacy_loss, upper_bound
from ..curve import Curve

_CUTS = 400
_CAUTION = 0.05


@dataclass(frozen=True, kw_only=True)
class CountingPlan:
    """What a cut is for: ``trials`` counted a world at ``alpha``, epsilon read at ``delta``, the claim's curve."""

    trials: int
    delta: float
    alpha: float
    curve: Curve | None


@dataclass(frozen=True, kw_only=True)
class Cut:
    """``margin`` under the signed curve, 0 where nothing lies under it, else the expected ``bound`` on epsilon."""

    threshold: float
    margin: float
    bound: float

    @property
    def promise(self) -> tuple[float, float]:
        """In this order cuts are compared."""
        return self.margin, self.bound


def margin(curve: Curve, fpr: ArrayLike, fnr: ArrayLike, n: int) -> FloatArray:
    """Positive under the curve: ``(f(fpr) - fnr)`` over the spread that ``n`` trials a world give to it.

    Rates in (0, 1), broadcastable. The threshold of the largest margin is the one that most likely refutes; its
    place does not hang on ``n``.
    """
    false_in, false_out = np.broadcast_arrays(np.asarray(fpr, dtype=np.float64), np.asarray(fnr, dtype=np.float64))
    step = np.minimum(1e-3, np.minimum(false_in, 1 - false_in) / 2)
    slope = (curve.fnr(false_in + step) - curve.fnr(false_in - step)) / (2 * step)
    spread = np.sqrt((false_out * (1 - false_out) + slope**2 * false_in * (1 - false_in)) / n)
    return np.asarray((curve.fnr(false_in) - false_out) / spread, dtype=np.float64)


def best_cut(member: FloatArray, nonmember: FloatArray, plan: CountingPlan) -> Cut:
    """The cut of the largest margin under the curve if any lies under it, else of the largest expected bound.

    ``member``: (n1,), ``nonmember``: (n0,) finite scores that will not be counted.
    """
    score_in, score_out = np.sort(member), np.sort(nonmember)
    cuts = _cuts(np.unique(np.concatenate([score_in, score_out])))
    fp = len(score_out) - np.searchsorted(score_out, cuts, side="right")
    fn = np.searchsorted(score_in, cuts, side="right")
    if plan.curve is not None:
        fpr, fnr = (fp + 0.5) / (len(score_out) + 1), (fn + 0.5) / (len(score_in) + 1)
        margins = margin(plan.curve, fpr, fnr, plan.trials)
        best = int(np.argmax(margins))
        if margins[best] > 0:
            return Cut(threshold=float(cuts[best]), margin=float(margins[best]), bound=0.0)
    bounds = _expected(fp, len(score_out), fn, len(score_in), plan)
    best = int(np.argmax(bounds))
    return Cut(threshold=float(cuts[best]), margin=0.0, bound=max(0.0, float(bounds[best])))


def _expected(fp: ArrayLike, n0: int, fn: ArrayLike, n1: int, plan: CountingPlan) -> FloatArray:
    """The bound that the counted trials will show, at rates a little worse than those seen: the best of many cuts was
    lucky.
    """
    expected = [np.floor(upper_bound(k, n, _CAUTION) * plan.trials) for k, n in ((fp, n0), (fn, n1))]
    fpr_high, fnr_high = (upper_bound(k, plan.trials, plan.alpha / 2) for k in expected)
    return privacy_loss(fpr_high, fnr_high, plan.delta)


def _cuts(levels: FloatArray) -> FloatArray:
    """Midway between scores; of very many, those that lie evenly in the middle and in ever finer steps in the tails."""
    if len(levels) == 1:
        return levels
    last = len(levels) - 2
    chosen = np.arange(last + 1)
    if last >= _CUTS:
        tail = np.geomspace(1, last, _CUTS // 3).astype(int) - 1
        chosen = np.unique(np.concatenate([tail, last - tail, np.linspace(0, last, _CUTS // 3).astype(int)]))
    return np.asarray(levels[chosen] / 2 + levels[chosen + 1] / 2, dtype=np.float64)
