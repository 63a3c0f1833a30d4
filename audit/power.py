"""Power: the looks and trials that an audit needs, and the smallest epsilon that a design refutes.

Looks at an audit's runs are planned beforehand, each with its share of alpha (group-sequential design). An audit may
stop at a look. The bound of look k, computed from the first n_k runs at the level alpha_k, exceeds the truth with
probability at most alpha_k, whether or not the audit gets there. By the union bound all of them hold at once with
probability 1 - sum(alpha_k), so the bound of the look at which the audit stopped holds at alpha. This is alpha spending
(Lan and DeMets 1983) by a function that is fixed beforehand, without an assumption on how looks depend on each other.

The smallest true epsilon is the one refuted with 90 % probability. Both routes test whether the joint point lies under
a curve, the stated one or that of (epsilon, delta) alone. The exact binomial sum runs over the false positives; for
each count, the false negatives that still refute form an interval from 0.

A known bug is described by its operating points, the pairs of error rates that the thresholds of a score reach under
it. Estimators that count errors use the point farthest from the claim; the e-process uses the best bets on all of them.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, gammaln, ndtr, ndtri, xlog1py, xlogy
from scipy.stats import binom

from .arrays import FloatArray
from .betting import growth
from .binomial import check_epsilon, check_level, check_positive, upper_bound
from .bisection import crossing, fewest
from .curve import Curve, GaussianCurve, ProfileCurve, epsilon_from_mu, mu_from_epsilon
from .threshold import margin

_SHARES_BY_RUNS = ((1 / 8, 1 / 16), (1 / 4, 1 / 16), (1 / 2, 1 / 8), (3 / 4, 1 / 8), (7 / 8, 1 / 16), (1.0, 9 / 16))
"""Share of the runs at each look, and the share of alpha that it spends. Most is kept for the last look, where a
violation that is hard to see has its best chance; the late looks serve to end runs that can refute nothing any more."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """A planned interim analysis (look) of an audit's runs.

    Args:
        replicas: runs per arm by then, those of earlier looks included.
        alpha: level of the bound of this look.
    """

    replicas: int
    alpha: float


def planned_looks(replicas: int, alpha: float) -> tuple[Look, ...]:
    """Return the planned interim looks at an audit of at most ``replicas`` runs per arm; their levels sum to at most
    ``alpha``.

    Looks that would have equally many runs are one, with the sum of their levels; none has fewer than two runs.

    Raises:
        ValueError: for fewer than two runs, or a level outside (0, 1).
    """
    if replicas < 2:
        raise ValueError(f"replicas must be >= 2, got {replicas}")
    check_level("alpha", alpha)
    shares: dict[int, float] = {}
    for part, share in _SHARES_BY_RUNS:
        count = max(2, round(part * replicas))
        shares[count] = shares.get(count, 0.0) + share
    return tuple(Look(replicas=count, alpha=share * alpha) for count, share in shares.items())


# In mu or epsilon: at 60 an attack makes no error in any number of trials that can be run.
_LARGEST = 60.0


@dataclass(frozen=True, kw_only=True)
class _Design:
    """``weights``: (k,) the probability of each plausible count of false positives; ``allowed``: (k,) the largest
    count of false negatives that still refutes together with it, -1 where none does.
    """

    n1: int
    weights: FloatArray
    allowed: FloatArray

    def power(self, fnr: float) -> float:
        refuting = np.where(self.allowed < 0, 0.0, bdtr(np.maximum(self.allowed, 0), self.n1, fnr))
        return float(self.weights @ refuting)


# Cached, because the repeats of an audit often count the same errors and a search takes long.
@lru_cache(maxsize=1024)
def minimum_detectable_epsilon(
    *,
    n0: int,
    n1: int,
    alpha: float,
    delta: float,
    fpr: float,
    curve: Curve | None,
    epsilon: float | None,
    power: float = 0.9,
) -> float | None:
    """Return the smallest true epsilon at ``delta`` for which an audit of this size refutes the claim with probability
    ``power``.

    The route is ``curve`` where one is given, else the bound against ``epsilon``; None when both are None, or when
    nothing in reach (mu or epsilon of 60) would do. ``fpr``: expected false-positive rate, in (0, 1). The truth is
    taken to be a Gaussian mechanism, the attack optimal; at delta 0, where no Gaussian has a finite epsilon, the
    worst mechanism of pure epsilon.
    """
    refuted = _refuted_curve(curve, epsilon, delta)
    if refuted is None:
        return None
    design = _design(n0=n0, n1=n1, alpha=alpha, fpr=fpr, refuted=refuted)
    if delta == 0:
        return _smallest(lambda true: design.power(_pure(true, fpr)), power)
    mu = _smallest(lambda true: design.power(_gaussian(true, fpr)), power)
    return None if mu is None else epsilon_from_mu(mu, delta)


def power_at(
    fpr: float,
    fnr: float,
    *,
    n0: int,
    n1: int,
    alpha: float,
    delta: float,
    curve: Curve | None,
    epsilon: float | None,
) -> float:
    """Return the probability (power) that an audit of this size refutes the claim, given the attack's true error rates.

    ``fpr`` in (0, 1), ``fnr`` in [0, 1]; route and arguments as in ``minimum_detectable_epsilon``. Raises ValueError
    when a rate is out of range or there is neither curve nor epsilon.
    """
    if not 0 <= fnr <= 1:
        raise ValueError(f"fnr must lie in [0, 1], got {fnr}")
    refuted = _refuted_curve(curve, epsilon, delta)
    if refuted is None:
        raise ValueError("the power depends on the claim: give its trade-off curve or its epsilon, got neither")
    return _design(n0=n0, n1=n1, alpha=alpha, fpr=fpr, refuted=refuted).power(fnr)


def _refuted_curve(curve: Curve | None, epsilon: float | None, delta: float) -> Curve | None:
    """The curve under which a joint point refutes; None where nothing was claimed."""
    check_epsilon(epsilon)
    if curve is not None or epsilon is None:
        return curve
    # A bound exceeds epsilon exactly when its joint point lies under this curve, so one test serves both routes.
    return ProfileCurve((epsilon,), (delta,), (delta,))


def _design(*, n0: int, n1: int, alpha: float, fpr: float, refuted: Curve) -> _Design:
    if not 0 < fpr < 1:
        raise ValueError(f"fpr must lie in (0, 1), got {fpr}")
    # Nine standard deviations and 40 counts: what is left out weighs less than 1e-15.
    reach = 9 * math.sqrt(n0 * fpr * (1 - fpr)) + 40
    counts = np.arange(max(0, math.floor(n0 * fpr - reach)), min(n0, math.ceil(n0 * fpr + reach)) + 1)
    forbidden = refuted.fnr(upper_bound(counts, n0, alpha / 2))
    # U(j) < f exactly when P[Bin(n1, f) <= j] < alpha / 2: ppf gives the first j for which that fails.
    allowed = np.asarray(binom.ppf(alpha / 2, n1, forbidden), dtype=np.float64) - 1
    log_weights = (
        gammaln(n0 + 1)
        - gammaln(counts + 1)
        - gammaln(n0 - counts + 1)
        + xlogy(counts, fpr)
        + xlog1py(n0 - counts, -fpr)
    )
    return _Design(n1=n1, weights=np.exp(log_weights), allowed=allowed)


def _gaussian(mu: float, fpr: float) -> float:
    return float(GaussianCurve(mu).fnr(fpr))


def _pure(epsilon: float, fpr: float) -> float:
    return float(ProfileCurve((epsilon,), (0.0,), (0.0,)).fnr(fpr))


def _smallest(power_of: Callable[[float], float], power: float) -> float | None:
    """The smallest true leak that reaches ``power``, to nine digits."""
    # Bisection finds it, because power grows with the leak.
    if power_of(_LARGEST) < power:
        return None
    return crossing(lambda leak: power_of(leak) < power, high=_LARGEST)[1]


LIMIT = 10**9
"""Trials per arm beyond which a bug counts as undetectable."""


@dataclass(frozen=True, eq=False)
class OperatingPoints:
    """The pairs of error rates that an attack reaches against a known bug, one pair per threshold.

    ``fpr``, ``fnr``: (k,), all in (0, 1); ``thresholds``: (k,).
    """

    fpr: FloatArray
    fnr: FloatArray
    thresholds: FloatArray


@dataclass(frozen=True, kw_only=True)
class TrialPlan:
    """The number of trials and the threshold at which an audit detects a known bug with probability ``power``.

    ``trials`` are those with the canary, and as many without; ``fpr`` and ``fnr`` are the error rates expected at the
    threshold.
    """

    trials: int
    threshold: float
    fpr: float
    fnr: float
    power: float


def gaussian_points(mu: float) -> OperatingPoints:
    """Return the error rates, one pair per threshold, of the optimal attack on a mu-GDP Gaussian mechanism.

    The mean of the score without the canary is 0.
    """
    check_positive("mu", mu)
    thresholds = np.linspace(mu / 2 - 7, mu / 2 + 7, 1401)
    # Operating points must lie inside (0, 1), also where a large mu rounds a rate to 0.
    inside = 1 - 1e-15
    return OperatingPoints(
        np.clip(ndtr(-thresholds), 1e-15, inside), np.clip(ndtr(thresholds - mu), 1e-15, inside), thresholds
    )


def simulated_points(out: ArrayLike, within: ArrayLike, *, cautious: float = 0.0) -> OperatingPoints:
    """Return the error rates, one pair per threshold, that an attack reaches against a known bug, computed from
    simulated scores.

    ``out``: (n0,) scores without the canary, ``within``: (n1,) with it.

    A score above the threshold is a guess of "member"; a rate of zero errors is counted as half an error.
    ``cautious``: number of standard errors of the simulation by which both rates are raised. Raises ValueError for an
    empty side and for scores that are not finite.
    """
    sides = [np.sort(np.asarray(side, dtype=np.float64)) for side in (out, within)]
    for name, side in zip(("out", "within"), sides, strict=True):
        if side.ndim != 1 or not len(side) or not np.isfinite(side).all():
            raise ValueError(f"{name} must be an array (n,) of finite scores with n >= 1, got shape {side.shape}")
    pooled = np.concatenate(sides)
    # Dense at both ends, because the best thresholds for small delta lie where one of the errors is rare.
    ends = np.concatenate([np.linspace(0.002, 0.998, 250), np.geomspace(2 / len(pooled), 0.01, 60)])
    levels = np.unique(np.quantile(pooled, np.concatenate([ends, 1 - ends[250:]]), method="lower"))
    above = len(sides[0]) - np.searchsorted(sides[0], levels, side="right")
    below = np.searchsorted(sides[1], levels, side="right")
    return OperatingPoints(_raised(above, len(sides[0]), cautious), _raised(below, len(sides[1]), cautious), levels)


def most_refuting_point(points: OperatingPoints, forbidden: Curve, n: int) -> int:
    """Return the index of the pair of error rates that lies farthest below the claim's trade-off curve ``forbidden``.

    The distance is in standard deviations of ``n`` trials with and ``n`` without the canary.
    """
    return int(np.argmax(margin(forbidden, points.fpr, points.fnr, n)))


def forbidden_curve(curve: Curve | None, epsilon: float, delta: float) -> Curve:
    """Return the trade-off curve below which the claim allows no error rates.

    It is the stated one, or that of (epsilon, delta) where none is stated.
    """
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
    """Return the fewest trials with which Clopper-Pearson bounds refute the claim of a mechanism with a known bug; None
    if more than ``limit`` are needed.

    They are trials with the canary, and as many without.

    ``points``: of the bug. The claim is the stated ``curve``, or (``epsilon``, ``delta``) where it is None. The power
    is exact (binomial), at the threshold that is best for each n.
    """
    check_level("alpha", alpha)
    check_level("power", power)
    forbidden = forbidden_curve(curve, epsilon, delta)
    # The margins of all points grow with n alike, so that the best point is the same for every n.
    farthest = most_refuting_point(points, forbidden, 1)

    def plans(n: int) -> Iterator[TrialPlan]:
        # Exact power at every point would be slow. Two candidates are tried, because at small counts the normal
        # approximation, which gives the first, overrates points whose rates are near 0.
        yield _planned(points, farthest, n, forbidden, delta, alpha)
        if (other := int(np.argmax(_gap(points, forbidden, n, alpha)))) != farthest:
            yield _planned(points, other, n, forbidden, delta, alpha)

    trials = fewest(lambda n: any(plan.power >= power for plan in plans(n)), limit)
    return None if trials is None else max(plans(trials), key=lambda plan: plan.power)


@lru_cache(maxsize=1024)
def enough_trials(
    actual: float, *, curve: Curve | None, epsilon: float, delta: float, alpha: float, limit: int = LIMIT
) -> int | None:
    """Return the fewest trials with the canary, and as many without, from which the best attack refutes the claim of a
    mechanism of epsilon ``actual`` with probability 0.9; None if more than ``limit`` are needed.

    The mechanism is Gaussian, or randomised response for a claim of delta 0, and its canary is seen as well as any
    could be.
    """
    if delta == 0:
        # exp overflows above 709.
        error = [1 / (1 + math.exp(min(actual, 700.0)))]
        points = OperatingPoints(np.array(error), np.array(error), np.zeros(1))
    else:
        points = gaussian_points(mu_from_epsilon(actual, delta))
    planned = trials_needed(points, curve=curve, epsilon=epsilon, delta=delta, alpha=alpha, limit=limit)
    return None if planned is None else planned.trials


def planned_for(delta: float) -> str:
    """Return in words the mechanism for whose violation ``enough_trials`` computes a number, and how it shows it."""
    return (
        "of a Gaussian mechanism, which shows it only in rare outputs"
        if delta
        else "of randomised response, which shows it in each output"
    )


def effect_trials_needed(true_mu: float, claimed_mu: float, *, alpha: float, power: float = 0.9) -> int | None:
    """Return the number of trials needed to refute a mu-GDP claim by a z-test on the effect size of Gaussian scores.

    The number is that of the trials with the canary, and of those without it; it uses a normal approximation.

    The standard error of an effect mu is ``sqrt(2/n + mu^2/(4n))`` (Hedges 1981). None where the claim is
    true.
    """
    check_level("alpha", alpha)
    if true_mu <= claimed_mu:
        return None
    errors = [math.sqrt(2 + mu**2 / 4) for mu in (claimed_mu, true_mu)]
    distance = -float(ndtri(alpha)) * errors[0] + float(ndtri(power)) * errors[1]
    return math.ceil((distance / (true_mu - claimed_mu)) ** 2)


def sequential_trials_needed(
    points: OperatingPoints, *, curve: Curve | None, epsilon: float, delta: float, alpha: float
) -> int | None:
    """Return how many pairs of trials the sequential (betting) audit is expected to need to refute the claim.

    After them the expected logarithm of the capital of the best bets against the ``curve`` (or against ``epsilon``,
    where it is None) is ln(1 / alpha): about half of the runs stop by then. A run that has to learn its bets stops
    later. None where no bet on this bug grows.
    """
    check_level("alpha", alpha)
    # Above 700 no bet grows, and e^epsilon would overflow.
    found = (
        0.0
        if curve is None and epsilon > 700
        else growth(points.fpr, points.fnr, forbidden_curve(curve, epsilon, delta))
    )
    return math.ceil(-math.log(alpha) / found) if found else None


def fewest_trials(*, curve: Curve | None, epsilon: float, delta: float, alpha: float) -> int | None:
    """Return the fewest trials with which an attack without errors refutes the claim; None if no number of trials
    suffices.

    They are trials with the canary, and as many without.
    """
    forbidden = forbidden_curve(curve, epsilon, delta)

    # The same test at the joint point of zero errors, whose two upper bounds are equal.
    def refutes(n: int) -> bool:
        best = float(upper_bound(0, n, alpha / 2))
        return bool(best < forbidden.fnr(best))

    return fewest(refutes, LIMIT)


def _planned(points: OperatingPoints, index: int, n: int, forbidden: Curve, delta: float, alpha: float) -> TrialPlan:
    fpr, fnr = float(points.fpr[index]), float(points.fnr[index])
    reached = power_at(fpr, fnr, n0=n, n1=n, alpha=alpha, delta=delta, curve=forbidden, epsilon=None)
    return TrialPlan(trials=n, threshold=float(points.thresholds[index]), fpr=fpr, fnr=fnr, power=reached)


def _gap(points: OperatingPoints, forbidden: Curve, n: int, alpha: float) -> FloatArray:
    """How far the joint point of the expected counts lies under the forbidden curve, (k,)."""
    fpr_high, fnr_high = (_bounds(np.rint(rates * n), n, alpha / 2) for rates in (points.fpr, points.fnr))
    return np.asarray(forbidden.fnr(fpr_high) - fnr_high, dtype=np.float64)


def _bounds(counts: FloatArray, n: int, alpha: float) -> FloatArray:
    """The upper bounds of many counts, each distinct one computed once: points far out have few errors, or nearly n."""
    distinct, places = np.unique(counts, return_inverse=True)
    return np.asarray(upper_bound(distinct, n, alpha)[places], dtype=np.float64)


def _raised(counts: ArrayLike, n: int, cautious: float) -> FloatArray:
    # The upper limit too: a rate of 1 has no spread, and operating points must lie in (0, 1).
    rates = np.clip(np.asarray(counts) / n, 0.5 / n, 1 - 0.5 / n)
    raised = rates + cautious * np.sqrt(rates * (1 - rates) / n)
    return np.asarray(np.minimum(raised, 1 - 0.5 / n), dtype=np.float64)
