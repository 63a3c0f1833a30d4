"""Scores of attacks on final models of which every one was a target in turn: what they say of one model, and of all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import stdtrit

from ...audit.evidence import MembershipScores
from ...audit.metrics.low_rate import is_enough, tpr_at
from ..jobs.cells import Cell
from ..results.record import Record
from ..results.store import Store
from .membership_rows import auc, balanced_accuracy, estimate_metric

Score = Callable[[MembershipScores], float]
LEVEL = 0.95
LEAST_PAIRS = 4
"""Of federations, for an interval: a variance needs two references with each candidate and two without it, and one
pair is the target's and one left out.
"""
_GROUPS = 8
_RATES = (0.01, 0.001)
_NO_RUNS = "point estimate: federations that are references of each other are no independent runs"
_EQUAL = 1e-12
"""Means that differ by less are the same number, rounded."""


@dataclass(frozen=True, kw_only=True)
class OverTargets:
    """Mean over all targets with its interval, None where there is none; ``method`` says why.

    ``error``: the standard error behind it, with ``freedom`` degrees of freedom: an interval at any other level.
    """

    value: float
    low: float | None
    high: float | None
    method: str
    error: float | None = None
    freedom: int = 0


def groups(targets: int) -> list[list[int]]:
    """Targets to leave out together, pairs of twins whole: eight groups, or as many as there are pairs; none below
    ``LEAST_PAIRS``.
    """
    pairs = np.arange(targets).reshape(-1, 2)
    if len(pairs) < LEAST_PAIRS:
        return []
    return [part.flatten().tolist() for part in np.array_split(pairs, min(_GROUPS, len(pairs)))]


def over_targets(values: Sequence[float], without: Sequence[Sequence[float]]) -> OverTargets:
    """The mean of ``values``, one a target, with a 95 % t interval by the grouped jackknife.

    Every model is a target once and a reference of all others: targets' values hang together, and their scatter alone
    would say too little (by a factor of about sqrt(2) where there is nothing to find). So whole groups are left out,
    as targets and as references: ``without[g]`` are the other targets' values without group g. All share the
    candidates: the interval is about other draws of who is in, and of the training, on these.
    """
    mean = float(np.mean(values))
    words = f"mean over {len(values)} federations"
    left = np.array([np.mean(one) for one in without])
    if len(left) < 2 or np.ptp(left) < _EQUAL:
        return OverTargets(value=mean, low=None, high=None, method=f"{words}, no interval")
    count = len(left)
    error = float(((count - 1) * np.mean((left - left.mean()) ** 2)) ** 0.5)
    half = float(stdtrit(count - 1, 0.5 + LEVEL / 2)) * error
    method = f"{words}, 95 % t interval by a jackknife of {count} groups"
    return OverTargets(value=mean, low=mean - half, high=mean + half, method=method, error=error, freedom=count - 1)


def joined(each: Sequence[MembershipScores]) -> MembershipScores:
    """The scores of all targets together."""
    member, nonmember = (np.concatenate([getattr(one, side) for one in each]) for side in ("member", "nonmember"))
    return MembershipScores(member, nonmember, each[0].setting)


def score_shadows(
    cell: Cell,
    each: Sequence[MembershipScores],
    without: Sequence[Sequence[MembershipScores]],
    references: int,
    store: Store,
) -> list[Record]:
    """Rows of one attack.

    True-positive rates have an interval where each target alone has enough non-members for a threshold of its own;
    else there is one threshold for all, and a point estimate.

    Args:
        each: a target's scores; ``without``: for each of ``groups`` those of the other targets, when none of the group
            is a reference either.
        references: how many models each target was compared with.
    """
    together = joined(each)
    scores: dict[str, Score] = {"auc": auc, "balanced_accuracy": balanced_accuracy}
    fewest = min(len(one.nonmember) for one in each)
    scores |= {estimate_metric(rate): partial(_found, rate=rate) for rate in _RATES if is_enough(fewest, rate)}
    means = {
        metric: over_targets([score(one) for one in each], [[score(one) for one in left] for left in without])
        for metric, score in scores.items()
    }
    shared = {
        "n": len(each),
        "unit": "probability",
        "direction": "higher_leaks",
        "artifact": store.save_arrays(cell.cell_id, "scores", _kept(together, each, means["auc"])),
    }
    rows = []
    for metric, mean in means.items():
        interval = {"ci_low": mean.low, "ci_high": mean.high, "ci_level": None if mean.low is None else LEVEL}
        rows.append(cell.record(metric=metric, value=mean.value, ci_method=mean.method, **interval, **shared))
    for rate in _RATES:
        if estimate_metric(rate) not in scores and is_enough(len(together.nonmember), rate):
            value = _found(together, rate=rate)
            rows.append(cell.record(metric=estimate_metric(rate), value=value, reason=_NO_RUNS, **shared))
    return [*rows, cell.record(metric="references", value=references, n=len(each), unit="models a target")]


def _kept(together: MembershipScores, each: Sequence[MembershipScores], area: OverTargets) -> dict[str, np.ndarray]:
    """All scores, the federation that each is of, what they are about, and what an interval of the AUC needs."""
    setting = {name: np.array(value) for name, value in together.setting.to_dict().items() if name != "observer"}
    arrays = {"member": together.member, "nonmember": together.nonmember, **setting}
    # Scores of one target share its training: whoever counts trials counts these numbers.
    for side in ("member", "nonmember"):
        arrays[f"{side}_run"] = np.repeat(np.arange(len(each)), [len(getattr(one, side)) for one in each])
    error = {} if area.error is None else {"auc_error": np.array(area.error), "auc_freedom": np.array(area.freedom)}
    return {**arrays, "auc": np.array(area.value), **error}


def _found(scores: MembershipScores, *, rate: float) -> float:
    """Share of members above the threshold that ``rate`` of these non-members exceed."""
    return tpr_at(scores.member, scores.nonmember, rate)
