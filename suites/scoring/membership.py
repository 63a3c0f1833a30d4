"""Scores of membership attacks on candidates of one run."""

import numpy as np
from scipy.stats import rankdata

from ...audit.evidence import CandidateScores, MembershipScores
from ..cells import Cell
from ..record import Record
from ..store import Store

_LOW_RATES = (0.01, 0.001)
_ENOUGH = 10
"""A true-positive rate at a false-positive rate is printed only where that many non-members lie above the threshold."""


def auc(scores: MembershipScores) -> float:
    """Chance that a member scores above a non-member, ties counting half (Mann-Whitney U over n1 n0)."""
    n1, n0 = len(scores.member), len(scores.nonmember)
    ranks = rankdata(np.concatenate([scores.member, scores.nonmember]))
    return float((ranks[:n1].sum() - n1 * (n1 + 1) / 2) / (n1 * n0))


def balanced_accuracy(scores: MembershipScores) -> float:
    """Mean of true-positive and true-negative rate when the upper half of all scores is called "in" (ties count half).

    The cut is fixed by the number of candidates, not chosen by its success.
    """
    cut = float(np.median(np.concatenate([scores.member, scores.nonmember])))
    above = (scores.member > cut).mean() + 0.5 * (scores.member == cut).mean()
    below = (scores.nonmember < cut).mean() + 0.5 * (scores.nonmember == cut).mean()
    return float((above + below) / 2)


def tpr_at(scores: MembershipScores, rate: float) -> float | None:
    """True-positive rate at the lowest threshold whose false-positive rate is at most ``rate``; None below ten such
    non-members.
    """
    allowed = int(len(scores.nonmember) * rate)
    if allowed < _ENOUGH:
        return None
    threshold = np.sort(scores.nonmember)[::-1][allowed]
    return float((scores.member > threshold).mean())


def score_membership(cell: Cell, evidence: CandidateScores, member: np.ndarray, store: Store) -> list[Record]:
    """Rows of one run: AUC, balanced accuracy, and TPR at low FPR where there are enough candidates for it."""
    scores = evidence.against(member)
    artifact = store.save_arrays(cell.cell_id, "scores", {"member": scores.member, "nonmember": scores.nonmember})
    values = {"auc": auc(scores), "balanced_accuracy": balanced_accuracy(scores)}
    values |= {f"tpr_at_fpr_{rate:g}": value for rate in _LOW_RATES if (value := tpr_at(scores, rate)) is not None}
    return [
        cell.record(
            metric=metric, value=value, n=len(member), unit="probability", direction="higher_leaks", artifact=artifact
        )
        for metric, value in values.items()
    ]
