"""Compute AUC, balanced accuracy and TPR at low FPR of membership attacks, over one run or several."""

import numpy as np

from ...attacks.attack import Level
from ...audit.evidence import Design, MembershipScores, Setting
from ...audit.metrics import (
    ScoresByRun,
    area,
    area_interval,
    counted_runs,
    is_enough,
    joint_statement,
    lowest_rate,
    tpr_at,
)
from ..jobs.cell import Cell
from ..results.record import ROUNDS, Record
from ..results.store import Store
from .candidates import CountedScores

LEVEL = 0.95
"""Confidence level of the intervals."""
LOW_RATES = (0.01, 0.001)
"""False-positive rates at which the true-positive rate is measured."""


def estimate_metric(rate: float) -> str:
    """Return the name of the TPR metric (a point estimate) at this false-positive rate."""
    return f"tpr_at_fpr_{rate:g}_estimate"


def auc(scores: MembershipScores) -> float:
    """Compute the probability that a member scores above a non-member; ties count half."""
    return area(ScoresByRun.of(scores.member, scores.nonmember))


def balanced_accuracy(scores: MembershipScores) -> float:
    """Compute the mean of true-positive and true-negative rate, where the candidates with the upper half of all scores
    are guessed to be members.

    The threshold is the median, which needs no truth: one chosen by its success would overstate the attack. Ties with
    it count half.
    """
    cut = float(np.median(np.concatenate([scores.member, scores.nonmember])))
    above = (scores.member > cut).mean() + 0.5 * (scores.member == cut).mean()
    below = (scores.nonmember < cut).mean() + 0.5 * (scores.nonmember == cut).mean()
    return float((above + below) / 2)


def setting_arrays(setting: Setting) -> dict[str, np.ndarray]:
    """Return the unit, adjacency and rounds to which membership scores apply, as arrays to be saved with the scores."""
    return {name: np.array(value) for name, value in setting.to_dict().items() if name != "observer"}


def score_membership(
    cell: Cell, found: CountedScores, store: Store, *, adversary: str = Level.REALISTIC.value
) -> list[Record]:
    """Build the result rows of one membership attack (AUC, balanced accuracy, TPR at low FPR); its scores are saved
    with a description of the ``adversary``.

    The scores of one run share its noise. Its AUC therefore has an interval over candidates that holds for this run
    alone, and its TPR is a point estimate, as metric and reason state. Of several runs the interval is over runs, and
    where they are enough, the TPR row bounds both rates jointly.
    """
    scores = found.scores.against(found.member)
    sides = ScoresByRun.of_evidence(scores)
    arrays = {"member": scores.member, "nonmember": scores.nonmember, **setting_arrays(scores.setting)}
    arrays |= {"adversary": np.array(adversary)}
    # Reports pool the seeds, and need to know which scores depend on each other.
    if scores.setting.design is Design.INDEPENDENT or found.scores.runs is not None:
        arrays |= {"member_runs": sides.member_runs, "nonmember_runs": sides.nonmember_runs}
    else:
        alone = found.given_the_run
        arrays |= {"member_candidates": alone.member_runs, "nonmember_candidates": alone.nonmember_runs}
    if found.scores.history:
        store.save_text(cell.cell_id, ROUNDS, _by_round(found))
    shared = {
        "n": len(found.member),
        "direction": "higher_leaks",
        "artifact": store.save_arrays(cell.cell_id, "scores", arrays),
    }
    return [
        _area_row(cell, sides if sides.runs > 1 else found.given_the_run, sides.runs > 1, shared),
        cell.record(metric="balanced_accuracy", value=balanced_accuracy(scores), unit="probability", **shared),
        *_stated(cell, sides, shared),
        *(_estimated(cell, sides, rate, shared) for rate in LOW_RATES if _only_estimated(found, sides, rate)),
    ]


def _by_round(found: CountedScores) -> str:
    """The AUC after each number of rounds, as CSV; its interval, over candidates, holds for this run alone."""
    lines = ["round,auc,auc_low,auc_high"]
    for rounds, sides in found.round_by_round:
        interval = area_interval(sides, LEVEL)
        # repr gives the shortest digits that read back as the same number.
        ends = ("" if end is None else repr(end) for end in (interval.low, interval.high))
        lines.append(",".join([str(rounds), repr(interval.value), *ends]))
    return "\n".join(lines) + "\n"


def _area_row(cell: Cell, sides: ScoresByRun, over_runs: bool, shared: dict[str, object]) -> Record:
    found = area_interval(sides, LEVEL)
    return cell.record(
        metric="auc",
        value=found.value,
        ci_low=found.low,
        ci_high=found.high,
        ci_level=None if found.low is None else LEVEL,
        ci_method=found.method if over_runs else f"{found.method}; over candidates, holds for this run alone",
        unit="probability",
        **shared,
    )


def _stated(cell: Cell, sides: ScoresByRun, shared: dict[str, object]) -> list[Record]:
    """Joint bounds at those low rates for which the runs are enough, and at the lowest possible rate."""
    runs = counted_runs(sides)
    rates = [rate for rate in LOW_RATES if is_enough(runs, rate)]
    lowest = lowest_rate(runs)
    # With few runs none of the usual rates can be bounded; the lowest possible one still can.
    if lowest is not None and lowest not in rates:
        rates.append(lowest)
    return [_statement(cell, sides, rate, shared) for rate in rates]


def _statement(cell: Cell, sides: ScoresByRun, rate: float, shared: dict[str, object]) -> Record:
    bound = joint_statement(sides, rate, 1 - LEVEL)
    return cell.record(
        metric=f"tpr_at_fpr_{rate:g}",
        value=tpr_at(sides.member, sides.nonmember, rate),
        ci_low=bound.tpr_low,
        # The bound is one-sided: the data exclude only lower rates.
        ci_high=1.0,
        ci_level=LEVEL,
        ci_method="joint bound on both rates, Clopper-Pearson over runs",
        reason=f"jointly at {100 * LEVEL:g} %: FPR <= {bound.fpr_high:.4g} and TPR >= {bound.tpr_low:.4g}, "
        f"from {bound.n0} + {bound.n1} independent runs",
        unit="probability",
        **shared,
    )


def _only_estimated(found: CountedScores, sides: ScoresByRun, rate: float) -> bool:
    """Whether there are enough non-members for this rate, but not enough runs."""
    # Distinct non-members count: one that is scored at ten clients is still one.
    candidates = len(np.unique(found.given_the_run.nonmember_runs))
    return is_enough(candidates, rate) and not is_enough(counted_runs(sides), rate)


def _estimated(cell: Cell, sides: ScoresByRun, rate: float, shared: dict[str, object]) -> Record:
    return cell.record(
        metric=estimate_metric(rate),
        value=tpr_at(sides.member, sides.nonmember, rate),
        reason=f"point estimate: {counted_runs(sides)} independent runs, {10 / rate:.0f} would be needed to state it",
        unit="probability, point estimate",
        **shared,
    )
