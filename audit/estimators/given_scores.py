"""Audit of membership scores that the user supplies: one score per trial with the canary, one per trial without it."""

from numpy.typing import ArrayLike

from ..claim import Claim, check_claim
from ..evidence import MembershipScores, Setting
from ..finding import Finding, judge
from ..power.threshold import FixedThreshold, SplitThreshold
from .clopper_pearson import clopper_pearson


def audit_scores(
    member: ArrayLike,
    nonmember: ArrayLike,
    claim: Claim,
    *,
    alpha: float = 0.05,
    threshold: float | None = None,
    seed: int = 0,
) -> Finding:
    """Judge a claim by membership scores that the user supplies, one per independent trial.

    ``member`` (n1,) and ``nonmember`` (n0,): one finite score per trial; higher means member.

    A trial is one run of the mechanism with its own noise. Scores of many records in one trained model are not
    independent trials, and this bound does not hold for them. ``threshold``: fixed before the scores were seen; None
    chooses it on a random half of each side (by ``seed``) and counts errors on the other half. The stated curve of the
    claim is tested where there is one. The finding holds with probability 1 - ``alpha``.

    Raises ValueError for scores that are empty or not finite, for a side with a single score and no threshold, and for
    alpha outside (0, 1); TypeError for a claim that is not a Claim.
    """
    check_claim(claim)
    # Split by default: a threshold chosen on the counted scores themselves would invalidate the bound.
    policy = SplitThreshold(0.5, seed, curve=claim.curve) if threshold is None else FixedThreshold(threshold)
    measured = clopper_pearson(
        MembershipScores(member, nonmember, Setting.claimed(claim)),  # type: ignore[arg-type]
        delta=claim.delta,
        alpha=alpha,
        threshold=policy,
        curve=claim.curve,
        epsilon=claim.epsilon,
        witness="scores supplied by the user",
    )
    return judge(claim, measured)
