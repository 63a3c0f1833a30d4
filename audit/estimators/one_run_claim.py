"""Chooses the one-run estimators that a claim allows, plans their guesses before any score is seen, and reports the
best of their bounds.

More guesses give more counts, but the guesses on middle scores are less often correct. The plan takes the number of
guesses that would prove the largest epsilon of a mechanism with half of the claimed noise (or another share of it),
whose canaries have independent Gaussian scores +-mu/2 + N(0, 1). Numbers whose guesses could not refute the claim even
without an error come last. A mechanism of another law costs power and no validity.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.special import bdtrik

from ..arrays import BoolArray
from ..claim import Claim
from ..curve import GaussianCurve, epsilon_from_mu, mu_from_epsilon
from ..evidence import CandidateScores, Design, Guesses, Setting
from ..measurement import Measurement
from ..power import planned_for
from ..wording import plain
from .joint_point import best_of
from .one_run import epsilon_from_guesses, guess, one_run
from .one_run_fdp import detectable_gaussian, mu_from_guesses, one_run_fdp, share_right

# Geometric rather than even steps, because the best number of guesses may be a small share of the canaries.
_SHARES = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
_LEAST_DELTA = 1e-9
"""At delta 0 no Gaussian mechanism has a finite epsilon, so the plan uses this delta instead."""


@lru_cache(maxsize=64)
def planned_guesses(
    canaries: int, *, epsilon: float, delta: float, alpha: float, gaussian: bool = False, noise: float = 0.5
) -> int:
    """Return the approximate number of canaries on which a one-run audit should guess (in or out of the run), so that
    it refutes a false claim most clearly.

    ``canaries`` >= 2; the claim is ``epsilon`` at ``delta``, judged at ``alpha``.

    ``gaussian``: plan for ``one_run_fdp``, else for ``one_run``. ``noise``: the share, in (0, 1], of the claimed noise
    that the broken version adds. At 1 the claim is true, and the plan maximises the expected bound.

    Raises ValueError for fewer than two canaries and for a share of noise out of range.
    """
    if canaries < 2:
        raise ValueError(f"a one-run audit needs at least 2 canaries to plan its guesses, got {canaries}")
    if not 0 < noise <= 1:
        raise ValueError(
            f"noise (the share of the claimed noise that the broken version adds) must lie in (0, 1], got {noise}"
        )
    truth = mu_from_epsilon(epsilon, max(delta, _LEAST_DELTA)) / noise

    def bound(right: int, made: int) -> float:
        if gaussian:
            return epsilon_from_mu(mu_from_guesses(right, made, canaries, alpha=alpha), max(delta, _LEAST_DELTA))
        return epsilon_from_guesses(right, made, canaries, delta=delta, alpha=alpha)

    numbers = sorted({max(2, round(share * canaries)) for share in _SHARES})
    if noise == 1:
        return max(numbers, key=lambda made: _mean(bound, truth, made, canaries))
    # The number with the best bound may be so small that not even errorless guesses refute the claim.
    return max(numbers, key=lambda made: (bound(made, made) > epsilon, _cautious(bound, truth, made, canaries)))


def _mean(bound: Callable[[int, int], float], truth: float, made: int, canaries: int) -> float:
    """The expected bound, from nine quantiles of the number of right guesses."""
    rights = bdtrik((np.arange(9) + 0.5) / 9, made, _share(truth, made, canaries))
    return float(np.mean([bound(int(right), made) for right in np.clip(np.ceil(rights), 0, made)]))


def _cautious(bound: Callable[[int, int], float], truth: float, made: int, canaries: int) -> float:
    """The bound from one standard deviation fewer correct guesses than are expected."""
    # Not the mean: a plan that fails in half of the runs has too little power.
    share = _share(truth, made, canaries)
    right = math.floor(made * share - math.sqrt(made * share * (1 - share)))
    return bound(max(0, right), made)


def _share(truth: float, made: int, canaries: int) -> float:
    return float(share_right(np.array([truth]), 1 - made / canaries)[0])


def one_run_estimators(claim: Claim) -> tuple[str, ...]:
    """Return the names of the one-run estimators that this claim allows."""
    # The f-DP bound assumes a Gaussian trade-off curve, which the claim must state.
    return ("one_run_fdp", "one_run") if isinstance(claim.curve, GaussianCurve) and claim.delta > 0 else ("one_run",)


def guesses_on(claim: Claim, canaries: int, *, alpha: float) -> dict[str, int]:
    """Choose the estimators that this claim allows, at a joint error rate ``alpha``; return how many guesses about the
    canaries each of them makes.
    """
    names = one_run_estimators(claim)
    levels = {"epsilon": claim.epsilon, "delta": claim.delta, "alpha": alpha / len(names)}
    return {name: planned_guesses(canaries, gaussian=name == "one_run_fdp", **levels) for name in names}


def measured_by_guesses(
    claim: Claim,
    scores: CandidateScores,
    member: BoolArray,
    *,
    alpha: float,
    rng: Callable[[], np.random.Generator],
    witness: str,
) -> Measurement:
    """Guess from one run's scores which canaries the run includes, as often as is planned for the claim. Return the
    largest lower bound on epsilon over all estimators, at a joint error rate ``alpha``.

    ``member``: (m,), the coins; one half of the guesses is "in". ``rng``: makes each estimator's generator, which
    breaks ties.
    """
    guesses = {}
    for name, made in guesses_on(claim, len(scores.values), alpha=alpha).items():
        guesses[name] = guess(scores, member, highest=made - made // 2, lowest=made // 2, rng=rng())
    return read_guesses(claim, guesses, alpha=alpha, witness=witness)


def best_of_guesses(claim: Claim, canaries: int, *, alpha: float) -> Measurement:
    """Return the largest lower bound on epsilon that the planned number of guesses can give; this bound is reached if
    all guesses are right.
    """
    setting = replace(Setting.claimed(claim), design=Design.ONE_RUN)
    # No data are needed: the number of guesses is fixed, and all of them right is the best that can happen.
    planned = guesses_on(claim, canaries, alpha=alpha)
    right = {name: Guesses(made, made, canaries, setting) for name, made in planned.items()}
    return read_guesses(claim, right, alpha=alpha, witness="all guesses right")


_MOST_CANARIES = 100_000
_STEPS = (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)


def enough_canaries(claim: Claim, detected: float, *, alpha: float) -> str:
    """Return in words about how many canaries of one run let the planned guesses find a true epsilon of ``detected``
    with 90 % power, to a quarter; or that no number up to the largest one that is computed does.
    """
    numbers = [round(step * decade) for decade in (100, 1000, 10_000) for step in _STEPS] + [_MOST_CANARIES]

    def enough(canaries: int) -> bool:
        found = best_of_guesses(claim, canaries, alpha=alpha).detectable
        return found is not None and found <= detected

    place, found = bisect_left(numbers, True, key=enough), f"to find a true eps of {plain(detected)}"
    if place == len(numbers):
        return f"even {_MOST_CANARIES:,} canaries of one run would not be enough {found} {planned_for(claim.delta)}"
    return f"about {numbers[place]:,} canaries of one run would be enough {found} {planned_for(claim.delta)}"


def read_guesses(claim: Claim, guesses: Mapping[str, Guesses], *, alpha: float, witness: str) -> Measurement:
    """Return the largest lower bound on epsilon over all estimators, at a joint error rate ``alpha``; ``guesses`` maps
    each estimator to its guesses about the canaries.
    """
    return best_of(
        list(guesses),
        alpha,
        lambda name, share: measured_guesses(guesses[name], name, claim, alpha=share, witness=witness),
    )


def measured_guesses(guesses: Guesses, name: str, claim: Claim, *, alpha: float, witness: str) -> Measurement:
    """Bound epsilon by ``one_run`` or ``one_run_fdp``, with the detectable epsilon of a Gaussian mechanism.

    Canaries of the worst mechanism, for which ``one_run`` computes it, are guessed far better.
    """
    if name == "one_run_fdp":
        return one_run_fdp(guesses, delta=claim.delta, alpha=alpha, epsilon=claim.epsilon, witness=witness)
    measured = one_run(guesses, delta=claim.delta, alpha=alpha, epsilon=claim.epsilon, witness=witness)
    # No Gaussian mechanism has a finite epsilon at delta 0.
    if claim.delta == 0:
        return measured

    def bound(right: int) -> float:
        return epsilon_from_guesses(right, guesses.made, guesses.canaries, delta=claim.delta, alpha=alpha)

    return replace(measured, detectable=detectable_gaussian(guesses, bound, delta=claim.delta, epsilon=claim.epsilon))
