"""Check that client reports follow their published distribution, and that a shuffler hides who sent which report.

Every log-likelihood ratio s satisfies E1[g(s)] = E0[e^s g(s)] for any bounded g. Reports that the law describes wrongly
violate the identity; scores by that law may then show little of a mechanism that leaks much.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.special import expit

from ..audit.arrays import FloatArray
from ..audit.check_result import CheckResult
from ..audit.claim import Claim

FITS, POSSIBLE, PLACE = "law fits the reports", "reports are possible", "shuffled places tell nothing"
LOCAL, AMPLIFIED = "reports before the shuffler", "epsilon of the shuffled law"
"""Checks that call the hooks of a defense whose reports are shuffled."""
_ERRORS = 7.0
"""Standard errors beyond which a check fails: once in 10^11 checks of a correct mechanism."""
_BELOW = 1.2816
"""Standard errors below its mean that a measured number exceeds with probability 0.9."""
_FACTORS = tuple(1.01**number for number in range(240))
"""Factors of the law's privacy losses that are tried, from the law itself to the largest violation."""
_EFFECTIVE = 20
"""Trials, as far as their weights are equal, from which means by weights are taken."""
_FEWEST = 30
"""Trials below which nothing is checked."""


def report_checks(
    arrays: Sequence[Mapping[str, Any]], claim: Claim, *, exact: bool, clients: int | None
) -> tuple[CheckResult, ...]:
    """Run both checks, of the client reports' distribution and of the shuffler, on the client reports of all seeds of
    the audit; return their results.

    Args:
        arrays: what each block kept.
        claim: what the reports must keep.
        exact: whether the score is the likelihood ratio itself.
        clients: number of clients behind the shuffler; None where reports are not shuffled.
    """
    kept = {name: np.concatenate([one[name] for one in arrays]) for name in arrays[0]}
    found = [_fits(kept["member"], kept["nonmember"], claim) if exact else _not_exact()]
    found.append(_possible(kept) if clients is None else _place(kept, clients))
    return tuple(found)


def _not_exact() -> CheckResult:
    reason = "other clients have laws of their own, or clients are sampled: the score is no exact likelihood ratio"
    return CheckResult(name=FITS, passed=None, witness=reason)


def _fits(member: FloatArray, nonmember: FloatArray, claim: Claim) -> CheckResult:
    """Check the identity for g = 1 / (1 + e^s)^2 and its mirror image, averaged over the rounds of each trial."""
    # A law that gives every report one score satisfies the identity and can show nothing.
    if member.size and np.ptp(member) == np.ptp(nonmember) == member.flat[0] - nonmember.flat[0] == 0:
        return CheckResult(name=FITS, passed=False, witness="the law scores every report alike")
    # The mirror image tests the absent row.
    worst: CheckResult | None = None
    for name, present, absent in (("present", member, nonmember), ("absent", -nonmember, -member)):
        one, other = (torch.from_numpy(side.astype(np.float64)) for side in (present, absent))
        left, right = (-one).sigmoid().square().mean(1).numpy(), (other.sigmoid() * (-other).sigmoid()).mean(1).numpy()
        error = math.sqrt(left.var() / len(left) + right.var() / len(right)) + 1e-9
        measured = abs(float(left.mean() - right.mean())) / error
        witness = f"{len(left)} runs per arm, identity of likelihood ratios, {name} row"
        found = CheckResult.at_most(FITS, measured, _ERRORS, unit="standard errors", witness=witness)
        worst = found if worst is None or measured > (worst.measured or 0.0) else worst
    if worst is None or min(len(member), len(nonmember)) < _FEWEST:
        return CheckResult(name=FITS, passed=None, witness=f"fewer than {_FEWEST} trials")
    return replace(worst, detects=_detectable(member, nonmember, claim)) if worst.passed else worst


def _detectable(member: FloatArray, nonmember: FloatArray, claim: Claim) -> float | None:
    """The epsilon of reports whose privacy losses are larger than the law's by the smallest factor at which the check
    fails with probability 0.9; None where no factor that these trials resolve is large enough.

    A factor c means densities P1' ~ sqrt(P0 P1) e^(c s / 2) and P0' ~ sqrt(P0 P1) e^(-c s / 2): randomised response of
    epsilon c times as large, or Gaussian noise on rows that are c times as far apart. Their means follow from the
    trials by weights.
    """
    within, out = (side.astype(np.float64) for side in (member, nonmember))
    rounds, chance = within.shape[1], (0.0, 0.0)
    for factor in _FACTORS:
        weights = [np.exp((factor - 1) / 2 * sign * side) for sign, side in ((1, within), (-1, out))]
        if min(one.sum() ** 2 / np.square(one).sum() for one in weights) < _EFFECTIVE * rounds:
            return None
        # The same two identities as above: the mirror image exchanges the rows, and the sign of the score.
        pairs = (
            (_weighed(expit(-within) ** 2, weights[0]), _weighed(expit(out) * expit(-out), weights[1])),
            (_weighed(expit(out) ** 2, weights[1]), _weighed(expit(within) * expit(-within), weights[0])),
        )
        apart = [left - right for (left, _), (right, _) in pairs]
        if factor == 1:
            # What these trials show under the law itself is chance.
            chance = (apart[0], apart[1])
        for number, ((_, left_error), (_, right_error)) in enumerate(pairs):
            allowed = (_ERRORS + _BELOW) * (math.hypot(left_error, right_error) + 1e-9)
            if abs(apart[number] - chance[number]) > allowed:
                return _larger(claim, factor, within, weights, rounds)
    return None


def _weighed(values: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """The mean of ``values (trials, rounds)`` by weights, and the standard error of the mean of as many trials."""
    share = weights / weights.sum()
    mean = float((share * values).sum())
    return mean, math.sqrt(float((share * (values - mean) ** 2).sum()) / values.size)


def _larger(claim: Claim, factor: float, within: FloatArray, weights: Sequence[FloatArray], rounds: int) -> float:
    """The epsilon of privacy losses that are ``factor`` times as large: exact for a pure epsilon that is reached, and
    for Gaussian noise.
    """
    pure = factor * claim.epsilon
    if claim.delta == 0:
        return pure
    # The mean loss grows with the square of the factor.
    mean = factor * float((weights[0] * within).sum() / weights[0].sum())
    return pure + rounds * max(0.0, mean - factor * float(within.mean()))


def _possible(kept: Mapping[str, Any]) -> CheckResult:
    """Check that no trial has a report that its own row cannot produce."""
    odd = np.concatenate([kept["member_odd"], kept["nonmember_odd"]])
    witness = f"{len(odd)} trials, reports of density zero"
    return CheckResult.at_most(POSSIBLE, float(odd.mean()), 0.0, unit="share of trials", witness=witness)


def _place(kept: Mapping[str, Any], clients: int) -> CheckResult:
    """Check that the report in the sender's own place resembles the present row as little when the sender holds it."""
    within, out = kept["member_place"], kept["nonmember_place"]
    error = math.sqrt(within.var() / len(within) + out.var() / len(out))
    # A shuffler leaves the report in its own place with probability 1 / clients.
    allowed = 1 / clients + _ERRORS * error
    measured = abs(float(within.mean() - out.mean()))
    witness = f"{len(within)} runs per arm, the row in the sender's own place"
    return CheckResult.at_most(PLACE, measured, allowed, unit="likeness", witness=witness)
