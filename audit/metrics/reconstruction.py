"""Bounds the success rate of reconstruction attacks under a privacy claim, given the success rate of blind guessing.

For neighbouring data without the unit, the output of an attack is a blind guess, which succeeds with probability at
most kappa. Success is an event of that output, so for data with the unit its probability is at most ``1 - f(kappa)``,
where f is the trade-off curve of the two output distributions
(Balle, Cherubin, Hayes 2022, for pure epsilon and Renyi; Hayes, Mahloujifar, Balle 2023, for any curve).
"""

from ..claim import Claim, Unit
from ..curve import Curve, ProfileCurve
from ..observer import Observer

_HOLD_A_SAMPLE = (Unit.SAMPLE, Unit.CLIENT, Unit.USER, Unit.REPORT)
# e^709 is the largest power that a double holds; at 700 the bound is 1 for every kappa that matters.
_LARGEST_EXPONENT = 700.0


def success_bound(kappa: float, *, epsilon: float, delta: float = 0.0, curve: Curve | None = None) -> float:
    """Return the largest success probability of a reconstruction attack that a claim allows; blind guessing reaches
    ``kappa``.

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
    if not 0 <= kappa <= 1:
        raise ValueError(f"kappa (success rate of blind guessing) must lie in [0, 1], got {kappa}")
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be >= 0, got {epsilon}")
    if not 0 <= delta <= 1:
        raise ValueError(f"delta must lie in [0, 1], got {delta}")
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
        return f"the attack is by {observer.phrase}, the claim covers {claim.observer.phrase}"
    if claim.unit not in _HOLD_A_SAMPLE:
        return f"the claim is of one {claim.unit}, which holds no whole sample"
    if claim.part != "joint":
        return f"the claim is of {claim.part} alone"
    if claim.subjects != "all":
        return f"the claim is for {claim.subjects} alone"
    if claim.rounds < rounds:
        return f"the attack may use any of {rounds} rounds, the claim covers {claim.rounds}"
    return ""
