"""Audit of scores that somebody brings along: those of trials with the unit in, and of trials with it out."""

from numpy.typing import ArrayLike

from ..claim import Claim
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
    """Judge ``claim`` by ``member`` (n1,) and ``nonmember`` (n0,): one score a trial, finite, higher means "in".

    A trial is one run of the mechanism, with noise of its own; scores of many records in one trained model are not
    independent trials, and this bound does not hold for them. ``threshold``: fixed before the scores were seen; None to
    choose it on a random half of each side (by ``seed``) and to count the other half. The claim's curve is tested
    where it signs one. Right with probability 1 - ``alpha``.

    Raises ValueError for scores that are empty or not finite, for one side of a single score without a threshold, and
    for alpha outside (0, 1).
    """
    policy = SplitThreshold(0.5, seed, curve=claim.curve) if threshold is None else FixedThreshold(threshold)
    measured = clopper_pearson(
        MembershipScores(member, nonmember, Setting.claimed(claim)),  # type: ignore[arg-type]
        delta=claim.delta,
        alpha=alpha,
        threshold=policy,
        curve=claim.curve,
        epsilon=claim.epsilon,
        witness="scores that were given",
    )
    return judge(claim, measured)
