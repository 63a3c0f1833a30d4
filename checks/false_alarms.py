"""Share one probability of a false alarm among all statistical tests of a run."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from ..audit.arrays import FloatArray
from ..audit.check import Check, CheckResult
from ..audit.ledger import SUITE

Level = Callable[[int], float]
"""Of the number of tests of a family to the level of each."""
NOISE: Level = partial(SUITE.level, "noise")
"""Levels of tests of noise in a suite run."""
POWER = 0.9
"""Probability with which a violation is found that counts as detectable."""


class Shortfall(NamedTuple):
    """The test of a family of tests that came closest to its lower limit, or fell below it.

    ``measured`` and ``allowed`` are standard deviations of the law; ``surprise`` is the logarithm of the probability of
    so small a number under the law, times the number of tests of the family.
    """

    measured: float
    allowed: float
    surprise: float
    witness: str


def share_found(degrees: float, slack: float = 0.0) -> float:
    """Return the largest share of the law's noise that a joint test of all numbers detects as too little with
    probability 0.9.

    Args:
        degrees: of freedom of the numbers' sum of squares.
        slack: rounding of the released values, in standard deviations of the law.
    """
    if degrees <= 0:
        return 0.0
    allowed = math.sqrt(float(chi2.ppf(NOISE(1), degrees)) / degrees) - slack
    return max(0.0, allowed / math.sqrt(float(chi2.ppf(POWER, degrees)) / degrees))


def least_scale(
    squares: FloatArray,
    degrees: FloatArray,
    names: Sequence[str],
    tests: int | None = None,
    *,
    slack: float | FloatArray = 0.0,
    level: Level = NOISE,
) -> tuple[Shortfall, int]:
    """Return the sum of squares that falls furthest below its degrees of freedom, and its index; sums without degrees
    of freedom are ignored.

    Under the law each is at least chi-squared distributed, which holds exactly for Gaussian noise and for Gaussian
    noise to which anything independent was added.

    Args:
        squares, degrees: ``(n,)`` sums of squares in variances of the law, and their degrees of freedom.
        names: one for each, or one for all.
        tests: tests of the family, if more than n.
        slack: rounding of the released values, in standard deviations of the law; one for all sums, or ``(n,)``.
        level: of the family's tests.
    """
    there = np.flatnonzero(degrees > 0)
    count = len(there) if tests is None else tests
    values, frequent = np.unique(degrees[there], return_inverse=True)
    limits = np.sqrt(chi2.ppf(level(count), values) / values)[frequent]
    allowed = np.maximum(0.0, limits - np.broadcast_to(slack, len(degrees))[there])
    measured = np.sqrt(np.maximum(squares[there], 0.0) / degrees[there])
    # The smallest share of the limit: degrees of freedom may differ between the tests of a family.
    worst = int(np.argmin(measured / np.maximum(allowed, 1e-300)))
    place = int(there[worst])
    surprise = _log_chance(float(squares[place]), float(degrees[place])) + math.log(count)
    name = names[place] if len(names) > 1 else names[0]
    witness = f"{name}, {degrees[place]:g} degrees of freedom"
    return Shortfall(float(measured[worst]), float(allowed[worst]), surprise, witness), place


def _log_chance(squares: float, degrees: float) -> float:
    """The logarithm of the probability of a chi-squared number up to ``squares``."""
    chance = float(chi2.cdf(squares, degrees))
    if chance > 0:
        return math.log(chance)
    # Beyond the range of floats the approximation of Wilson and Hilferty, which only orders failures.
    root: float = (max(squares, 0.0) / degrees) ** (1 / 3)
    return -((root - 1 + 2 / (9 * degrees)) ** 2) * 9 * degrees / 4


def least_result(name: Check, found: Sequence[Shortfall]) -> CheckResult:
    """Return a check result from several families of tests: of the failed families, the one least likely under the law;
    if none failed, the first family.
    """
    failed = [one for one in found if one.measured < one.allowed]
    worst = min(failed or found[:1], key=lambda one: one.surprise)
    return name.at_least(
        worst.measured,
        worst.allowed,
        unit="times the stated standard deviation",
        witness=f"standard deviation divided by the stated one, {worst.witness}",
    )
