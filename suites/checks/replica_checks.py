"""Replica probes: what the canary's own projections say of the noise, round by round, before any score sums them up.

A score over all rounds drowns one round without noise; so does one over all replicas a few without. The projections of
world 0 are noise alone: no draw should come twice, and in no round should they scatter less than the law says.
"""

import math
from collections.abc import Iterator

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.estimators.release_tests import GaussianRelease
from ...audit.evidence import Projections
from .check import CheckResult

REPEATED, EVERY_ROUND = "noise of its own in every replica", "noise scale in every round"
ARRIVES = "canary arrives"
_REPEATS = 2e-3
_COLLISION = 2.0**-23
"""Chance that two numbers of single precision near each other are one, at most."""
_ERRORS = 7.0
"""Standard errors by which a round has to fall short: once in 10^11 rounds of an honest mechanism."""
_DEPENDENT = 9.0
_FEWEST = 30


def replica_checks(member: Projections, nonmember: Projections, release: GaussianRelease) -> tuple[CheckResult, ...]:
    """``nonmember``: of runs without the canary, under the published law ``release``, the rest zero along it;
    ``member``: of runs with it.
    """
    return (*_noise(nonmember, release), _arrival(member, nonmember, release))


def _noise(nonmember: Projections, release: GaussianRelease) -> tuple[CheckResult, ...]:
    columns = [column for column in _columns(nonmember) if len(column) >= _FEWEST]
    if not columns:
        return (CheckResult(name=EVERY_ROUND, kept=None, witness=f"no round was seen in {_FEWEST} replicas"),)
    return (_repeats(columns, release.spacing), _scale(columns, release.sigma * math.sqrt(release.steps)))


def check_centred(batches: list[Projections]) -> None:
    """Replicas of one call without the canary must scatter about zero: a part of the noise that they share moves all.

    Raises:
        ValueError: if the mean of a round lies nine standard errors off.
    """
    for batch in batches:
        for number, column in enumerate(_columns(batch)):
            if len(column) < _FEWEST:
                continue
            error = float(column.std(ddof=1)) / math.sqrt(len(column))
            if abs(float(column.mean())) > _DEPENDENT * error > 0:
                raise ValueError(
                    "replicas share part of their noise, or it is biased: without the canary the mean of round "
                    f"{number} lies {abs(float(column.mean())) / error:.3g} standard errors from 0; draw noise in the "
                    "shape of the whole tensor, replicas first"
                )


def _arrival(member: Projections, nonmember: Projections, release: GaussianRelease) -> CheckResult:
    """How far the canary moves the releases of a run, over what the law says: one that a filter drops shows nothing."""
    within, out = (np.where(side.seen, side.values, 0.0).sum(axis=1) for side in (member, nonmember))
    expected = release.rate * release.steps * release.rounds
    # Where its sender was drawn in some rounds only, the law speaks of those.
    expected *= float(member.seen.mean())
    if not expected > 0 or min(len(within), len(out)) < _FEWEST:
        return CheckResult(name=ARRIVES, kept=None, witness=f"its sender was not seen in {_FEWEST} replicas")
    measured = float(within.mean() - out.mean()) / expected
    error = math.sqrt(within.var(ddof=1) / len(within) + out.var(ddof=1) / len(out)) / expected
    return CheckResult(
        name=ARRIVES,
        kept=measured >= 1 - _ERRORS * error,
        measured=measured,
        allowed=1 - _ERRORS * error,
        relation=">=",
        unit="share of the law's shift",
        witness=f"{len(within)} replicas with the canary, standard error {error:.2g}",
    )


def _columns(seen: Projections) -> Iterator[FloatArray]:
    """Each round's projections where the sender was seen."""
    for number in range(seen.values.shape[1]):
        yield seen.values[seen.seen[:, number], number]


def expected_repeats(count: int, spacing: float) -> float:
    """Share of ``count`` Gaussian numbers that repeat another one where they are rounded to multiples of ``spacing``
    deviations; above what comes once in 10^9 sets of them. 0 where ``spacing`` is.
    """
    if spacing == 0:
        return 0.0
    cells = spacing * np.arange(-math.ceil(9 / spacing), math.ceil(9 / spacing) + 1)
    chances = np.minimum(spacing * np.exp(-(cells**2) / 2) / math.sqrt(2 * math.pi), 1.0)
    with np.errstate(divide="ignore"):
        share = max(0.0, 1 + float(np.expm1(count * np.log1p(-chances)).sum()) / count)
    return min(1.0, share + 6 * math.sqrt(share / count))


def _repeats(columns: list[FloatArray], spacing: float) -> CheckResult:
    """Of all rounds together: a few bare replicas in each are as bad as many in one, which the scale shows."""
    total = sum(map(len, columns))
    measured = 1 - sum(len(np.unique(column)) for column in columns) / total
    most = max(map(len, columns))
    # A tenth more: a number of coins scatters a little less than the Gaussian that the law publishes for it.
    allowed = min(1.0, _REPEATS + most * _COLLISION + 1.1 * expected_repeats(most, spacing))
    return CheckResult(
        name=REPEATED,
        kept=measured <= allowed,
        measured=measured,
        allowed=allowed,
        unit="share of repeated releases",
        witness="of all rounds of the replicas without the canary, those that repeat another one's round bit for bit",
    )


def _scale(columns: list[FloatArray], sigma: float) -> CheckResult:
    ratios = [float(np.sqrt(np.mean(column**2))) / sigma for column in columns]
    limits = [1 - _ERRORS / math.sqrt(2 * len(column)) for column in columns]
    worst = min(range(len(columns)), key=lambda number: (ratios[number] - 1) * math.sqrt(len(columns[number])))
    return CheckResult(
        name=EVERY_ROUND,
        kept=ratios[worst] >= limits[worst],
        measured=ratios[worst],
        allowed=max(0.0, limits[worst]),
        relation=">=",
        unit="standard deviations of the law",
        witness=f"{len(columns[worst])} replicas without the canary, round {worst}",
    )
