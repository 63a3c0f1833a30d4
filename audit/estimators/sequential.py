"""An audit that may be looked at after every trial and stopped at will: betting against the claim.

Wealth ``prod_s (1 + lambda_s (1{X_s in E} - e^eps 1{X'_s in E} - delta))``, lambda_s in [0, 1 / (e^eps + delta)] chosen
before trial s, is a nonnegative supermartingale under (eps, delta)-DP, so it ever reaches 1 / alpha with probability
alpha at most (Ville 1939). The stakes are those of aGRAPA (Waudby-Smith and Ramdas 2024): mean over mean square so far.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..arrays import BoolArray, FloatArray
from ..binomial import check_level, privacy_loss
from ..evidence import MembershipScores
from ..measurement import INDEPENDENT_TRIALS, Measurement
from ..power.threshold import Fixed
from .joint_point import check_scores

_CAP = 0.5
"""Share of the largest stake allowed: at all of it, one loss is ruin; at half, it is allowed up to ln 2 further."""
_RUNG = 0.1
_LARGEST = 300.0
"""Of the epsilons to bet against: the square of a loss must be a number."""
_PAST = 1e-6
"""So far past the claim a stopped audit must show: a bound at the claim refutes nothing."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Rates of the event in both worlds under the broken twin that is looked for: they set the first stakes only.

    Wrong ones cost trials, never validity. ``tpr`` and ``fpr`` in [0, 1], not both 0.
    """

    tpr: float
    fpr: float

    def __post_init__(self) -> None:
        if not (0 <= self.tpr <= 1 and 0 <= self.fpr <= 1 and self.tpr + self.fpr > 0):
            raise ValueError(f"tpr and fpr must lie in [0, 1], not both 0, got {self.tpr} and {self.fpr}")


@dataclass(frozen=True, kw_only=True)
class Account:
    """Where betting against one epsilon stands: the sum of gains, of their squares, the log of the wealth."""

    gains: FloatArray
    squares: FloatArray
    log_wealth: FloatArray


def open_account(*, stakes_for: float, delta: float, expected: Expected | None = None) -> Account:
    """A wealth of 1 and a few imagined trials (200 expected events, or 20 of no expectation) that set the stakes."""
    odds = math.exp(stakes_for)
    if expected is None:
        squares = 10 * (1 + odds**2)
        gains = squares * 0.2 / (odds + delta)
    else:
        trials = 200 / (expected.tpr + expected.fpr)
        squares = trials * (expected.tpr + odds**2 * expected.fpr)
        gains = trials * max(0.0, expected.tpr - odds * expected.fpr - delta)
    return Account(gains=np.asarray(gains), squares=np.asarray(squares), log_wealth=np.zeros(()))


def bet(
    account: Account, member: BoolArray, nonmember: BoolArray, *, epsilon: float, stakes_for: float, delta: float
) -> tuple[FloatArray, Account]:
    """Log wealth after each of these trials, ``(..., n)``, and the account after the last.

    ``member``, ``nonmember``: (..., n), whether the event occurred with and without the canary, in the order of
    trials. The stakes are those that pay best against ``stakes_for``; the wealth against any other epsilon falls as it
    rises, and is valid up to ``stakes_for`` + ln 2, beyond which ValueError.
    """
    if epsilon > stakes_for + math.log(2):
        raise ValueError(f"stakes for epsilon {stakes_for} are too high against {epsilon}")
    largest = _CAP / (math.exp(stakes_for) + delta)
    tuned = member - math.exp(stakes_for) * nonmember - delta
    gains = account.gains[..., np.newaxis] + np.cumsum(tuned, axis=-1)
    squares = account.squares[..., np.newaxis] + np.cumsum(tuned * tuned, axis=-1)
    # The stake on a trial knows the trials before it, and not this one.
    stakes = np.clip((gains - tuned) / (squares - tuned * tuned), 0.0, largest)
    won = np.log1p(stakes * (member - math.exp(epsilon) * nonmember - delta))
    path = account.log_wealth[..., np.newaxis] + np.cumsum(won, axis=-1)
    return path, Account(gains=gains[..., -1], squares=squares[..., -1], log_wealth=path[..., -1])


def anytime_bound(
    member: BoolArray,
    nonmember: BoolArray,
    *,
    delta: float,
    alpha: float,
    epsilon: float | None = None,
    expected: Expected | None = None,
) -> float:
    """The lower end of the confidence sequence after these (n,) trials: right at all n at once, w. p. 1 - ``alpha``.

    Epsilons are climbed in rungs fixed beforehand, the first from 0 past the claim's ``epsilon``, each with stakes of
    its own, up to the first that holds. A bound above the true epsilon needs the wealth of the true one's rung to have
    reached 1 / alpha.
    """
    check_level("alpha", alpha)
    if member.shape != nonmember.shape or member.ndim != 1 or member.size == 0:
        raise ValueError(f"trials must be pairs, (n,) each and some, got {member.shape} and {nonmember.shape}")
    low, stakes_for = 0.0, epsilon or 0.0
    while True:
        account = open_account(stakes_for=stakes_for, delta=delta, expected=expected)

        def refuted(against: float, account: Account = account, stakes_for: float = stakes_for) -> bool:
            path, _ = bet(account, member, nonmember, epsilon=against, stakes_for=stakes_for, delta=delta)
            return bool(path.max() >= -math.log(alpha))

        top = stakes_for + _RUNG
        if not refuted(top):
            return _last(refuted, low, top)
        low = stakes_for = top


def sequential(
    scores: MembershipScores,
    *,
    delta: float,
    alpha: float,
    threshold: Fixed,
    epsilon: float | None = None,
    expected: Expected | None = None,
    witness: str = "",
) -> Measurement:
    """Bound epsilon at ``delta`` by all trials seen so far, in their order; it may be called again after every trial.

    ``threshold``: fixed; the event is a score above it. ``epsilon``: the claim's, around which the stakes are tuned.
    Raises ValueError for sides of unequal length (trials are paired), and for trials that are not independent.
    """
    _check(scores, delta, alpha, epsilon)
    hits_in, hits_out = scores.member > threshold.threshold, scores.nonmember > threshold.threshold

    def bound(member: BoolArray, nonmember: BoolArray) -> float:
        return anytime_bound(member, nonmember, delta=delta, alpha=alpha, epsilon=epsilon, expected=expected)

    shown = float(privacy_loss(hits_out.mean(), 1 - hits_in.mean(), delta))
    return Measurement(
        estimator="sequential",
        assumption=INDEPENDENT_TRIALS,
        alpha=alpha,
        n0=len(hits_out),
        n1=len(hits_in),
        delta=delta,
        threshold_policy=str(threshold),
        threshold=threshold.threshold,
        false_positives=int(np.count_nonzero(hits_out)),
        false_negatives=int(np.count_nonzero(~hits_in)),
        fpr_high=None,
        fnr_high=None,
        epsilon_low=bound(hits_in, hits_out),
        estimate=max(0.0, shown) if math.isfinite(shown) else None,
        ceiling=bound(np.ones_like(hits_in), np.zeros_like(hits_out)),
        detectable=None,
        witness=witness,
        setting=scores.setting,
        below_curve=None,
    )


def run_until(
    draw: Callable[[int], MembershipScores],
    *,
    epsilon: float,
    delta: float,
    alpha: float,
    threshold: Fixed,
    limit: int,
    batch: int = 500,
    expected: Expected | None = None,
    witness: str = "",
) -> Measurement:
    """Draw trials until the claim of ``epsilon`` is refuted, or ``limit`` trials a world are spent.

    ``draw(n)``: n fresh trials a world. Counted are the trials up to the one that refuted; looking at each costs no
    alpha. Errors as ``sequential``; ValueError unless limit and batch are >= 1.
    """
    if min(limit, batch) < 1:
        raise ValueError(f"limit and batch must be >= 1, got {limit} and {batch}")
    account, seen = open_account(stakes_for=epsilon, delta=delta, expected=expected), 0
    drawn: list[MembershipScores] = []
    while seen < limit:
        asked = min(batch, limit - seen)
        scores = draw(asked)
        _check(scores, delta, alpha, epsilon)
        if len(scores.member) != asked:
            raise ValueError(f"draw({asked}) must give as many trials a world, got {len(scores.member)}")
        pair = scores.member > threshold.threshold, scores.nonmember > threshold.threshold
        path, account = bet(account, *pair, epsilon=epsilon + _PAST, stakes_for=epsilon, delta=delta)
        drawn.append(scores)
        crossed = np.flatnonzero(path >= -math.log(alpha))
        seen += int(crossed[0]) + 1 if len(crossed) else asked
        if len(crossed):
            break
    return sequential(
        _joined(drawn, seen),
        delta=delta,
        alpha=alpha,
        threshold=threshold,
        epsilon=epsilon,
        expected=expected,
        witness=witness,
    )


def _joined(drawn: list[MembershipScores], seen: int) -> MembershipScores:
    member = np.concatenate([scores.member for scores in drawn])
    nonmember = np.concatenate([scores.nonmember for scores in drawn])
    return MembershipScores(member[:seen], nonmember[:seen], drawn[0].setting)


def _check(scores: MembershipScores, delta: float, alpha: float, epsilon: float | None) -> None:
    check_scores(scores, "sequential", delta, alpha)
    if len(scores.member) != len(scores.nonmember):
        sides = f"{len(scores.member)} and {len(scores.nonmember)}"
        raise ValueError(f"sequential pairs the trials of both worlds, got {sides}")
    if epsilon is not None and not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon must be >= 0 and finite, got {epsilon}")
    if epsilon is not None and epsilon > _LARGEST:
        raise ValueError(f"epsilon must be at most {_LARGEST:g}, so that its stakes are numbers, got {epsilon}")


def _last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The last epsilon in [low, high) at which ``holds``, ``low`` where it does not hold there."""
    if not holds(low):
        return low
    while high - low > 1e-8:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
