"""One-run audit of a Gaussian trade-off curve by counting correct guesses (Mahloujifar, Melis, Chaudhuri 2024).

The bound is tighter than ``one_run`` where the curve is Gaussian, and invalid elsewhere. The recursion runs over the
guesses, for many mu at once. The largest refuted mu is found by cutting an interval, whose upper end is not refuted,
into ever finer parts: there is no fixed grid, so the bound can never be the edge of a grid.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import bdtr, ndtr, ndtri

from ..arrays import BoolArray, FloatArray
from ..binomial import check_level
from ..curve import epsilon_from_mu
from ..evidence import Guesses, check_counts
from ..measurement import GAUSSIAN_ONE_RUN, Measurement
from .one_run import check_guesses, fewest_refuting, guesses_measured

# One pass over the guesses costs about the same for 48 values of mu as for one, and replaces five halvings.
_PARTS = 48


def refuted(right: int, made: int, canaries: int, *, mu: FloatArray, alpha: float) -> BoolArray:
    """Return for each ``mu`` whether mu-GDP is refuted, because ``right`` or more correct guesses then have probability
    below ``alpha``.

    ``mu``: (k,); the result has the same shape.

    From ``r = alpha right / m``, ``h = alpha (made - right) / m`` down to i = 0: ``h' = max(h, fbar^-1(r))``,
    ``r' = r + i / (made - i) (h' - h)`` with ``fbar^-1(x) = Phi(Phi^-1(x) - mu)``; refuted if r + h > made / m.
    Raises ValueError unless 0 <= right <= made <= canaries, every mu >= 0 and alpha in (0, 1).
    """
    check_counts(right, made, canaries)
    check_level("alpha", alpha)
    if not np.all(mu >= 0):
        raise ValueError(f"mu must be >= 0, got {mu}")
    r = np.full(mu.shape, alpha * right / canaries)
    h = np.full(mu.shape, alpha * (made - right) / canaries)
    # Downwards, because the step at i uses the sums over all larger counts of correct guesses.
    for i in range(right - 1, -1, -1):
        # The sum r may pass 1, where the inverse of the curve is not defined.
        higher = np.maximum(h, ndtr(ndtri(np.minimum(r, 1.0)) - mu))
        r += i / (made - i) * (higher - h)
        h = higher
    # The margin of 1e-12 keeps rounding alone from refuting at right = 0.
    return np.asarray(r + h > made / canaries * (1 + 1e-12), dtype=np.bool_)


def mu_from_guesses(right: int, made: int, canaries: int, *, alpha: float) -> float:
    """Return, to nine digits, the largest mu for which ``right`` correct guesses about canaries refute mu-GDP.

    0 where none is refuted. Errors as in ``refuted``.
    """
    return _last(lambda mu: refuted(right, made, canaries, mu=mu, alpha=alpha))


def one_run_fdp(
    guesses: Guesses, *, delta: float, alpha: float, epsilon: float | None = None, witness: str = ""
) -> Measurement:
    """Compute a lower bound on epsilon from one run, for a mechanism whose trade-off curve is Gaussian.

    Arguments as in ``one_run``.

    ``delta`` in (0, 1). ``detectable`` assumes independent Gaussian canaries and guesses on the largest and the
    smallest scores, half each.
    """
    check_guesses(guesses, "one_run_fdp", delta, alpha, epsilon)
    if delta == 0:
        raise ValueError(
            "delta must be > 0 for a Gaussian trade-off curve, got 0: mu-GDP implies no finite epsilon at delta 0"
        )

    def bound(right: int) -> float:
        return epsilon_from_mu(mu_from_guesses(right, guesses.made, guesses.canaries, alpha=alpha), delta)

    return guesses_measured(
        guesses,
        bound,
        estimator="one_run_fdp",
        assumption=GAUSSIAN_ONE_RUN,
        delta=delta,
        alpha=alpha,
        estimate=_estimate(guesses, delta),
        detectable=None if epsilon is None else detectable_gaussian(guesses, bound, delta=delta, epsilon=epsilon),
        witness=witness,
    )


def share_right(mu: FloatArray, abstained: float) -> FloatArray:
    """Return, for each ``mu``, the probability that a membership guess is correct when canary scores are Gaussian with
    mean shift ``mu``.

    ``mu``: (k,); the result has the same shape.

    Scores are mu/2 + N(0, 1) with the canary and -mu/2 + N(0, 1) without it. The share ``abstained`` of all scores,
    those nearest 0, is not guessed.
    """
    # No score lies 40 deviations beyond its mean; 60 halvings exhaust a double for all mu in the same loop.
    low, high = np.zeros_like(mu), mu / 2 + 40.0
    for _ in range(60):
        cut = (low + high) / 2
        guessed = ndtr(mu / 2 - cut) + ndtr(-mu / 2 - cut)
        low, high = np.where(guessed > 1 - abstained, cut, low), np.where(guessed > 1 - abstained, high, cut)
    hits, misses = ndtr(mu / 2 - low), ndtr(-mu / 2 - low)
    return np.asarray(hits / (hits + misses), dtype=np.float64)


def detectable_gaussian(
    guesses: Guesses, bound: Callable[[int], float], *, delta: float, epsilon: float
) -> float | None:
    """Return the minimum detectable epsilon (90 % power) of a one-run audit with independent Gaussian canaries.

    It is stated at ``delta`` > 0.

    ``bound``: maps a number of correct guesses to the epsilon that they prove, by either one-run estimator.
    ``epsilon``: the claimed one. None where not even guesses without an error refute the claim.
    """
    needed = fewest_refuting(guesses.made, lambda right: bound(right) > epsilon)
    if needed is None:
        return None
    abstained = 1 - guesses.made / guesses.canaries
    mu = _last(lambda level: bdtr(needed - 1, guesses.made, share_right(level, abstained)) > 0.1)
    return epsilon_from_mu(mu, delta)


def _estimate(guesses: Guesses, delta: float) -> float | None:
    """The epsilon of the Gaussian mechanism whose canaries are guessed correctly at the rate that was seen."""
    if not 0 < guesses.right < guesses.made:
        return None
    share, abstained = guesses.right / guesses.made, 1 - guesses.made / guesses.canaries
    return epsilon_from_mu(_last(lambda mu: share_right(mu, abstained) <= share), delta)


def _last(holds: Callable[[FloatArray], BoolArray]) -> float:
    """The last mu >= 0 at which ``holds``, to nine digits; 0 where it does not hold at 0; tries many mu at once."""
    low, high = 0.0, 1.0
    if not holds(np.zeros(1))[0]:
        return 0.0
    while holds(np.array([high]))[0]:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        levels = np.linspace(low, high, _PARTS)
        # Both ends are known already: it holds at the lower one and fails at the upper one.
        last = int(np.flatnonzero(holds(levels[:-1])).max(initial=0))
        low, high = float(levels[last]), float(levels[last + 1])
    return low
