"""Reconstruction robustness: how often a claim lets anybody reconstruct what a blind guess would hit with chance kappa.

Without the unit an attack's output is a blind guess: its success has a chance of at most kappa. Success is an event of
that output, so with the unit its chance is at most ``1 - f(kappa)``, f the trade-off curve between the two worlds
(Balle, Cherubin, Hayes 2022, for pure epsilon and Renyi; Hayes, Mahloujifar, Balle 2023, for any curve).
"""

from ..claim import Claim, Unit
from ..curve import Curve, ProfileCurve
from ..observer import Observer

_HOLD_A_SAMPLE = (Unit.SAMPLE, Unit.CLIENT, Unit.USER, Unit.REPORT)
_LARGEST_EXPONENT = 700.0


def success_bound(kappa: float, *, epsilon: float, delta: float = 0.0, curve: Curve | None = None) -> float:
    """The largest chance of success, in [kappa, 1], that (epsilon, delta)-DP and the ``curve`` signed beside it allow.

    ``min(1, e^epsilon kappa + delta, 1 - e^-epsilon (1 - delta - kappa))``, and ``Phi(Phi^-1(kappa) + mu)`` of mu-GDP.

    Args:
        kappa: chance, in [0, 1], that the best guess of who does not look succeeds, over the unit's distribution given
            all that the attacker knows of it beforehand.
        epsilon: >= 0; infinite says nothing.
        delta: in [0, 1].

    Raises:
        ValueError: outside these ranges.
    """
    if not 0 <= kappa <= 1:
        raise ValueError(f"kappa must lie in [0, 1], got {kappa}")
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be >= 0, got {epsilon}")
    if not 0 <= delta <= 1:
        raise ValueError(f"delta must lie in [0, 1], got {delta}")
    promises: list[Curve] = [] if curve is None else [curve]
    if epsilon <= _LARGEST_EXPONENT:
        promises.append(ProfileCurve((epsilon,), (delta,), (delta,)))
    # A curve rounded near 1 may fall a hair below what no mechanism can undercut.
    return max(kappa, min([1.0, *(1 - float(one.fnr(kappa)) for one in promises)]))


def beyond_reconstruction(claim: Claim, *, observer: Observer, rounds: int) -> str:
    """Why ``claim`` bounds no reconstruction of one sample by ``observer`` over ``rounds``; empty where it does.

    Whoever hides a client, a user or a whole report hides each sample in it, whichever neighbours are meant: some world
    without it is a neighbour.
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
        return f"the attack may look at any of {rounds} rounds, the claim covers {claim.rounds}"
    return ""
