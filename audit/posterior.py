"""Bounds that a privacy claim implies on what an adversary can infer about one unit, or about several units together,
and on what it can reconstruct of one unit.

The bounds of a belief follow from Bayes' rule; with delta 0 they hold after every output. With delta > 0 an output of
small probability may give certainty, so that only the share of right guesses is bounded.

The success rate of a reconstruction is bounded by that of blind guessing. For neighbouring data without the unit, the
output of an attack is a blind guess, which succeeds with probability at most kappa. Success is an event of that output,
so for data with the unit its probability is at most ``1 - f(kappa)``, where f is the trade-off curve of the two output
distributions (Balle, Cherubin, Hayes 2022, for pure epsilon and Renyi; Hayes, Mahloujifar, Balle 2023, for any curve).
"""

import math

from .claim import Claim, Unit
from .curve import Curve, ProfileCurve
from .observer import Observer

_LARGEST_EXPONENT = 700.0


def posterior_bounds(prior: float, epsilon: float) -> tuple[float, float]:
    """Return the smallest and the largest probability that an adversary assigns to a hypothesis about one unit after
    seeing the output of an epsilon-DP mechanism (delta 0). Before the output, the adversary assigned the probability
    ``prior``.

    ``p / (e^epsilon + (1 - e^epsilon) p)`` and ``e^epsilon p / (1 + (e^epsilon - 1) p)``, for two neighbouring data
    sets, such as with and without the unit.

    Args:
        prior: in [0, 1].
        epsilon: >= 0; an infinite one limits nothing.

    Raises:
        ValueError: outside these ranges.
    """
    _check_probability("prior", prior)
    _check_epsilon(epsilon)
    # With exp(-epsilon), which cannot overflow.
    shrunk = math.exp(-epsilon)
    low = prior if prior in (0.0, 1.0) else shrunk * prior / (1 - prior + shrunk * prior)
    high = prior if prior in (0.0, 1.0) else prior / (prior + shrunk * (1 - prior))
    return low, high


def right_guesses(prior: float, epsilon: float, delta: float = 0.0) -> float:
    """Return the largest probability with which an adversary guesses right from which of two neighbouring data sets an
    (epsilon, delta)-DP output was computed, if the first has probability ``prior``.

    The best guess lies at a corner of the trade-off region (Kairouz et al. 2015): always one of the two but for a
    share delta, or error rates of ``(1 - delta) / (1 + e^epsilon)`` each. At delta 0 and prior 1/2 it equals the larger
    bound of the posterior.

    Args:
        prior, delta: in [0, 1].
        epsilon: >= 0.

    Raises:
        ValueError: outside these ranges.
    """
    _check_probability("prior", prior)
    _check_probability("delta", delta)
    _check_epsilon(epsilon)
    shrunk = math.exp(-epsilon)
    equal = 1 - (1 - delta) * shrunk / (1 + shrunk)
    return max(equal, prior + delta * (1 - prior), 1 - prior + delta * prior)


def group_privacy(epsilon: float, delta: float, units: int) -> tuple[float, float]:
    """Return the (epsilon, delta) that an (epsilon, delta)-DP mechanism satisfies for a group of ``units`` units
    together.

    ``(k epsilon, delta (e^(k epsilon) - 1) / (e^epsilon - 1))``, which is ``k delta`` at epsilon 0, and a delta of 1 at
    most. It applies the definition k times: every further unit multiplies the delta so far by ``e^epsilon`` and adds
    one (Dwork and Roth 2014, Theorem 2.2, for delta 0; Vadhan 2017, Lemma 2.2).

    Args:
        epsilon: >= 0 and finite.
        delta: in [0, 1].
        units: k >= 1.

    Raises:
        ValueError: outside these ranges.
    """
    _check_epsilon(epsilon)
    _check_probability("delta", delta)
    if isinstance(units, bool) or units < 1 or int(units) != units:
        raise ValueError(f"units (of the group) must be a whole number >= 1, got {units!r}")
    if delta == 0:
        return units * epsilon, 0.0
    if units * epsilon > _LARGEST_EXPONENT:
        return units * epsilon, 1.0
    factor = units if epsilon == 0 else math.expm1(units * epsilon) / math.expm1(epsilon)
    return units * epsilon, min(1.0, delta * factor)


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie in [0, 1], got {value}")


def _check_epsilon(epsilon: float) -> None:
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be >= 0, got {epsilon}")


_HOLD_A_SAMPLE = (Unit.SAMPLE, Unit.CLIENT, Unit.USER, Unit.REPORT)
# e^709 is the largest power that a double holds; at 700 the bound is 1 for every kappa that matters.


def success_bound(kappa: float, *, epsilon: float, delta: float = 0.0, curve: Curve | None = None) -> float:
    """Return the largest success probability of a reconstruction attack that a claim allows; blind guessing succeeds
    with probability ``kappa``.

    It lies in [kappa, 1]; (epsilon, delta)-DP and the stated ``curve`` both allow it.

    ``min(1, e^epsilon kappa + delta, 1 - e^-epsilon (1 - delta - kappa))``, and ``Phi(Phi^-1(kappa) + mu)`` of mu-GDP.

    Args:
        kappa: chance, in [0, 1], that the best guess without the output succeeds. It is taken over the distribution of
            the unit, given everything that the attacker knows beforehand.
        epsilon: >= 0; an infinite one limits nothing.
        delta: in [0, 1].
        curve: the stated trade-off curve, None where the claim states none.

    Raises:
        ValueError: outside these ranges.
    """
    _check_probability("kappa (success rate of blind guessing)", kappa)
    _check_probability("delta", delta)
    _check_epsilon(epsilon)
    promises: list[Curve] = [] if curve is None else [curve]
    if epsilon <= _LARGEST_EXPONENT:
        promises.append(ProfileCurve((epsilon,), (delta,), (delta,)))
    # Never below kappa, which a blind guess reaches; rounding of a curve near 1 could give slightly less.
    return max(kappa, min([1.0, *(1 - float(one.fnr(kappa)) for one in promises)]))


def beyond_reconstruction(claim: Claim, *, observer: Observer, rounds: int) -> str:
    """Return why the claim gives no bound on the reconstruction of one sample; empty string if it gives one.

    The adversary is ``observer`` and sees ``rounds`` rounds.

    A claim of one client, one user or one whole report protects each sample in it under every adjacency, because some
    dataset without the sample is a neighbour.
    """
    if not claim.observer.covers(observer):
        return f"the attacker is {observer.phrase}, but the claim covers {claim.observer.phrase}"
    if claim.unit not in _HOLD_A_SAMPLE:
        return f"the claim protects one {claim.unit}, which is less than a whole sample"
    if claim.part != "joint":
        return f"the claim covers only {claim.part}"
    if claim.subjects != "all":
        return f"the claim covers only {claim.subjects}"
    if claim.rounds < rounds:
        return f"the attack may use {rounds} rounds, but the claim covers {claim.rounds}"
    return ""
