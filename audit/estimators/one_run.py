"""One-run audit: guesses which of many canaries, each included by a fair coin, one run contains (Steinke et al. 2023).

``p(eps) = P[B >= v] + 2 m delta max_{1 <= i <= v} P[v - i <= B < v] / i`` with B ~ Bin(r, e^eps / (1 + e^eps)): the
chance that v or more of r guesses on m canaries are right (theorem 5.2). The canaries may share one noise draw.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import bdtr, bdtrc, expit, gammaln

from ..binomial import check_delta, check_epsilon, check_level
from ..bisection import crossing
from ..evidence import CandidateScores, Design, Guesses, check_counts
from ..measurement import FAIR_COINS, Measurement


def guess(
    scores: CandidateScores, member: ArrayLike, *, highest: int, lowest: int, rng: np.random.Generator
) -> Guesses:
    """Guess for each canary whether it was included, by its score, and count the correct guesses.

    The guess is "in" for the ``highest`` scores and "out" for the ``lowest``; there is no guess for the others.

    ``member``: (m,) booleans, the coins. Both numbers must be fixed before the coins are seen: choosing them afterwards
    breaks the theorem. Ties are broken at random, because the order of the canaries may reveal the coins. Raises
    ValueError unless 0 <= highest, 0 <= lowest and highest + lowest <= m.
    """
    truth = np.asarray(member)
    if truth.dtype != np.bool_ or truth.shape != scores.values.shape:
        raise ValueError(
            f"member (which canaries are included) must be booleans of shape {scores.values.shape}, "
            f"got {truth.shape} of {truth.dtype}"
        )
    if min(highest, lowest) < 0 or highest + lowest > len(truth):
        raise ValueError(
            "highest and lowest (numbers of canaries guessed to be included and left out) must be >= 0 "
            "and sum to at most "
            f"{len(truth)} canaries, got {highest} + {lowest}"
        )
    # A stable sort of shuffled scores breaks ties by ``rng`` alone, never by the position of a canary.
    shuffled = rng.permutation(len(truth))
    order = shuffled[np.argsort(scores.values[shuffled], kind="stable")]
    right = np.count_nonzero(truth[order[len(truth) - highest :]]) + np.count_nonzero(~truth[order[:lowest]])
    return Guesses(int(right), highest + lowest, len(truth), scores.setting)


def p_value(right: int, made: int, canaries: int, *, epsilon: float, delta: float) -> float:
    """Return the largest probability that (``epsilon``, ``delta``)-DP allows for at least ``right`` correct guesses out
    of ``made``.

    Raises ValueError unless 0 <= right <= made <= canaries, ``epsilon`` >= 0 is finite and ``delta`` in [0, 1).
    """
    check_counts(right, made, canaries)
    _check_levels(delta=delta, epsilon=epsilon)
    # Zero or more correct guesses are certain, and the maximum over 1 <= i <= v would be empty.
    if right == 0:
        return 1.0
    rate = float(expit(epsilon))
    tail = float(bdtrc(right - 1, made, rate))
    # At rate 1 (epsilon above 37) all guesses may be correct: the tail is already 1.
    if delta == 0 or rate == 1:
        return min(1.0, tail)
    # Counted downwards, so that one cumulative sum gives P[v - i <= B < v] for every i.
    below = np.arange(right - 1, -1, -1)
    # In logarithms, because the binomial coefficient overflows from about 1,030 guesses on.
    log_choices = gammaln(made + 1) - gammaln(below + 1) - gammaln(made - below + 1)
    mass = np.exp(log_choices + below * math.log(rate) + (made - below) * math.log(float(expit(-epsilon))))
    return min(1.0, tail + 2 * canaries * delta * float(np.max(np.cumsum(mass) / np.arange(1, right + 1))))


def epsilon_from_guesses(right: int, made: int, canaries: int, *, delta: float, alpha: float) -> float:
    """Return the lower bound on epsilon at ``delta`` that follows if ``right`` of ``made`` guesses about canaries are
    correct.

    It is the largest epsilon at which ``right`` or more correct guesses are less likely than ``alpha``; 0 where there
    is none.

    Raises ValueError as ``p_value``, and for alpha outside (0, 1).
    """
    check_counts(right, made, canaries)
    _check_levels(delta=delta, alpha=alpha)

    def refuted(epsilon: float) -> bool:
        return p_value(right, made, canaries, epsilon=epsilon, delta=delta) < alpha

    # Every refuted epsilon is a valid bound, because a mechanism that satisfies a smaller one satisfies this one too;
    # never the second of the two: rounding must not state more than was refuted.
    return crossing(refuted)[0]


def one_run(
    guesses: Guesses, *, delta: float, alpha: float, epsilon: float | None = None, witness: str = ""
) -> Measurement:
    """Compute a lower bound on epsilon at ``delta`` from guesses about which of many canaries one training run
    included.

    ``delta`` lies in [0, 1); the bound holds with probability 1 - ``alpha``.

    ``epsilon``: the claimed one. ``detectable`` is computed from it, for a mechanism under which each guess is correct
    with probability e^eps / (1 + e^eps). Raises ValueError unless the design is ``one_run``, where the coins are the
    trials.
    """
    check_guesses(guesses, "one_run", delta, alpha, epsilon)

    def bound(right: int) -> float:
        return epsilon_from_guesses(right, guesses.made, guesses.canaries, delta=delta, alpha=alpha)

    needed = None
    if epsilon is not None:
        needed = fewest_refuting(
            guesses.made, lambda v: p_value(v, guesses.made, guesses.canaries, epsilon=epsilon, delta=delta) < alpha
        )
    return guesses_measured(
        guesses,
        bound,
        estimator="one_run",
        assumption=FAIR_COINS,
        delta=delta,
        alpha=alpha,
        estimate=_estimate(guesses),
        detectable=None if needed is None else _smallest_true(needed, guesses.made),
        witness=witness,
    )


def check_guesses(guesses: Guesses, estimator: str, delta: float, alpha: float, epsilon: float | None) -> None:
    """Raise ValueError if alpha, delta or epsilon is out of range, or if the guesses are not about random canaries of
    one run.
    """
    _check_levels(delta=delta, alpha=alpha, epsilon=epsilon)
    # The theorem's probability is over the fair coins, which trials of another design do not have.
    design = guesses.setting.design
    if design is not Design.ONE_RUN:
        raise ValueError(
            f"{estimator} needs one run in which a fair coin decides whether each canary is included, "
            f"got evidence of dependence type (design) {design.value}"
        )


def _check_levels(*, delta: float, alpha: float | None = None, epsilon: float | None = None) -> None:
    if alpha is not None:
        check_level("alpha", alpha)
    check_delta(delta)
    check_epsilon(epsilon)


def guesses_measured(guesses: Guesses, bound: Callable[[int], float], **own: Any) -> Measurement:
    """Build the measurement of a one-run audit from its numbers of guesses.

    ``bound``: a number of right guesses -> the epsilon that they prove; ``own``: the estimator's other fields. Such a
    measurement has no separate runs with and without the canary, and no threshold.
    """
    return Measurement(
        # There are no arms, because one run holds included and excluded canaries; the counts of guesses replace them.
        n0=0,
        n1=0,
        threshold_policy=f"{guesses.made} guesses",
        epsilon_low=bound(guesses.right),
        ceiling=bound(guesses.made),
        setting=guesses.setting,
        canaries=guesses.canaries,
        made=guesses.made,
        right=guesses.right,
        **own,
    )


def fewest_refuting(made: int, refutes: Callable[[int], bool]) -> int | None:
    """Return the smallest number of correct guesses, among ``made`` guesses about canaries, that refutes the claim.

    None when not even ``made`` correct guesses refute.
    """
    # Bisection finds it, because one more correct guess never weakens the evidence.
    needed = bisect_left(range(made + 1), True, key=refutes)
    return needed if needed <= made else None


def _smallest_true(needed: int, made: int, power: float = 0.9) -> float:
    return crossing(lambda epsilon: bool(bdtr(needed - 1, made, float(expit(epsilon))) > 1 - power))[0]


def _estimate(guesses: Guesses) -> float | None:
    # The inverse of e^eps / (1 + e^eps); without a wrong guess it is infinite and is not stated.
    wrong = guesses.made - guesses.right
    return max(0.0, math.log(guesses.right / wrong)) if guesses.right and wrong else None
