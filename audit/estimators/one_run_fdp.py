"""One run read by f-DP: what a whole trade-off curve allows to its guesses (Mahloujifar, Melis, Chaudhuri 2024).

Tighter than ``one_run`` where the curve is Gaussian, and an assumption everywhere else. The recursion runs over the
guesses, for all noise levels at once; the largest refuted mu is found by cutting an interval into ever finer parts,
one that no mu on its far end refutes: there is no grid, hence no edge to return.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import bdtr, ndtr, ndtri

from ..arrays import BoolArray, FloatArray
from ..binomial import check_level
from ..evidence import Guesses, check_counts
from ..gaussian import epsilon_from_mu
from ..measurement import GAUSSIAN_ONE_RUN, Measurement
from .one_run import check_guesses, fewest_refuting, guesses_measured

_PARTS = 48


def refuted(right: int, made: int, canaries: int, *, mu: FloatArray, alpha: float) -> BoolArray:
    """``mu``: (k,) >= 0. Where mu-GDP leaves ``right`` or more of ``made`` guesses a chance below ``alpha``: (k,).

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
    for i in range(right - 1, -1, -1):
        higher = np.maximum(h, ndtr(ndtri(np.minimum(r, 1.0)) - mu))
        r += i / (made - i) * (higher - h)
        h = higher
    # Above alpha's own share, else rounding alone would refute at right = 0.
    return np.asarray(r + h > made / canaries * (1 + 1e-12), dtype=np.bool_)


def mu_from_guesses(right: int, made: int, canaries: int, *, alpha: float) -> float:
    """The largest mu that so many right guesses refute, to nine digits, 0 where none; errors as ``refuted``."""
    return _last(lambda mu: refuted(right, made, canaries, mu=mu, alpha=alpha))


def one_run_fdp(
    guesses: Guesses, *, delta: float, alpha: float, epsilon: float | None = None, witness: str = ""
) -> Measurement:
    """Bound epsilon of a mechanism whose trade-off curve is Gaussian, from one run; arguments as ``one_run``.

    ``delta`` in (0, 1). ``detectable`` is for independent Gaussian canaries, the guesses on the largest and smallest
    scores, half each.
    """
    check_guesses(guesses, "one_run_fdp", delta, alpha, epsilon)
    if delta == 0:
        raise ValueError("delta must be > 0 for a Gaussian curve, got 0: no mu > 0 has a finite epsilon there")

    def bound(right: int) -> float:
        return epsilon_from_mu(mu_from_guesses(right, guesses.made, guesses.canaries, alpha=alpha), delta)

    return guesses_measured(
        guesses,
        estimator="one_run_fdp",
        assumption=GAUSSIAN_ONE_RUN,
        delta=delta,
        alpha=alpha,
        epsilon_low=bound(guesses.right),
        ceiling=bound(guesses.made),
        estimate=_estimate(guesses, delta),
        detectable=None if epsilon is None else detectable_gaussian(guesses, bound, delta=delta, epsilon=epsilon),
        witness=witness,
    )


def share_right(mu: FloatArray, abstained: float) -> FloatArray:
    """(k,) chance that a guess is right, when all but the share ``abstained`` of mid scores +-mu/2 + N(0, 1) are
    guessed.
    """
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
    """The smallest epsilon at ``delta`` > 0 of independent Gaussian canaries that are refuted with power .9.

    ``bound``: right guesses -> what they prove, as either one-run estimator reads it; ``epsilon``: the claim's. None
    where not even guesses without an error refute it.
    """
    needed = fewest_refuting(guesses.made, lambda right: bound(right) > epsilon)
    if needed is None:
        return None
    abstained = 1 - guesses.made / guesses.canaries
    mu = _last(lambda level: bdtr(needed - 1, guesses.made, share_right(level, abstained)) > 0.1)
    return epsilon_from_mu(mu, delta)


def _estimate(guesses: Guesses, delta: float) -> float | None:
    """The Gaussian whose canaries are guessed right so often."""
    if not 0 < guesses.right < guesses.made:
        return None
    share, abstained = guesses.right / guesses.made, 1 - guesses.made / guesses.canaries
    return epsilon_from_mu(_last(lambda mu: share_right(mu, abstained) <= share), delta)


def _last(holds: Callable[[FloatArray], BoolArray]) -> float:
    """The last mu >= 0 at which ``holds``, to nine digits, 0 where it does not hold at 0; many mu at a time."""
    low, high = 0.0, 1.0
    if not holds(np.zeros(1))[0]:
        return 0.0
    while holds(np.array([high]))[0]:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        levels = np.linspace(low, high, _PARTS)
        # The ends are known: they keep the answer strictly inside.
        last = int(np.flatnonzero(holds(levels[:-1])).max(initial=0))
        low, high = float(levels[last]), float(levels[last + 1])
    return low
