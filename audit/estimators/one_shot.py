"""Estimates epsilon, without guarantee, from cosines of random canaries with the update sum (Andrew et al. 2023).

Without the canary the cosine is N(0, 1 / d), with it a fitted N(mean, variance). The estimate is the epsilon at which
the hockey-stick divergence of the two is delta. It exceeds the truth in 84 to 92 % of ideal runs, so it is no bound
and never refutes.
"""

import math

import numpy as np
from scipy.special import log_ndtr

from ..bisection import crossing
from ..evidence import CandidateScores, Design
from ..measurement import Kind, Measurement

FITTED = (
    "the cosines are Gaussian, and the error of the fit is ignored; the estimate exceeds the true epsilon in most runs"
)
_LARGEST = 8192.0
"""A larger epsilon is not stated."""


def one_shot(cosines: CandidateScores, *, dimension: int, delta: float, witness: str = "") -> Measurement:
    """Estimate epsilon at ``delta``, without guarantee, from cosines between random canaries and the sum of client
    updates.

    ``delta`` lies in (0, 1). The result is of kind ``estimate`` and its ``alpha`` is 1: nothing is guaranteed.

    ``cosines``: (k,) in [-1, 1], one cosine per canary with the sum of all updates, of k >= 2 canaries that all took
    part in one run, higher means member. ``dimension``: number d of model parameters. ``estimate`` is None where the
    cosines do not vary. Raises ValueError for other designs than ``one_run``, cosines out of range, d < 1, k < 2.
    """
    values, design = cosines.values, cosines.setting.design
    if design is not Design.ONE_RUN:
        raise ValueError(
            f"one_shot needs one run with many canaries, got evidence of dependence type (design) {design.value}"
        )
    if not 0 < delta < 1:
        raise ValueError(f"one_shot needs a claim with delta in (0, 1), got delta {delta}")
    if dimension < 1 or len(values) < 2:
        raise ValueError(
            f"one_shot needs canaries of dimension >= 1, and at least two canaries, got dimension {dimension} "
            f"and {len(values)} canaries"
        )
    # Rounding may carry the cosine of two parallel vectors past 1.
    if np.abs(values).max() > 1 + 1e-9:
        raise ValueError(f"cosines must lie in [-1, 1], got {values.min()} to {values.max()}")
    # Times sqrt(d), the cosine without the canary is N(0, 1): only the other law has to be fitted.
    scale = math.sqrt(dimension)
    spread = float(values.std(ddof=1)) * scale
    return Measurement(
        estimator="one_shot",
        assumption=FITTED,
        alpha=1.0,
        n0=0,
        n1=0,
        delta=delta,
        epsilon_low=0.0,
        estimate=epsilon_of_two_gaussians(float(values.mean()) * scale, spread, delta) if spread > 0 else None,
        ceiling=0.0,
        witness=witness,
        setting=cosines.setting,
        kind=Kind.ESTIMATE,
        canaries=len(values),
    )


def epsilon_of_two_gaussians(mean: float, spread: float, delta: float) -> float | None:
    """Return the smallest epsilon for which two given Gaussians are (epsilon, delta)-indistinguishable.

    The Gaussians are N(``mean``, ``spread``^2) and N(0, 1); epsilon is >= 0. None for an epsilon above 8192.
    """

    def apart(epsilon: float) -> bool:
        forth = hockey_stick_of_gaussians(mean, spread, epsilon)
        # The other direction, shifted and scaled so that its second law is N(0, 1) again.
        back = hockey_stick_of_gaussians(-mean / spread, 1 / spread, epsilon)
        return max(forth, back) > delta

    return None if apart(_LARGEST) else crossing(apart)[1]


def hockey_stick_of_gaussians(mean: float, spread: float, epsilon: float) -> float:
    """Return the hockey-stick divergence of N(``mean``, ``spread``^2) from N(0, 1) at ``epsilon``.

    It is ``sup_E P(E) - e^epsilon Q(E)`` of P = N(mean, spread^2) over Q = N(0, 1).

    The log ratio is a parabola in x: it exceeds epsilon between its roots (spread < 1) or outside of them (> 1).
    """
    # ln p/q - epsilon = a x^2 + b x + c.
    a, b = (1 - spread**-2) / 2, mean / spread**2
    c = -((mean / spread) ** 2) / 2 - math.log(spread) - epsilon
    edges = _where_positive(a, b, c)
    gains = sum(_mass((low - mean) / spread, (high - mean) / spread) for low, high in edges)
    # On these sets p > e^epsilon q, so a cost above 1 is rounding; one exponent for both factors avoids overflow.
    costs = sum(math.exp(min(0.0, epsilon + _log_mass(low, high))) for low, high in edges)
    return max(0.0, gains - costs)


def _where_positive(a: float, b: float, c: float) -> list[tuple[float, float]]:
    # Equal spreads leave a straight line, whose root the quadratic formula would lose.
    if abs(a) < 1e-12:
        if b == 0:
            return [(-math.inf, math.inf)] if c > 0 else []
        return [(-c / b, math.inf)] if b > 0 else [(-math.inf, -c / b)]
    inside = b * b - 4 * a * c
    if inside <= 0:
        return [(-math.inf, math.inf)] if a > 0 else []
    # The root without cancellation, and the other one by their product c / a.
    q = -(b + math.copysign(math.sqrt(inside), b)) / 2
    left, right = sorted((q / a, c / q))
    return [(-math.inf, left), (right, math.inf)] if a > 0 else [(left, right)]


def _mass(low: float, high: float) -> float:
    return math.exp(_log_mass(low, high))


def _log_mass(low: float, high: float) -> float:
    """ln P[low < N(0, 1) < high], computed on the side where both tails are small."""
    if low > 0:
        low, high = -high, -low
    upper, lower = float(log_ndtr(high)), float(log_ndtr(low))
    return upper + math.log(-math.expm1(lower - upper)) if lower < upper else -math.inf
