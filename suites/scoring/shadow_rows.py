"""Compute metrics of attacks on shadow federations, with each federation's final model as the target in turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import stdtrit

from ...audit.evidence import MembershipScores
from ...audit.metrics import is_enough, tpr_at
from ..jobs.cell import Cell
from ..results.record import Record
from ..results.store import Store
from .membership_rows import LEVEL, LOW_RATES, auc, balanced_accuracy, estimate_metric, setting_arrays

Score = Callable[[MembershipScores], float]
LEAST_PAIRS = 4
"""Smallest number of pairs of federations for an interval. An attack's variance needs two references with each
candidate and two without it, so two pairs; one more pair is the target's, and one is left out by the jackknife.
"""
# Eight groups give seven degrees of freedom; each group costs all attacks on the remaining models once more.
_GROUPS = 8
_NO_RUNS = "point estimate: federations that are references of each other are no independent runs"
_EQUAL = 1e-12
"""Means that differ by less are equal up to rounding."""


@dataclass(frozen=True, kw_only=True)
class OverTargets:
    """The mean of a metric over all attacked shadow federations, with its confidence interval; if there is no interval,
    both ends are None and ``method`` states the reason.

    ``error`` is its standard error with ``freedom`` degrees of freedom, for intervals at other levels.
    """

    value: float
    low: float | None
    high: float | None
    method: str
    error: float | None = None
    freedom: int = 0


def groups(targets: int) -> list[list[int]]:
    """Divide the shadow federations into at most eight groups, which the jackknife leaves out in turn; return no groups
    if there are fewer than ``LEAST_PAIRS`` pairs of federations.

    The two federations of a pair have complementary members, so they stay in one group.
    """
    pairs = np.arange(targets).reshape(-1, 2)
    if len(pairs) < LEAST_PAIRS:
        return []
    return [part.flatten().tolist() for part in np.array_split(pairs, min(_GROUPS, len(pairs)))]


def over_targets(values: Sequence[float], without: Sequence[Sequence[float]]) -> OverTargets:
    """Compute the mean of ``values``, one per attacked shadow federation, with a 95 % t interval by the grouped
    jackknife.

    Every model is a target once and a reference of all others. The targets' values are therefore dependent, and their
    standard deviation alone would give too short an interval (by a factor of about sqrt(2) where there is no leak). So
    whole groups are left out, as targets and as references: ``without[g]`` holds the other targets' values without
    group g. All federations share the candidates: the interval is over other draws of the members and of the training
    noise, for these candidates.
    """
    mean = float(np.mean(values))
    words = f"mean over {len(values)} federations"
    # Equal means in all groups would give a standard error of zero, and an interval without width.
    left = np.array([np.mean(one) for one in without])
    if len(left) < 2 or np.ptp(left) < _EQUAL:
        return OverTargets(value=mean, low=None, high=None, method=f"{words}, no interval")
    count = len(left)
    error = float(((count - 1) * np.mean((left - left.mean()) ** 2)) ** 0.5)
    half = float(stdtrit(count - 1, 0.5 + LEVEL / 2)) * error
    method = f"{words}, 95 % t interval by a jackknife of {count} groups"
    return OverTargets(value=mean, low=mean - half, high=mean + half, method=method, error=error, freedom=count - 1)


def joined(each: Sequence[MembershipScores]) -> MembershipScores:
    """Join the membership scores of all attacked shadow federations into one sample."""
    member, nonmember = (np.concatenate([getattr(one, side) for one in each]) for side in ("member", "nonmember"))
    return MembershipScores(member, nonmember, each[0].setting)


def score_shadows(
    cell: Cell,
    each: Sequence[MembershipScores],
    without: Sequence[Sequence[MembershipScores]],
    references: int,
    store: Store,
) -> list[Record]:
    """Build the result rows of one attack on shadow federations.

    True-positive rates have an interval where each target has enough non-members for a threshold of its own; otherwise
    there is one threshold for all targets, and a point estimate.

    Args:
        each: the scores of each target.
        without: for each of ``groups`` the scores of the other targets, with none of the group as a reference.
        references: number of reference models of each target.
    """
    together = joined(each)
    scores: dict[str, Score] = {"auc": auc, "balanced_accuracy": balanced_accuracy}
    fewest = min(len(one.nonmember) for one in each)
    # The smallest target decides, so that one metric is the same quantity for all targets.
    scores |= {estimate_metric(rate): partial(_found, rate=rate) for rate in LOW_RATES if is_enough(fewest, rate)}
    means = {
        metric: over_targets([score(one) for one in each], [[score(one) for one in left] for left in without])
        for metric, score in scores.items()
    }
    shared = {
        "n": len(each),
        "unit": "probability",
        "direction": "higher_leaks",
        "artifact": store.save_arrays(cell.cell_id, "scores", _saved(together, each, means["auc"])),
    }
    rows = []
    for metric, mean in means.items():
        interval = {"ci_low": mean.low, "ci_high": mean.high, "ci_level": None if mean.low is None else LEVEL}
        rows.append(cell.record(metric=metric, value=mean.value, ci_method=mean.method, **interval, **shared))
    for rate in LOW_RATES:
        if estimate_metric(rate) not in scores and is_enough(len(together.nonmember), rate):
            value = _found(together, rate=rate)
            rows.append(cell.record(metric=estimate_metric(rate), value=value, reason=_NO_RUNS, **shared))
    return [*rows, cell.record(metric="references", value=references, n=len(each), unit="models a target")]


def _saved(together: MembershipScores, each: Sequence[MembershipScores], area: OverTargets) -> dict[str, np.ndarray]:
    """All scores, the federation of each, their setting, and the numbers that an interval of the AUC needs."""
    arrays = {"member": together.member, "nonmember": together.nonmember, **setting_arrays(together.setting)}
    # Scores of one target share its training, so the number of independent trials is that of the targets.
    for side in ("member", "nonmember"):
        arrays[f"{side}_run"] = np.repeat(np.arange(len(each)), [len(getattr(one, side)) for one in each])
    error = {} if area.error is None else {"auc_error": np.array(area.error), "auc_freedom": np.array(area.freedom)}
    return {**arrays, "auc": np.array(area.value), **error}


def _found(scores: MembershipScores, *, rate: float) -> float:
    """Share of members above the threshold that ``rate`` of these non-members exceed."""
    return tpr_at(scores.member, scores.nonmember, rate)
