"""Compare scores with the truth about members: metrics of one federation, of shadow federations, and of exposures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.special import stdtrit
from scipy.stats import norm

from ...attacks.attack import Level
from ...audit.evidence import CandidateScores, Design, Exposures, MembershipScores, Setting, SourceScores
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
from ...fl.candidates import PlantedCandidates
from ..results.cell import Cell
from ..results.record import ROUNDS, Record
from ..results.store import Store
from .label_rows import Interval, csv_by_round, hits, mean_interval


@dataclass(frozen=True, kw_only=True)
class CountedScores:
    """A set of membership scores as three arrays ``(m,)``: the scores, whether each scored candidate was a member, and
    the candidate's index.

    Scores of the same candidate are dependent: they form one cluster.
    """

    scores: CandidateScores
    member: np.ndarray
    candidate: np.ndarray

    @property
    def given_the_run(self) -> ScoresByRun:
        """The membership scores grouped by candidate, for confidence intervals that hold for this run alone.

        Candidates are then independent, so that an interval over them holds for this run. The variation between runs
        is larger.
        """
        return self._sides(self.scores.values)

    @property
    def round_by_round(self) -> list[tuple[int, ScoresByRun]]:
        """The membership scores after each number of rounds; empty if the attack gives no scores by round."""
        return [(rounds, self._sides(values)) for rounds, values in self.scores.history]

    def _sides(self, values: np.ndarray) -> ScoresByRun:
        member, candidate = self.member, self.candidate
        return ScoresByRun.of(values[member], values[~member], candidate[member], candidate[~member])


def all_scores(evidence: CandidateScores, member: np.ndarray) -> CountedScores:
    """Return all scores of an attack that gives one score per candidate, and whether each candidate was a member."""
    return CountedScores(scores=evidence, member=member, candidate=np.arange(len(member)))


def counted_scores(evidence: CandidateScores, planted: PlantedCandidates) -> CountedScores:
    """Return the scores that count, and whether each scored candidate was a member. If an attack scores every candidate
    for every client, only the scores of a client's own samples (members) and of outsiders (non-members) count.

    An attack may return one score per candidate, ``(n,)``: then all count. Or it returns one score per client and
    candidate, ``(clients * n,)``, client by client: then those of the client's own samples (members) and of the
    outsiders assigned to it (non-members) count.
    Another client's sample is neither: it is not in this client's lot, but the broadcast model was trained on it.

    Raises:
        ValueError: for another number of scores.
    """
    count, clients = len(planted.holder), np.array(planted.shown.clients)
    if len(evidence.values) == count:
        return all_scores(evidence, planted.member)
    if len(evidence.values) != count * len(clients):
        raise ValueError(
            f"the attack must return {count} scores, one per candidate, or {count * len(clients)}, "
            f"one per client and candidate, "
            f"got {len(evidence.values)}"
        )
    # (clients, n), flattened in the order of the scores: client by client.
    own = (planted.holder == clients[:, None]).reshape(-1)
    if planted.stands_for is None:
        # Without an assignment each outsider is a non-member of every client.
        outside = np.tile(~planted.member, len(clients))
    else:
        outside = (planted.stands_for == clients[:, None]).reshape(-1)
    counted = own | outside
    runs = None if evidence.runs is None else evidence.runs[counted]
    history = tuple((rounds, values[counted]) for rounds, values in evidence.history)
    # The same selection for every array of the evidence, so that runs and rounds stay aligned with the scores.
    scores = replace(evidence, values=evidence.values[counted], runs=runs, history=history)
    return CountedScores(scores=scores, member=own[counted], candidate=np.tile(np.arange(count), len(clients))[counted])


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
    areas = {rounds: area_interval(sides, LEVEL) for rounds, sides in found.round_by_round}
    return csv_by_round(
        {rounds: {"auc": one.value, "auc_low": one.low, "auc_high": one.high} for rounds, one in areas.items()}
    )


def _area_row(cell: Cell, sides: ScoresByRun, over_runs: bool, shared: dict[str, object]) -> Record:
    found = area_interval(sides, LEVEL)
    method = (
        found.method
        if over_runs
        else f"{found.method}; over the candidates of this run, so it holds for this run alone"
    )
    fields = Interval(value=found.value, low=found.low, high=found.high, method=method).fields
    return cell.record(metric="auc", **fields, unit="probability", **shared)


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
        reason=f"point estimate: there are {counted_runs(sides)} independent runs, and an interval needs "
        f"{10 / rate:.0f}",
        unit="probability, point estimate",
        **shared,
    )


Score = Callable[[MembershipScores], float]
LEAST_PAIRS = 4
"""Smallest number of pairs of federations for an interval. An attack's variance needs two references with each
candidate and two without it, so two pairs; one more pair is the target's, and one is left out by the jackknife.
"""
# Eight groups give seven degrees of freedom; each group costs all attacks on the remaining models once more.
_GROUPS = 8
_NO_RUNS = (
    "point estimate without an interval: federations that serve each other as references are not independent runs"
)
_EQUAL = 1e-12
"""Means that differ by less are equal up to rounding."""


@dataclass(frozen=True, kw_only=True)
class OverTargets(Interval):
    """The mean of a metric over all attacked shadow federations, with its confidence interval; if there is no interval,
    ``method`` states the reason.

    ``error`` is its standard error with ``freedom`` degrees of freedom, for intervals at other levels.
    """

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
        return OverTargets(value=mean, method=f"{words}, no interval")
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
        rows.append(cell.record(metric=metric, **mean.fields, **shared))
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


def score_exposures(
    cell: Cell, evidence: Exposures, planted: PlantedCandidates, store: Store, *, adversary: str
) -> list[Record]:
    """Build the result rows of one attack on secrets: the mean exposure of trained and of absent secrets in bits, and
    how well exposure separates the two. Intervals are over the secrets of this one run.

    Raises ValueError for another number of exposures than secrets.
    """
    member = planted.member
    if len(evidence.values) != len(member):
        raise ValueError(f"the attack must return {len(member)} exposures, one per secret, got {len(evidence.values)}")
    rows = []
    for metric, chosen in (("exposure", member), ("exposure_absent", ~member)):
        found = mean_interval(evidence.values[chosen], over="secrets")
        rows.append(found.row(cell, metric, n=int(np.count_nonzero(chosen)), unit="bits"))
    scores = CandidateScores(evidence.values, evidence.setting)
    return [*rows, *score_membership(cell, all_scores(scores, member), store, adversary=adversary)]


def wilson(share: float, n: int) -> tuple[float, float]:
    """Compute the 95 % score interval of a fraction of n samples (Wilson 1927); it is conservative if some samples
    count as fractions between 0 and 1.
    """
    z = float(norm.ppf(0.5 + LEVEL / 2))
    centre, half = share + z**2 / (2 * n), z * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
    return max(0.0, (centre - half) / (1 + z**2 / n)), min(1.0, (centre + half) / (1 + z**2 / n))


def score_source(cell: Cell, evidence: SourceScores, planted: PlantedCandidates, store: Store) -> list[Record]:
    """Build the result rows of source inference: the fraction of right guesses, and the advantage of the attack, which
    is 0 at chance (1 / number of clients) and 1 if all guesses are right.

    The interval is over the samples of this one run, which share its noise. Outsiders, which no client holds, are left
    out.

    Raises:
        ValueError: unless there is one score per candidate and client.
    """
    wanted = (len(planted.holder), len(planted.shown.clients))
    if evidence.values.shape != wanted:
        raise ValueError(
            f"source-inference scores must have shape (candidates, clients) = {wanted}, got {evidence.values.shape}"
        )
    # The holder of an outsider is -1, which would credit guesses of the last client.
    held = planted.member
    own = SourceScores(evidence.values[held], evidence.setting)
    worth, chance = hits(own.values, planted.holder[held]), 1 / wanted[1]
    arrays = {"values": own.values, "holder": planted.holder[held], **setting_arrays(evidence.setting)}
    artifact = store.save_arrays(cell.cell_id, "scores", arrays)
    mean = float(worth.mean())
    low, high = wilson(mean, len(worth))
    found = Interval(value=mean, low=low, high=high, method="95 % Wilson interval over the samples of one run")
    rows = {"source_accuracy": (found, f"share of samples, chance {chance:.3g}")}
    if chance < 1:  # With a single client every guess is right, and the advantage is undefined.
        rows["source_advantage"] = found.over_chance(chance), "share beyond chance"
    shared = {"n": len(worth), "direction": "higher_leaks", "artifact": artifact}
    return [cell.record(metric=metric, **one.fields, unit=unit, **shared) for metric, (one, unit) in rows.items()]
