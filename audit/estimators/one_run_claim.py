"""Chooses the one-run estimators that a claim allows, plans their guesses, and reports the best of their bounds."""

from collections.abc import Mapping
from dataclasses import replace

from ..claim import Claim
from ..curve import GaussianCurve
from ..evidence import Guesses
from ..measurement import Measurement
from .best_bound import best_bound
from .guess_plan import planned_guesses
from .one_run import epsilon_from_guesses, one_run
from .one_run_fdp import detectable_gaussian, one_run_fdp


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


def read_guesses(claim: Claim, guesses: Mapping[str, Guesses], *, alpha: float, witness: str) -> Measurement:
    """Return the largest lower bound on epsilon over all estimators, at a joint error rate ``alpha``; ``guesses`` maps
    each estimator to its guesses about the canaries.
    """
    # Alpha is divided by the number of estimators because the best of several bounds is reported.
    share = alpha / len(guesses)
    return best_bound(
        [measured_guesses(made, name, claim, alpha=share, witness=witness) for name, made in guesses.items()]
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
