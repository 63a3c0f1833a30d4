"""Check the noise in the projections onto the canary in each round; the audit's score only shows the sum over rounds.

A score over all rounds hides one round without noise, and a score over all replicas hides a few without. Without the
canary the projections are noise alone: no draw should come twice, and no round should scatter less than the law states.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np

from ..audit.arrays import FloatArray
from ..audit.check import ARRIVES, EVERY_ROUND, OWN_IN_REPLICAS, CheckResult
from ..audit.estimators.release_tests import GaussianRelease
from ..audit.evidence import Projections
from .noise_sample import spacing

_REPEATS = 2e-3
"""Share of repeated projections that is always allowed."""
_COLLISION = 2.0**-23
"""Chance, at most, that two nearby numbers are equal in single precision."""
_ERRORS = 7.0
"""Standard errors by which a round must fall short: once in 10^11 rounds of a correct mechanism."""
_DEPENDENT = 9.0
"""Standard errors of a round's mean from 0 beyond which replicas share part of their noise."""
_BIASED = 4.0
"""Standard errors by which the mean of runs made alone is off where the noise itself is biased."""
_SPACED, _VALUES = 256, 8
"""Projections of a round that show a lattice, and different values of them at least: that so many numbers of no lattice
lie on one has a chance below 1e-5.
"""
_ROUNDED = 0.8
"""Share of the projections of a round that lack digits where releases are rounded."""
_FEWEST = 30
"""Replicas below which nothing is checked."""


def replica_checks(member: Projections, nonmember: Projections, release: GaussianRelease) -> tuple[CheckResult, ...]:
    """Check that noise is fresh and as large as published in every round, and that the canary reaches the observer.

    Args:
        member, nonmember: projections of runs with and without the canary.
        release: the published law; everything but noise and canary is zero along the canary.
    """
    return (*_noise(nonmember, release), _arrival(member, nonmember, release))


def _noise(nonmember: Projections, release: GaussianRelease) -> tuple[CheckResult, ...]:
    columns = [column for column in _columns(nonmember) if len(column) >= _FEWEST]
    if not columns:
        return (EVERY_ROUND.skipped(f"in no round did {_FEWEST} runs release anything"),)
    sigma = release.sigma * math.sqrt(release.steps)
    # Zeros alone are a round without noise.
    if any(1 < len(np.unique(column)) < _VALUES for column in columns):
        return (
            OWN_IN_REPLICAS.skipped("the noise takes few different values, which repeat by chance"),
            _scale(columns, sigma),
        )
    return (_repeats(columns, seen_spacing(columns)), _scale(columns, sigma))


def seen_spacing(columns: list[FloatArray]) -> float:
    """Return the spacing of the lattice on which all rounds' projections lie, in standard deviations of the round with
    the smallest spread; 0 if the projections lie on no lattice, or if a round has so few different values that
    discrete noise may explain them.
    """
    found = 0.0
    for column in columns:
        # Projections are releases less their centre, which is no rounded number.
        step, scale = spacing(column[:_SPACED], share=_ROUNDED), float(column.std())
        if not (step > 0 and scale > 0) or len(np.unique(column)) < _VALUES:
            return 0.0
        found = max(found, step / scale)
    return found


def off_centre(batches: list[Projections], alone: Callable[[], Projections]) -> bool:
    """Return whether runs without the canary share a part of their noise: the mean of a round lies nine standard errors
    from zero, while the mean of runs made one at a time lies less than four from zero.

    A noise whose mean is not zero is another matter, which checks of the noise judge: runs that were made one at a time
    share nothing, and their mean lies on the same side.

    Args:
        alone: makes such runs; called once, and only where a mean is off.
    """
    runs: Projections | None = None
    # Batch by batch: noise that one call shares could cancel out over many calls.
    for batch in batches:
        means = {number: _off(column) for number, column in enumerate(_columns(batch)) if len(column) >= _FEWEST}
        off = {number: mean for number, mean in means.items() if abs(mean) > _DEPENDENT}
        if not off:
            continue
        runs = alone() if runs is None else runs
        sides = np.where(runs.seen, runs.values, 0.0)[:, list(off)] * np.sign(list(off.values()))
        if _off(sides.sum(axis=1)) <= _BIASED:
            return True
    return False


def _off(column: FloatArray) -> float:
    """The mean in standard errors."""
    error = float(column.std(ddof=1)) / math.sqrt(len(column))
    return float(column.mean()) / error if error > 0 else 0.0


def _arrival(member: Projections, nonmember: Projections, release: GaussianRelease) -> CheckResult:
    """Check the canary's shift of the releases over the law's: a canary that a filter drops can show no violation.

    A shorter shift is no fault of a defense, which may protect more than its law states, but then the runs show less.
    """
    within, out = (np.where(side.seen, side.values, 0.0).sum(axis=1) for side in (member, nonmember))
    expected = release.rate * release.steps * release.rounds
    # The law is for rounds in which the sender was drawn.
    expected *= float(member.seen.mean())
    if not expected > 0 or min(len(within), len(out)) < _FEWEST:
        return ARRIVES.skipped(f"the canary's sender took part in fewer than {_FEWEST} runs")
    measured = float(within.mean() - out.mean()) / expected
    error = math.sqrt(within.var(ddof=1) / len(within) + out.var(ddof=1) / len(out)) / expected
    witness = f"{len(within)} runs with the canary, standard error {error:.2g}"
    found = ARRIVES.at_least(measured, 1 - _ERRORS * error, unit="share of the stated shift", witness=witness)
    if found.passed:
        return found
    words = f"{measured:.3g} of the stated shift, and at least {found.allowed:.3g} is required ({witness})"
    return ARRIVES.skipped(words, measured=measured)


def _columns(seen: Projections) -> Iterator[FloatArray]:
    """Each round's projections of those replicas in which the sender was seen."""
    for number in range(seen.values.shape[1]):
        yield seen.values[seen.seen[:, number], number]


def expected_repeats(count: int, spacing: float) -> float:
    """Return the largest plausible fraction of ``count`` rounded Gaussian numbers that are equal to another one.

    They are rounded to multiples of ``spacing`` standard deviations; once in 10^9 sets the share is exceeded. 0 where
    ``spacing`` is 0.
    """
    if spacing == 0:
        return 0.0
    cells = spacing * np.arange(-math.ceil(9 / spacing), math.ceil(9 / spacing) + 1)
    chances = np.minimum(spacing * np.exp(-(cells**2) / 2) / math.sqrt(2 * math.pi), 1.0)
    with np.errstate(divide="ignore"):
        share = max(0.0, 1 + float(np.expm1(count * np.log1p(-chances)).sum()) / count)
    return min(1.0, share + 6 * math.sqrt(share / count))


def _repeats(columns: list[FloatArray], spacing: float) -> CheckResult:
    """Check the share of repeats in all rounds together; a single round without noise fails the scale check."""
    total = sum(map(len, columns))
    measured = 1 - sum(len(np.unique(column)) for column in columns) / total
    most = max(map(len, columns))
    # A tenth more: discrete noise scatters a little less than the Gaussian that the law states for it.
    allowed = min(1.0, _REPEATS + most * _COLLISION + 1.1 * expected_repeats(most, spacing))
    witness = "releases without the canary, in all rounds, that equal one of another run bit for bit"
    return OWN_IN_REPLICAS.at_most(measured, allowed, unit="share of repeated releases", witness=witness)


def _scale(columns: list[FloatArray], sigma: float) -> CheckResult:
    # Squares about zero, where the law places the noise: an estimated mean would make the noise look smaller.
    ratios = [float(np.sqrt(np.mean(column**2))) / sigma for column in columns]
    limits = [1 - _ERRORS / math.sqrt(2 * len(column)) for column in columns]
    # In standard errors, since rounds differ in how many replicas saw the sender.
    worst = min(range(len(columns)), key=lambda number: (ratios[number] - 1) * math.sqrt(len(columns[number])))
    return EVERY_ROUND.at_least(
        ratios[worst],
        max(0.0, limits[worst]),
        unit="times the stated standard deviation",
        witness=f"{len(columns[worst])} runs without the canary, round {worst}",
    )
