"""Tests whether high or low scores mean "member", so that losses are not mistaken for scores.

The test is exact: if members score at least as high as non-members, the number of members among the highest scores
is at least hypergeometric (Fisher 1935). It is made at seven cuts of the pooled scores and corrected for their number.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import hypergeom

from ..arrays import FloatArray
from ..power.threshold import SplitThreshold
from ..wording import plain

FALSE_ALARM = 0.001
"""Largest probability that the test finds the other direction although members score at least as high."""
_CUTS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)


@dataclass(frozen=True, kw_only=True)
class DirectionTest:
    """The result of a direction test: the AUC of high scores, and p-values of "members score higher" and "lower".

    A small ``p_lower`` contradicts that high scores mean "member". Both p-values are corrected for the number of cuts.
    """

    auc: float
    p_higher: float
    p_lower: float

    @property
    def reversed(self) -> bool:
        """Whether members score lower: significantly so, and more clearly than they score higher."""
        # A member's scores may only spread wider; then both p-values are small, and the AUC decides.
        return self.p_lower <= FALSE_ALARM and self.p_lower <= self.p_higher and self.auc < 0.5


def direction_test(member: FloatArray, nonmember: FloatArray) -> DirectionTest:
    """Compare scores ``member`` (n1,) with ``nonmember`` (n0,) at seven cuts of the pooled scores."""
    pooled = np.sort(np.concatenate([member, nonmember]))
    cuts = np.unique(np.quantile(pooled, _CUTS, method="lower"))
    above_in = np.array([np.count_nonzero(member > cut) for cut in cuts])
    above = len(pooled) - np.searchsorted(pooled, cuts, side="right")
    law = hypergeom(len(pooled), above, len(member))
    ordered = np.sort(nonmember)
    below = np.searchsorted(ordered, member, side="left") + np.searchsorted(ordered, member, side="right")
    return DirectionTest(
        auc=float(below.mean() / (2 * len(nonmember))),
        p_higher=min(1.0, float(len(cuts) * law.sf(above_in - 1).min())),
        p_lower=min(1.0, float(len(cuts) * law.cdf(above_in).min())),
    )


def check_direction(
    member: FloatArray, nonmember: FloatArray, *, higher_is_member: bool | None, tested: bool, seed: int
) -> None:
    """Raise ValueError where the direction of the scores is neither stated nor testable, or where the scores contradict
    it.

    ``higher_is_member``: None where it was not stated; ``tested``: whether the half of the scores that only chooses the
    threshold is left over for the test. The test looks at that half alone, so a direction that is corrected after the
    error does not bias the bound, which counts the other half.
    """
    if higher_is_member is None and not tested:
        raise ValueError(
            "state whether high or low scores mean member (--higher-is-member or --lower-is-member, in Python "
            "higher_is_member=True or False): all of these scores are counted, so that none are left to test it"
        )
    sides = (member, nonmember)
    if min(map(len, sides)) > 1:
        sides = SplitThreshold(0.5, seed).halves(member, nonmember)[0]
    lower = higher_is_member is False
    found = direction_test(*(-side if lower else side for side in sides))
    if not found.reversed:
        return
    stated, meant = ("low", "--higher-is-member") if lower else ("high", "--lower-is-member")
    python = "higher_is_member=True" if lower else "higher_is_member=False"
    auc = 1 - found.auc if lower else found.auc
    p = plain(max(found.p_lower, 1e-300))
    raise ValueError(
        f"members score {'higher' if lower else 'lower'} than non-members (AUC {auc:.3f}, exact test p <= {p}, false "
        f"alarms at most {plain(FALSE_ALARM)}), so that {stated} scores cannot mean member: state {meant} (in Python "
        f"{python})"
    )
