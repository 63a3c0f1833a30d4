"""Planner: before anything runs, how many trials a known bug needs to be refuted, by which estimator.

A bug is given by its operating points, the pairs of error rates that a score's thresholds offer under it. Counting
estimators take the point that stands out most from what is claimed; the e-process bets at its best rate.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import bdtrik, ndtr, ndtri

from ..arrays import FloatArray
from ..binomial import check_level, privacy_loss, upper_bound
from ..curve import Curve, ProfileCurve
from .cut import margin
from .detectable import power_at

LIMIT = 10**9
"""Trials a world beyond which a bug is out of reach."""


@dataclass(frozen=True, eq=False)
class OperatingPoints:
    """``fpr``, ``fnr``: (k,) error rates under a bug, one pair a threshold, all in (0, 1); ``thresholds``: (k,)."""

    fpr: FloatArray
    fnr: FloatArray
    thresholds: FloatArray

    def __post_init__(self) -> None:
        for name in ("fpr", "fnr", "thresholds"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.float64))
        if not self.fpr.shape == self.fnr.shape == self.thresholds.shape == (len(self.fpr),) or not len(self.fpr):
            raise ValueError(f"operating points must be three (k,) arrays, got {self.fpr.shape} and {self.fnr.shape}")
        for name, rates in (("fpr", self.fpr), ("fnr", self.fnr)):
            if not np.all((rates > 0) & (rates < 1)):
                raise ValueError(f"{name} must lie in (0, 1), got {rates.min()} to {rates.max()}")


@dataclass(frozen=True, kw_only=True)
class TrialPlan:
    """``trials`` a world and the ``threshold`` at which they refute with ``power``, and the rates expected there."""

    trials: int
    threshold: float
    fpr: float
    fnr: float
    power: float


def gaussian_points(mu: float) -> OperatingPoints:
    """What the optimal score of a Gaussian mechanism offers, its threshold in standard deviations from world 0."""
    if not (math.isfinite(mu) and mu > 0):
        raise ValueError(f"mu must be > 0 and finite, got {mu}")
    thresholds = np.linspace(mu / 2 - 7, mu / 2 + 7, 1401)
    inside = 1 - 1e-15
    return OperatingPoints(
        np.clip(ndtr(-thresholds), 1e-15, inside), np.clip(ndtr(thresholds - mu), 1e-15, inside), thresholds
    )


def simulated_points(out: ArrayLike, within: ArrayLike, *, cautious: float = 0.0) -> OperatingPoints:
    """Read off simulated scores of a bug, ``out (n0,)`` without the canary and ``within (n1,)`` with it.

    A score above the threshold says "in"; a rate of none counts as half of one. ``cautious``: standard errors of the
    simulation by which both rates are raised. ValueError for an empty side or scores that are not finite.
    """
    sides = [np.sort(np.asarray(side, dtype=np.float64)) for side in (out, within)]
    for name, side in zip(("out", "within"), sides, strict=True):
        if side.ndim != 1 or not len(side) or not np.isfinite(side).all():
            raise ValueError(f"{name} must be (n,) finite scores and some, got shape {side.shape}")
    pooled = np.concatenate(sides)
    ends = np.concatenate([np.linspace(0.002, 0.998, 250), np.geomspace(2 / len(pooled), 0.01, 60)])
    levels = np.unique(np.quantile(pooled, np.concatenate([ends, 1 - ends[250:]]), method="lower"))
    above = len(sides[0]) - np.searchsorted(sides[0], levels, side="right")
    below = np.searchsorted(sides[1], levels, side="right")
    return OperatingPoints(_raised(above, len(sides[0]), cautious), _raised(below, len(sides[1]), cautious), levels)


def most_refuting_point(points: OperatingPoints, forbidden: Curve, n: int) -> int:
    """Index of the point that ``n`` trials a world set farthest below the forbidden curve, in standard deviations."""
    return int(np.argmax(margin(forbidden, points.fpr, points.fnr, n)))


def most_proving_point(points: OperatingPoints, n: int, *, delta: float, alpha: float) -> int:
    """Index of the point with the largest expected Clopper-Pearson bound on epsilon at ``n`` trials a world.

    The mean over nine quantiles of each world's count of errors: what the mechanism should show, true claim or not.
    Raises ValueError for n below 1 and for delta or alpha out of range.
    """
    check_level("alpha", alpha)
    if n < 1 or int(n) != n:
        raise ValueError(f"n must be a whole number >= 1, got {n}")
    quantiles = ((np.arange(9) + 0.5) / 9)[:, np.newaxis]
    fpr_high, fnr_high = (
        upper_bound(np.clip(np.ceil(bdtrik(quantiles, n, rate)), 0, n), n, alpha / 2)
        for rate in (points.fpr, points.fnr)
    )
    losses = privacy_loss(fpr_high[:, np.newaxis], fnr_high[np.newaxis], delta)
    return int(np.argmax(np.maximum(losses, 0).mean(axis=(0, 1))))


def forbidden_curve(curve: Curve | None, epsilon: float, delta: float) -> Curve:
    """What a claim forbids: the curve that it signs, or that of (epsilon, delta) alone."""
    return curve or ProfileCurve((epsilon,), (delta,), (delta,))


def trials_needed(
    points: OperatingPoints,
    *,
    curve: Curve | None,
    epsilon: float,
    delta: float,
    alpha: float,
    power: float = 0.9,
    limit: int = LIMIT,
) -> TrialPlan | None:
    """The fewest trials a world with which the joint Clopper-Pearson point refutes this bug; None beyond ``limit``.

    Against the signed ``curve``, or against (``epsilon``, ``delta``) where it is None. Power is exact (binomial) at
    the threshold that is best for each n.
    """
    check_level("alpha", alpha)
    if not 0 < power < 1:
        raise ValueError(f"power must lie in (0, 1), got {power}")
    forbidden = forbidden_curve(curve, epsilon, delta)

    def planned(n: int) -> TrialPlan:
        # Exact power is read at the point that the normal approximation prefers and at the widest gap beside it: at
        # small counts the approximation puts too much trust in rates near 0.
        best = {most_refuting_point(points, forbidden, n), int(np.argmax(_gap(points, forbidden, n, alpha)))}
        return max((_planned(points, index, n, forbidden, delta, alpha) for index in best), key=lambda p: p.power)

    trials = _fewest(lambda n: planned(n).power >= power, limit)
    return None if trials is None else planned(trials)


def effect_trials_needed(true_mu: float, claimed_mu: float, *, alpha: float, power: float = 0.9) -> int | None:
    """Trials a world with which the effect size of Gaussian scores exceeds a claim, by the normal approximation.

    The standard error of an effect mu is ``sqrt(2/n + mu^2/(4n))`` (Hedges 1981). None where the truth keeps the claim.
    """
    check_level("alpha", alpha)
    if true_mu <= claimed_mu:
        return None
    errors = [math.sqrt(2 + mu**2 / 4) for mu in (claimed_mu, true_mu)]
    distance = -float(ndtri(alpha)) * errors[0] + float(ndtri(power)) * errors[1]
    return math.ceil((distance / (true_mu - claimed_mu)) ** 2)


def sequential_trials_needed(points: OperatingPoints, *, epsilon: float, delta: float, alpha: float) -> int | None:
    """Pairs of trials after which the e-process's expected wealth passes 1 / alpha at the best stake and threshold.

    ``ln(1 / alpha) / max E ln(1 + lambda (1{in} - e^epsilon 1{out} - delta))``; half of the runs stop about there, one
    that has to learn its stake somewhat later. None where no bet on this bug grows.
    """
    check_level("alpha", alpha)
    # Beyond, no bet grows; e^epsilon must stay a number.
    odds = math.exp(min(epsilon, 700.0))
    top = 1 / (odds + delta)

    def growth(stake: float, tpr: float, fpr: float) -> float:
        return sum(
            (tpr if hit else 1 - tpr) * (fpr if false else 1 - fpr) * math.log1p(stake * (hit - odds * false - delta))
            for hit in (0, 1)
            for false in (0, 1)
        )

    rates = [
        -float(minimize_scalar(lambda s, t=1 - b, a=a: -growth(s, t, a), bounds=(0, top * 0.999), method="bounded").fun)
        for a, b in zip(points.fpr, points.fnr, strict=True)
        if 1 - b > odds * a + delta
    ]
    best = max(rates, default=0.0)
    return math.ceil(-math.log(alpha) / best) if best > 0 else None


def fewest_trials(*, curve: Curve | None, epsilon: float, delta: float, alpha: float) -> int | None:
    """Trials a world below which not even a perfect attack, without one error, could refute; None where none could."""
    forbidden = forbidden_curve(curve, epsilon, delta)

    def refutes(n: int) -> bool:
        best = float(upper_bound(0, n, alpha / 2))
        return bool(best < forbidden.fnr(best))

    return _fewest(refutes, LIMIT)


def _planned(points: OperatingPoints, index: int, n: int, forbidden: Curve, delta: float, alpha: float) -> TrialPlan:
    fpr, fnr = float(points.fpr[index]), float(points.fnr[index])
    reached = power_at(fpr, fnr, n0=n, n1=n, alpha=alpha, delta=delta, curve=forbidden, epsilon=None)
    return TrialPlan(trials=n, threshold=float(points.thresholds[index]), fpr=fpr, fnr=fnr, power=reached)


def _gap(points: OperatingPoints, forbidden: Curve, n: int, alpha: float) -> FloatArray:
    """How far the expected joint point lies under the forbidden curve."""
    fpr_high = upper_bound(np.rint(points.fpr * n), n, alpha / 2)
    fnr_high = upper_bound(np.rint(points.fnr * n), n, alpha / 2)
    return np.asarray(forbidden.fnr(fpr_high) - fnr_high, dtype=np.float64)


def _fewest(enough: Callable[[int], bool], limit: int) -> int | None:
    """The smallest n at which ``enough``, by doubling and bisection; None beyond ``limit``."""
    high = 1
    while not enough(high):
        if high >= limit:
            return None
        high = min(2 * high, limit)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _raised(counts: ArrayLike, n: int, cautious: float) -> FloatArray:
    rates = np.clip(np.asarray(counts) / n, 0.5 / n, 1 - 0.5 / n)
    raised = rates + cautious * np.sqrt(rates * (1 - rates) / n)
    return np.asarray(np.minimum(raised, 1 - 0.5 / n), dtype=np.float64)
