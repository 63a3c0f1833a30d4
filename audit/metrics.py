"""Metrics of an attack's scores: ROC curve and area, true-positive rate at a small false-positive rate, each by runs.

Scores are grouped by run, because scores of one training run share its noise. The estimate of the true-positive rate
takes both rates from the same scores. With a confidence bound on the TPR alone, the resulting statement is false in 27
to 50 % of runs without any leak. The joint statement bounds both rates, at alpha / 2 each: the true FPR is at most
``fpr_high`` and the true TPR at least ``tpr_low``.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit, stdtrit

from .arrays import FloatArray, IntArray
from .binomial import check_level, check_number, upper_bound
from .evidence import Design, MembershipScores, checked_scores, whole_numbers
from .wording import plain


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoresByRun:
    """Membership scores of members and non-members, each with the number of the training run that it comes from.

    ``member``: (n1,), ``nonmember``: (n0,) finite scores, higher means member.

    ``member_runs``, ``nonmember_runs``: whole numbers of the same lengths, equal where scores come from one run (one
    noise draw). Runs are independent of each other, scores of one run are not.
    """

    member: FloatArray
    nonmember: FloatArray
    member_runs: IntArray
    nonmember_runs: IntArray

    @classmethod
    def of(
        cls,
        member: ArrayLike,
        nonmember: ArrayLike,
        member_runs: ArrayLike | None = None,
        nonmember_runs: ArrayLike | None = None,
    ) -> "ScoresByRun":
        """Group members' and non-members' scores by the number of the training run that each comes from.

        Without run numbers, each score is a run of its own: independent trials.

        Raises ValueError for a side that is empty or not finite, for runs that are not one whole number per score, and
        for runs of one side only.
        """
        inside, outside = checked_scores("member", member), checked_scores("nonmember", nonmember)
        if (member_runs is None) != (nonmember_runs is None):
            raise ValueError("member_runs and nonmember_runs must be given together, got only one of them")
        if member_runs is None or nonmember_runs is None:
            numbers = np.arange(len(inside) + len(outside))
            member_runs, nonmember_runs = numbers[: len(inside)], numbers[len(inside) :]
        return cls(
            member=inside,
            nonmember=outside,
            member_runs=whole_numbers("member_runs", member_runs, len(inside)),
            nonmember_runs=whole_numbers("nonmember_runs", nonmember_runs, len(outside)),
        )

    @classmethod
    def of_evidence(cls, scores: MembershipScores) -> "ScoresByRun":
        """Group an attack's membership scores by the run that they come from.

        Clustered scores without run numbers all belong to one run.
        """
        if scores.setting.design is Design.INDEPENDENT:
            return cls.of(scores.member, scores.nonmember)
        if scores.member_runs is None or scores.nonmember_runs is None:
            # One common run is the cautious choice: unknown dependence must not narrow an interval.
            zeros = [np.zeros(len(side), dtype=np.int64) for side in (scores.member, scores.nonmember)]
            return cls.of(scores.member, scores.nonmember, *zeros)
        return cls.of(scores.member, scores.nonmember, scores.member_runs, scores.nonmember_runs)

    @property
    def given_the_runs(self) -> "ScoresByRun":
        """Return the same scores, each treated as a separate run; a confidence interval from them holds only for the
        noise that the runs drew.

        Results then hold for these runs and for no others.
        """
        return ScoresByRun.of(self.member, self.nonmember)

    @cached_property
    def runs(self) -> int:
        """The number of independent training runs that the scores come from."""
        return len(np.union1d(self.member_runs, self.nonmember_runs))

    @cached_property
    def has_mixed_runs(self) -> bool:
        """Return whether some run has scores of members and of non-members."""
        return bool(np.isin(self.member_runs, self.nonmember_runs).any())

    @cached_property
    def one_side_per_run(self) -> "ScoresByRun | None":
        """Keep only the members' or only the non-members' scores of each run, so that the two groups are independent.

        None where a group is left without any run.

        Runs with scores on both sides contribute their non-members and their members in turn, in the order of their
        numbers, so that the choice depends on no score.
        """
        if not self.has_mixed_runs:
            return self
        both = np.intersect1d(self.member_runs, self.nonmember_runs)
        inside = ~np.isin(self.member_runs, both[0::2])
        outside = ~np.isin(self.nonmember_runs, both[1::2])
        if not inside.any() or not outside.any():
            return None
        return ScoresByRun.of(
            self.member[inside], self.nonmember[outside], self.member_runs[inside], self.nonmember_runs[outside]
        )


def run_weights(runs: IntArray) -> FloatArray:
    """Return a weight for each score such that the weights of every run sum to 1.

    ``runs``: (n,) run numbers; the result has the same shape.
    """
    if _number(runs) == len(runs):
        return np.ones(len(runs))
    _, place, sizes = np.unique(runs, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / sizes[place], dtype=np.float64)


def _number(runs: IntArray) -> int:
    """The number of different runs; of millions, ``np.unique`` takes seconds."""
    return int(np.count_nonzero(np.diff(np.sort(runs)))) + 1


_NOTHING = 1e-12
"""A standard error below this is rounding error of scores that do not vary."""


@dataclass(frozen=True, kw_only=True)
class Area:
    """The area under an attack's ROC curve, with the two ends ``low`` and ``high`` of its confidence interval.

    Both ends are None where the scores allow no interval; ``method`` names the method, or why there is none.
    """

    value: float
    low: float | None
    high: float | None
    method: str


def area(sides: ScoresByRun) -> float:
    """Return the area under the ROC curve: the probability that a member scores above a non-member.

    Ties count half (Mann-Whitney U over n1 n0).
    """
    return float(_above(sides.member, sides.nonmember).mean())


def area_interval(sides: ScoresByRun, level: float = 0.95) -> Area:
    """Return the area under the ROC curve with a confidence interval that allows for dependence between scores of one
    run.

    ``level`` is its confidence; the sample size is the number of runs, not of scores.

    The method is that of DeLong, DeLong, Clarke-Pearson (1988), with the influences of one run's scores summed before
    they are squared (Obuchowski 1997), on the logit scale, with Student's t at Welch's degrees of freedom. For scores
    without a single error it would give certainty: there disjoint pairs of runs, all ordered correctly, are counted
    instead (Clopper-Pearson). There is no interval from one run per side, nor where all scores tie.
    """
    check_level("level", level)
    value = area(sides)
    strata = _influences(sides, value)
    counts = [len(one) for one in strata]
    if min(counts) < 2:
        return Area(
            value=value, low=None, high=None, method="no interval, because each side has only one independent run"
        )
    parts = [n / (n - 1) * float(((one - one.mean()) ** 2).sum()) for n, one in zip(counts, strata, strict=True)]
    # n / (n - 1) makes each stratum's variance unbiased; strata of independent runs add.
    error = math.sqrt(sum(parts))
    if value in (0.0, 1.0):
        return _errorless(value, sides.runs // 2 if sides.has_mixed_runs else min(counts), level)
    if error < _NOTHING:
        return Area(value=value, low=None, high=None, method="no interval, because all scores are tied")
    freedom = sum(parts) ** 2 / sum(part**2 / (n - 1) for n, part in zip(counts, parts, strict=True))
    # On the logit scale, where the interval cannot leave (0, 1); the derivative there is 1 / (a (1 - a)).
    half = float(stdtrit(freedom, 0.5 + level / 2)) * error / (value * (1 - value))
    low, high = expit(logit(value) - half), expit(logit(value) + half)
    return Area(value=value, low=float(low), high=float(high), method="DeLong interval over runs, on the logit scale")


def null_area_error(members: int, nonmembers: int) -> float:
    """Return the standard deviation of the AUC for scores without information and without ties (Mann and Whitney
    1947).
    """
    return math.sqrt((members + nonmembers + 1) / (12 * members * nonmembers))


def _influences(sides: ScoresByRun, value: float) -> list[FloatArray]:
    """Each run's contribution to the error of the area: one stratum if runs have both sides, else one per side."""
    # In a mixed run the parts of both sides share noise, so they are added before anything is squared.
    member = (_above(sides.member, sides.nonmember) - value) / len(sides.member)
    nonmember = (1 - _above(sides.nonmember, sides.member) - value) / len(sides.nonmember)
    if sides.has_mixed_runs:
        runs = np.concatenate([sides.member_runs, sides.nonmember_runs])
        return [_by_run(np.concatenate([member, nonmember]), runs)]
    return [_by_run(member, sides.member_runs), _by_run(nonmember, sides.nonmember_runs)]


def _by_run(values: FloatArray, runs: np.ndarray) -> FloatArray:
    _, place = np.unique(runs, return_inverse=True)
    return np.asarray(np.bincount(place, weights=values), dtype=np.float64)


def _above(scores: FloatArray, others: FloatArray) -> FloatArray:
    """For each score, the share of ``others`` below it, ties counting half."""
    # The mean of both insertion points counts ties half without comparing all pairs.
    ordered = np.sort(others)
    places = np.searchsorted(ordered, scores, side="left") + np.searchsorted(ordered, scores, side="right")
    return np.asarray(places / (2 * len(others)), dtype=np.float64)


def _errorless(value: float, pairs: int, level: float) -> Area:
    wrong = float(upper_bound(0, pairs, (1 - level) / 2))
    low, high = (1 - wrong, 1.0) if value == 1.0 else (0.0, wrong)
    return Area(value=value, low=low, high=high, method=f"Clopper-Pearson interval from {pairs} disjoint pairs of runs")


def roc_vertices(member: FloatArray, nonmember: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return an attack's false-positive and true-positive rate at every distinct score, from (0, 0) to (1, 1).

    Both arrays have shape (k,).

    ``member``: (n1,), ``nonmember``: (n0,) scores, higher means member. A tie moves both rates at once: there is one
    vertex per distinct score and none between, because no threshold separates equal scores. Vertices on a straight step
    are left out, because they do not change the line.
    """
    # From the highest score down, so that both rates rise from 0.
    thresholds = np.unique(np.concatenate([member, nonmember]))[::-1]
    above_member = len(member) - np.searchsorted(np.sort(member), thresholds, side="left")
    above_nonmember = len(nonmember) - np.searchsorted(np.sort(nonmember), thresholds, side="left")
    fpr = np.concatenate([[0.0], above_nonmember / len(nonmember)])
    tpr = np.concatenate([[0.0], above_member / len(member)])
    flat = (np.diff(fpr)[:-1] == 0) & (np.diff(fpr)[1:] == 0) | (np.diff(tpr)[:-1] == 0) & (np.diff(tpr)[1:] == 0)
    corners = np.concatenate([[True], ~flat, [True]])
    return fpr[corners], tpr[corners]


def largest_tpr(fpr: FloatArray, epsilon: float, delta: float) -> FloatArray:
    """Return, for each false-positive rate in ``fpr``, the largest true-positive rate that (epsilon, delta)-DP allows.

    ``fpr`` lies in [0, 1].

    ``min(e^eps fpr + delta, 1 - e^-eps (1 - delta - fpr))``, cut to [0, 1] (Kairouz, Oh, Viswanath 2015).
    """
    limit = np.minimum(np.exp(epsilon) * fpr + delta, 1 - np.exp(-epsilon) * (1 - delta - fpr))
    return np.asarray(np.clip(limit, 0.0, 1.0), dtype=np.float64)


ENOUGH = 10
"""A rate is stated only where this many independent non-members may lie above the threshold."""
LADDER = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""False-positive rates at which a report states anything."""


@dataclass(frozen=True, kw_only=True)
class JointStatement:
    """Confidence bounds on both rates of an attack at one threshold: FPR at most ``fpr_high``, TPR at least
    ``tpr_low``.

    They hold at ``threshold`` jointly, with probability 1 - ``alpha``.

    Both are rates of an average run. ``rate``: the FPR that the threshold was chosen for; ``n0``, ``n1``: the
    independent runs that were counted, without and with the candidate.
    """

    rate: float
    threshold: float
    fpr_high: float
    tpr_low: float
    alpha: float
    n0: int
    n1: int

    def exceeds(self, limit: Callable[[float], float]) -> bool:
        """Return whether the lower bound on the attack's TPR exceeds the largest TPR that a claim allows at the upper
        bound on the FPR.

        ``limit`` is a non-decreasing function of the FPR.
        """
        return self.tpr_low > limit(self.fpr_high)


def tpr_at(member: FloatArray, nonmember: FloatArray, rate: float) -> float:
    """Return the attack's estimated true-positive rate at a false-positive rate of at most ``rate``.

    The share of ``member`` (n1,) strictly above the lowest score that at most ``rate`` of ``nonmember`` (n0,) exceed.
    Equal scores are not above the threshold, so that constant scores give 0.
    """
    threshold = _threshold(nonmember, np.arange(len(nonmember)), _allowed(len(nonmember), rate))
    return float((member > threshold).mean())


def is_enough(count: int, rate: float) -> bool:
    """Return whether ``count`` independent non-members suffice for confidence bounds at this false-positive rate."""
    # Rounded, because 1000 * 0.01 may fall just below 10 in binary floating point.
    return round(count * rate, 9) >= ENOUGH


def counted_runs(sides: ScoresByRun) -> int:
    """Return how many independent non-members are available for confidence bounds on an attack's FPR and TPR.

    0 where members or non-members would have none.
    """
    return 0 if sides.one_side_per_run is None else _number(sides.one_side_per_run.nonmember_runs)


def lowest_rate(runs: int) -> float | None:
    """Return the lowest reported FPR for which ``runs`` independent non-members suffice for confidence bounds; None if
    there is none.

    The reported rates are those of ``LADDER``.
    """
    return next((rate for rate in LADDER if is_enough(runs, rate)), None)


def joint_statement(sides: ScoresByRun, rate: float, alpha: float = 0.05) -> JointStatement:
    """Compute confidence bounds on an attack's TPR and FPR at the threshold that a share ``rate`` of non-members
    exceeds.

    ``rate`` lies in (0, 1).

    The threshold is an order statistic of the non-members whose number was fixed before, so the Clopper-Pearson bound
    of that number holds for it (it is the order statistic's own law), whatever ties there are; members are counted in
    other runs. Where a run gives several scores, its rate in [0, 1] is counted, and the binomial tail is multiplied by
    e (Bentkus 2004). Runs with scores on both sides contribute one side only.

    Raises ValueError where ``rate`` times the independent runs without the candidate is below ten.
    """
    check_level("alpha", alpha)
    check_level("rate", rate)
    separated, count = sides.one_side_per_run, counted_runs(sides)
    if separated is None or not is_enough(count, rate):
        raise ValueError(
            f"bounds at the false-positive rate {rate:g} need {math.ceil(round(ENOUGH / rate, 9))} independent runs "
            f"without the candidate, got {count}"
        )
    allowed = _allowed(count, rate)
    threshold = _threshold(separated.nonmember, separated.nonmember_runs, allowed)
    return JointStatement(
        rate=rate,
        threshold=threshold,
        # The allowed number, not the counted one: with ties fewer lie above, but the threshold was chosen by it.
        fpr_high=_upper(allowed, separated.nonmember_runs, alpha / 2),
        tpr_low=1
        - _upper(
            float(run_weights(separated.member_runs)[separated.member <= threshold].sum()),
            separated.member_runs,
            alpha / 2,
        ),
        alpha=alpha,
        n0=count,
        n1=_number(separated.member_runs),
    )


def tpr_interval(sides: ScoresByRun, rate: float, level: float = 0.95) -> tuple[float, float] | None:
    """Return a confidence interval of an attack's TPR at the FPR ``rate`` itself, in (0, 1). Return None if there are
    fewer than ``fewest_for_tpr`` independent non-members, because no FPR can then be bounded by ``rate``.

    ``level``: its confidence, of which each of four bounds has a quarter. The TPR above a threshold whose FPR is
    certainly at most ``rate`` is the lower end, that at or above one whose FPR is certainly at least ``rate`` the upper
    one. Both thresholds are order statistics, as in ``joint_statement``.
    """
    check_level("rate", rate)
    check_level("level", level)
    separated = sides.one_side_per_run
    if separated is None or counted_runs(sides) < fewest_for_tpr(rate, level):
        return None
    member, nonmember, each = separated.member, separated.nonmember, (1 - level) / 4
    low = 1 - _missed(separated, member, nonmember, rate, each)
    # The complement of "at or above" is "above" for scores of the opposite sign, with members in the other role.
    return low, _missed(separated, -member, -nonmember, 1 - rate, each)


def fewest_for_tpr(rate: float, level: float = 0.95) -> int:
    """Return the fewest independent non-members for which ``tpr_interval`` gives an interval at this FPR."""
    return math.ceil(math.log((1 - level) / 4) / math.log1p(-rate))


def _missed(sides: ScoresByRun, member: FloatArray, nonmember: FloatArray, rate: float, alpha: float) -> float:
    """Upper bound at ``alpha`` on the share of ``member`` at or below the lowest of ``nonmember`` above which their
    share is at most ``rate`` but with probability ``alpha``; 1 where there is none.
    """
    several = _number(sides.nonmember_runs)
    each = alpha / (math.e if several < len(nonmember) else 1.0)
    allowed = bisect_right(range(several), rate, key=lambda above: float(upper_bound(above, several, each))) - 1
    if allowed < 0:
        return 1.0
    below = member <= _threshold(nonmember, sides.nonmember_runs, allowed)
    return _upper(float(run_weights(sides.member_runs)[below].sum()), sides.member_runs, alpha)


RATES = (0.01, 0.001)
"""The false-positive rates at which the TPR of a user's scores is stated."""


@dataclass(frozen=True, kw_only=True, eq=False)
class MembershipResult:
    """How well scores distinguish the samples that a model was trained on from others.

    This judges no privacy claim: for that, see ``fedassay.audit_scores``. Where all samples share the model's training,
    its 95 % intervals are over the samples, and hold for this model alone.

    Example:
        ``print(fedassay.MembershipResult.of(members, nonmembers).line())``
    """

    sides: ScoresByRun

    @classmethod
    def of(cls, members: ArrayLike, nonmembers: ArrayLike, *runs: ArrayLike) -> "MembershipResult":
        """Compute the result from scores (n1,) of members and (n0,) of non-members, higher means member; ``runs``:
        their runs, as in ``ScoresByRun.of``.

        Raises ValueError for empty or non-finite scores.
        """
        return cls(sides=ScoresByRun.of(members, nonmembers, *runs))

    @property
    def members(self) -> FloatArray:
        """(n1,) scores of the model's training samples; higher means member."""
        return self.sides.member

    @property
    def nonmembers(self) -> FloatArray:
        """(n0,) scores of the samples that the model was not trained on."""
        return self.sides.nonmember

    @cached_property
    def auc(self) -> Area:
        """The area under the ROC curve, with its interval."""
        return area_interval(self.sides)

    def tpr(self, fpr: float) -> float:
        """Return the share of members above the lowest threshold that at most a share ``fpr`` of the non-members
        exceeds.

        It is a point estimate: the threshold was chosen on the same scores. Raises ValueError unless 0 <= fpr <= 1.
        """
        check_number("fpr", fpr)
        if not 0 <= fpr <= 1:
            raise ValueError(f"fpr (a false-positive rate) must be in [0, 1], got {fpr}")
        return tpr_at(self.members, self.nonmembers, fpr)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """One row each for the AUC and for the TPR at FPRs of 1 % and 0.1 %: metric, value, low, high and the number of
        non-members needed. Values that cannot be measured are None.
        """
        rows = [("AUC", self.auc.value, self.auc.low, self.auc.high, 1)]
        for rate in RATES:
            ends = tpr_interval(self.sides, rate)
            found = (self.tpr(rate), *ends) if ends else (None, None, None)
            rows.append((f"TPR at FPR {plain(100 * rate)} %", *found, fewest_for_tpr(rate)))
        return [dict(zip(("metric", "value", "low", "high", "needed"), row, strict=True)) for row in rows]

    def words(self) -> dict[str, str]:
        """Return for each of ``rows`` the metric and its value in words."""
        return {row["metric"]: self._said(**row) for row in self.rows}

    def _said(self, metric: str, value: float | None, low: float | None, high: float | None, needed: int) -> str:
        if value is None:
            return f"not measurable with {counted_runs(self.sides):,} independent non-members ({needed:,} are needed)"
        return f"{value:.3f} {self.auc.method if low is None else f'[{low:.3f}, {high:.3f}]'}"

    def line(self) -> str:
        """Return the result as one line to print."""
        return ", ".join(f"{name} {words}" for name, words in self.words().items())

    def _repr_html_(self) -> str:
        rows = (f"<tr><th>{name}</th><td>{words}</td></tr>" for name, words in self.words().items())
        return f"<table>{''.join(rows)}</table>"


def _allowed(count: int, rate: float) -> int:
    return math.floor(round(count * rate, 9))


def _threshold(scores: FloatArray, runs: IntArray, allowed: int) -> float:
    """The lowest of ``scores`` that at most ``allowed`` of them exceed, where every run weighs 1."""
    if _number(runs) == len(runs):
        return float(np.sort(scores)[max(0, len(scores) - 1 - allowed)])
    levels, place = np.unique(scores, return_inverse=True)
    weights = np.bincount(place, weights=run_weights(runs))
    above = weights.sum() - np.cumsum(weights)
    return float(levels[np.argmax(above <= allowed + 1e-9)])


def _upper(count: float, runs: IntArray, alpha: float) -> float:
    """Upper bound at ``alpha`` on the mean rate of a run, when the rates of all runs sum to ``count``."""
    several = _number(runs)
    # With several scores per run the summands are shares in [0, 1], and the tail is at most e times the binomial one.
    worse = math.e if several < len(runs) else 1.0
    return float(upper_bound(min(several, math.ceil(count - 1e-9)), several, alpha / worse))
