"""Anytime-valid lower bound on epsilon by betting against the claim: the audit may stop after any trial.

Wealth ``prod_s (1 + lambda_s (1{X_s in E} - e^eps 1{X'_s in E} - delta))``, lambda_s in [0, 1 / (e^eps + delta)] chosen
before trial s, is a nonnegative supermartingale under (eps, delta)-DP, so it ever reaches 1 / alpha with probability
at most alpha (Ville 1939). The stakes are those of aGRAPA (Waudby-Smith and Ramdas 2024): mean over mean square so far.
"""

import math

import numpy as np

from ..arrays import BoolArray, FloatArray
from ..binomial import check_epsilon, check_level, privacy_loss
from ..bisection import crossing
from ..evidence import MembershipScores
from ..measurement import INDEPENDENT_TRIALS, Measurement
from ..threshold import FixedThreshold
from .joint_point import check_independent_trials, measured_counts

_CAP = 0.5
"""The largest stake as a share of the one at which a single loss takes all wealth; half allows epsilons up to ln 2
above the one that the stakes are tuned for."""
# Below ln 2, so that the stakes of one rung remain allowed against every epsilon up to the next.
_RUNG = 0.1
_LARGEST = 300.0
"""The largest epsilon to bet against: above it, e^epsilon squared comes near the largest double."""


def log_wealth(
    member: BoolArray,
    nonmember: BoolArray,
    *,
    epsilon: float,
    stakes_for: float,
    delta: float,
) -> FloatArray:
    """Return, after each trial, the log of the wealth of a bettor who bets against the claimed epsilon (testing by
    betting).

    ``member``, ``nonmember``: (..., n), whether the event occurred with and without the canary, in the order of the
    trials; returns ``(..., n)``. The stakes are tuned to refute the epsilon ``stakes_for``; the wealth against
    ``epsilon`` falls as that rises. Raises ValueError for an ``epsilon`` above ``stakes_for`` + ln 2, where a single
    loss could make the wealth negative.
    """
    if epsilon > stakes_for + math.log(2):
        raise ValueError(
            "epsilon must be at most stakes_for (the epsilon for which the bets are tuned) + ln 2, "
            f"got epsilon {epsilon} and stakes_for {stakes_for}"
        )
    odds = math.exp(stakes_for)
    # Twenty imagined events, half of them in either arm; 0.2 of the largest stake is the first bet.
    square = 10 * (1 + odds**2)
    gain = square * 0.2 / (odds + delta)
    tuned = member - odds * nonmember - delta
    gains, squares = gain + np.cumsum(tuned, axis=-1), square + np.cumsum(tuned * tuned, axis=-1)
    # The stake on a trial may depend on earlier trials only: its own outcome is subtracted again.
    stakes = np.clip((gains - tuned) / (squares - tuned * tuned), 0.0, _CAP / (odds + delta))
    won = np.log1p(stakes * (member - math.exp(epsilon) * nonmember - delta))
    return np.asarray(np.cumsum(won, axis=-1), dtype=np.float64)


def anytime_bound(
    member: BoolArray,
    nonmember: BoolArray,
    *,
    delta: float,
    alpha: float,
    epsilon: float | None = None,
) -> float:
    """Return a lower bound on epsilon that is valid even if the audit stops after any trial (anytime-valid).

    The trials are arrays (n,); the bound holds for all n at once with probability 1 - ``alpha``.

    The values of epsilon are tested in rungs that are fixed beforehand. The first rung reaches from 0 past the claimed
    ``epsilon``; every rung has its own stakes, and the search stops at the first that is not refuted. A bound above
    the true epsilon requires that the wealth on the rung of the true one has reached 1 / alpha.
    """
    check_level("alpha", alpha)
    if member.shape != nonmember.shape or member.ndim != 1 or member.size == 0:
        raise ValueError(
            f"member and nonmember must have one shape (n,) with n >= 1, got {member.shape} and {nonmember.shape}"
        )
    low, stakes_for = 0.0, epsilon or 0.0
    while True:

        def refuted(against: float, stakes_for: float = stakes_for) -> bool:
            path = log_wealth(member, nonmember, epsilon=against, stakes_for=stakes_for, delta=delta)
            # The maximum, not the last value: by Ville's inequality the wealth may reach 1 / alpha at any time.
            return bool(path.max() >= -math.log(alpha))

        top = stakes_for + _RUNG
        if not refuted(top):
            return crossing(refuted, low, top, relative=0.0, absolute=1e-8)[0]
        low = stakes_for = top


def sequential(
    scores: MembershipScores,
    *,
    delta: float,
    alpha: float,
    threshold: FixedThreshold,
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute an anytime-valid lower bound on epsilon at ``delta`` from the trials run so far, in the order of running
    them.

    It may be called again after every trial.

    ``threshold``: fixed; the event is a score above it. ``epsilon``: the claimed one, for which the stakes are tuned.
    Raises ValueError for sides of unequal length (trials are paired), and for trials that are not independent.
    """
    _check(scores, delta, alpha, epsilon)
    hits_in, hits_out = scores.member > threshold.threshold, scores.nonmember > threshold.threshold

    def bound(member: BoolArray, nonmember: BoolArray) -> float:
        return anytime_bound(member, nonmember, delta=delta, alpha=alpha, epsilon=epsilon)

    (point,) = threshold.counts(scores.member, scores.nonmember, delta=delta, alpha=alpha)
    shown = float(privacy_loss(hits_out.mean(), 1 - hits_in.mean(), delta))
    return measured_counts(
        point,
        delta=delta,
        estimator="sequential",
        assumption=INDEPENDENT_TRIALS,
        threshold_policy=str(threshold),
        epsilon_low=bound(hits_in, hits_out),
        estimate=max(0.0, shown) if math.isfinite(shown) else None,
        ceiling=bound(np.ones_like(hits_in), np.zeros_like(hits_out)),
        witness=witness,
        setting=scores.setting,
    )


def _check(scores: MembershipScores, delta: float, alpha: float, epsilon: float | None) -> None:
    check_independent_trials(scores.setting, "sequential", delta, alpha)
    if len(scores.member) != len(scores.nonmember):
        sides = f"{len(scores.member)} and {len(scores.nonmember)}"
        raise ValueError(f"sequential needs equally many trials with and without the canary, got {sides}")
    check_epsilon(epsilon)
    if epsilon is not None and epsilon > _LARGEST:
        raise ValueError(f"epsilon must be at most {_LARGEST:g}, because larger ones overflow, got {epsilon}")
