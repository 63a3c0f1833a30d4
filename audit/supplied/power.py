"""Judges the power of an audit of supplied evidence, before it from the number of trials and after it from the scores.

Scores that are nearly all equal can refute nothing: constant scores show no violation. To find them, scores are
assigned anew, the highest to members. Where not even this assignment would refute the claim, neither could any attack
with these scores, whatever their power by the number of trials.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import FloatArray
from ..binomial import largest_certifiable_epsilon
from ..bisection import fewest
from ..claim import Claim
from ..curve import Curve, ProfileCurve
from ..estimators.catalogue import estimators
from ..estimators.guess_odds import FAILS, coin_runs, fits_coins, odds_low
from ..estimators.one_run import epsilon_from_guesses
from ..estimators.one_run_claim import guesses_on
from ..evidence import Design
from ..finding import WEAK_TEST, Finding, Verdict, Weakness, judge
from ..measurement import Measurement
from ..power import LIMIT, fewest_trials, minimum_detectable_epsilon
from ..threshold import CHOOSING, choosing, scores_of
from ..wording import plain
from .chosen import default_estimators

COUNTED_EVENTS = ("event_ratio", "guess_odds")
"""The estimators of counted events, which no evidence of a user fits and the catalogue therefore does not list."""
_WITHOUT_POWER = ("sequential",)


def with_power(measured: Measurement, claim: Claim) -> Measurement:
    """Return the measurement; if it lacks a minimum detectable epsilon, add the one with the roles of the two inputs
    exchanged.

    ``detectable`` is computed at the false-positive rate of the event. An event that is nearly certain without the
    canary has no power at this rate, while its complement may have. The rate is the counted one, because planned
    numbers of trials would promise a power that an event which was chosen too rare on a pilot does not have.
    """
    counting = measured.fpr_high is not None or measured.estimator in COUNTED_EVENTS
    if measured.detectable is not None or measured.false_negatives is None or not counting:
        return measured
    found = minimum_detectable_epsilon(
        n0=measured.n1,
        n1=measured.n0,
        alpha=measured.share,
        delta=measured.delta,
        fpr=(measured.false_negatives + 0.5) / (measured.n1 + 1),
        curve=None if measured.below_curve is None else _exchanged(claim.curve),
        epsilon=claim.epsilon,
    )
    return replace(measured, detectable=found)


def detectable_by_tests(
    errors: Sequence[tuple[float, float]], claim: Claim, *, trials: int, alpha: float
) -> float | None:
    """Return the minimum detectable epsilon of several tests with the error rates ``errors`` (FPR, FNR), each of which
    has its share of ``alpha`` in ``trials`` trials per input; None if no test detects any.

    It is the smallest one of all tests, each at the rate of either of its errors: a test that refutes by one of the two
    refutes the claim.
    """
    curves = claim.curve, _exchanged(claim.curve)
    found = [
        minimum_detectable_epsilon(
            n0=trials,
            n1=trials,
            alpha=alpha / len(errors),
            delta=claim.delta,
            fpr=(rate * trials + 0.5) / (trials + 1),
            curve=curve,
            epsilon=claim.epsilon,
        )
        for rates in errors
        for rate, curve in zip(rates, curves, strict=True)
    ]
    return min((one for one in found if one is not None), default=None)


def weakness_of(measured: Measurement) -> Weakness:
    """Return the reasons why the test behind this measurement may be too weak to judge the claim.

    Without a detectable epsilon the power is nil, except for estimators that compute none: there it is not known.
    """
    known = measured.estimator in COUNTED_EVENTS or measured.estimator in estimators()
    return WEAK_TEST if known and measured.estimator not in _WITHOUT_POWER else replace(WEAK_TEST, no_power="")


def _exchanged(curve: Curve | None) -> Curve | None:
    if isinstance(curve, ProfileCurve):
        return ProfileCurve(curve.epsilons, delta_remove=curve.delta_add, delta_add=curve.delta_remove)
    return curve


_ROUNDING = 1e-12
"""Relative differences that constant scores may have, because they were rounded."""
_ALL_EQUAL = "weak test: all scores are equal, so that the attack distinguishes nothing"
_ONE_SIDED = "weak test: all scores lie on one side of the threshold, so that the attack distinguishes nothing"
_TOO_ALIKE = (
    "weak test: so many scores are equal, or so close to each other, that even the most telling assignment of "
    "scores to members and non-members would not refute the claim"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Assignment:
    """Scores (n1,) or rows (n1, d) of members, and those of non-members; higher means member.

    ``threshold``: one that was fixed before, or None.
    """

    member: FloatArray
    nonmember: FloatArray
    threshold: float | None = None


def judged_with_power(claim: Claim, measured: Measurement, *, unseen: str = "") -> Finding:
    """Judge the claim by a measurement; if its power is not known, compute it with the roles of the two inputs
    exchanged.

    ``unseen``: why these scores could refute nothing, empty where they could.
    """
    known = with_power(measured, claim)
    return judge(claim, known, weakness=replace(weakness_of(known), unseen=unseen))


def judged_by_assignments(
    claim: Claim, shown: Assignment, measure: Callable[[Assignment], Measurement], *, seed: int
) -> Finding:
    """Judge the claim by what ``measure`` finds in the scores ``shown``; UNDERPOWERED if these scores could not refute
    any claim.

    ``measure`` also measures other assignments of the same scores.
    """
    measured = measure(shown)
    finding = judged_with_power(claim, measured)
    undecided = finding.verdict is Verdict.NOT_REFUTED or finding.weak
    if not undecided or not (unseen := _powerless(claim, shown, measure, seed)):
        return finding
    return judged_with_power(claim, measured, unseen=unseen)


def _powerless(claim: Claim, shown: Assignment, measure: Callable[[Assignment], Measurement], seed: int) -> str:
    """Why these scores can refute nothing; empty where they can."""
    pooled = np.concatenate([shown.member, shown.nonmember])
    with np.errstate(over="ignore"):
        spread = pooled.max(axis=0) - pooled.min(axis=0)
    if (spread <= _ROUNDING * np.abs(pooled).max(axis=0)).all():
        return _ALL_EQUAL
    if shown.threshold is not None and len(np.unique(pooled > shown.threshold)) == 1:
        return _ONE_SIDED
    try:
        other = _best(pooled, len(shown.member), shown.threshold, seed)
        del pooled  # There may be many scores.
        best = judge(claim, measure(other))
    except ValueError:
        # The estimator cannot use the other assignment, which shows nothing about this one.
        return ""
    return "" if best.verdict is Verdict.REFUTED else _TOO_ALIKE


def _best(pooled: FloatArray, members: int, fixed: float | None, seed: int) -> Assignment:
    """The highest scores as those of members, each side in random order."""
    ordered = _ordered(pooled)
    out, within = ordered[:-members], ordered[-members:]
    threshold = None
    if not np.array_equal(out[-1], within[0]):
        # Without this gap a threshold that was chosen on some would make errors on the others.
        with np.errstate(over="ignore"):
            moved = within + (pooled.max() - pooled.min())
        within = moved if np.isfinite(moved).all() else within
    if fixed is not None:
        edge = float(out[-1])
        # Ties at the edge are on the side of the threshold on which fewer scores differ from them.
        many_above = np.count_nonzero(within > edge) >= np.count_nonzero(out < edge)
        threshold = edge if many_above else float(np.nextafter(edge, -np.inf))
    rng = np.random.default_rng(seed)
    return Assignment(member=rng.permutation(within), nonmember=rng.permutation(out), threshold=threshold)


def _ordered(pooled: FloatArray) -> FloatArray:
    if pooled.ndim == 1:
        return np.sort(pooled)
    # Rows have no order: those that differ from the most frequent one come last, as an attack would use them.
    codes, counts = np.unique(pooled, axis=0, return_inverse=True, return_counts=True)[1:]
    codes = codes.reshape(-1)
    return np.asarray(pooled[np.lexsort((codes, codes != counts.argmax()))])


def reach(
    claim: Claim, design: Design, members: int, nonmembers: int, *, alpha: float, fixed: bool, named: bool
) -> str:
    """Return, in words, the largest epsilon that the default estimator can certify from this number of scores.

    ``fixed``: whether the threshold was fixed before, so that no part of the scores only chooses it; ``named``: whether
    other estimators were named, for which no largest epsilon is computed, as for a fixed split.
    """
    if named or design is Design.FIXED_SPLIT:
        return f"{nonmembers} + {members} scores"
    if design is Design.ONE_RUN:
        canaries = members + nonmembers
        if canaries < 2:
            return f"no lower bound on epsilon can be certified with {canaries} canary"
        planned = guesses_on(claim, canaries, alpha=alpha)
        made, share = planned["one_run"], alpha / len(planned)
        best = epsilon_from_guesses(made, made, canaries, delta=claim.delta, alpha=share)
        return f"{canaries} canaries of one run, {made} guesses: max certifiable {plain(round(best, 2))}"
    if design is Design.CLUSTERED:
        return f"{members} + {nonmembers} scores, of which one per cluster counts"
    best = certifiable(claim, members, nonmembers, alpha=alpha, fixed=fixed)
    guesses, counted = _guesses(claim, members, nonmembers, fixed), _counted(nonmembers, members, fixed)
    part = "" if fixed else f", of which {100 * CHOOSING:g} % only choose the threshold"
    least, needed = fewest_to_refute(claim, alpha=alpha, guesses=guesses), ""
    if least is not None and least > min(counted):
        scores = least if fixed else scores_of(least)
        needed = f"; even without an error, at least {scores:,} per arm are needed to refute the claim"
    return f"{nonmembers} + {members} scores{part}: max certifiable {plain(round(best, 2))}{needed}"


def certifiable(claim: Claim, members: int, nonmembers: int, *, alpha: float, fixed: bool = False) -> float:
    """Return the largest epsilon that the default estimator can certify from this number of scores of independent runs.

    ``fixed``: whether the threshold was fixed before, so that no part of the scores only chooses it.
    """
    counted = _counted(nonmembers, members, fixed)
    guesses = _guesses(claim, members, nonmembers, fixed)
    if guesses:
        return _errorless(claim, *counted, alpha=alpha * (1 - FAILS), runs=coin_runs(*counted))
    return _errorless(claim, *counted, alpha=alpha, runs=0)


def _guesses(claim: Claim, members: int, nonmembers: int, fixed: bool) -> bool:
    return default_estimators(claim, members, nonmembers, threshold=0.0 if fixed else None) == ("guess_odds",)


def _counted(n0: int, n1: int, fixed: bool) -> tuple[int, int]:
    return (n0, n1) if fixed else (n0 - choosing(n0), n1 - choosing(n1))


def fewest_to_refute(claim: Claim, *, alpha: float, guesses: bool = False) -> int | None:
    """Return the smallest number of counted trials with which guesses without errors refute the claim, by its epsilon
    or by its curve.

    They are trials with the canary, and as many without; None if no number suffices. ``guesses``: by ``guess_odds``.
    """
    if guesses:
        return fewest(lambda n: _errorless(claim, n, n, alpha=alpha, runs=coin_runs(n, n)) > claim.epsilon, LIMIT)
    levels = {"epsilon": claim.epsilon, "delta": claim.delta, "alpha": alpha}
    found = [fewest_trials(curve=curve, **levels) for curve in {None, claim.curve}]
    return min((n for n in found if n is not None), default=None)


def too_few_scores(claim: Claim, members: int, nonmembers: int, *, alpha: float) -> str:
    """Return why a single score of a member or of a non-member decides nothing if a part of the scores only chooses the
    threshold; an empty string if both groups have more than one score.
    """
    if min(members, nonmembers) > 1:
        return ""
    least = fewest_to_refute(claim, alpha=alpha, guesses=_guesses(claim, members, nonmembers, fixed=False))
    needed = (
        ""
        if least is None
        else f": even without an error, at least {scores_of(least):,} of each are needed to refute the claim"
    )
    return (
        f"nothing was measured, because {members:,} + {nonmembers:,} scores of members and non-members are too few "
        f"to choose a threshold on one part and count on the other{needed}"
    )


def trials_text(claim: Claim, counted: int, *, alpha: float, learning: int = 0, coins: bool = False) -> str:
    """Return in words what this number of counted trials of each input can certify; ``learning``: further trials that
    are not counted.

    ``coins``: whether coins choose the inputs of the trials where the claim has no curve.
    """
    best = _errorless(claim, counted, counted, alpha=alpha, runs=_coin_runs(claim, counted, coins))
    only = f" ({learning} more of each are used only to choose the event)" if learning else ""
    return f"{counted} + {counted} counted trials{only}: max certifiable {plain(round(best, 2))}"


def too_few_trials(claim: Claim, counted: int, *, alpha: float, factor: int = 1, coins: bool = False) -> str:
    """Return why this number of counted trials of each input cannot decide anything; an empty string if they can.

    ``factor``: trials per counted trial, for the number of trials that the message names; ``coins`` as in
    ``trials_text``.
    """
    least = fewest_to_refute(claim, alpha=alpha)
    if counted < 1 or least is None or counted >= least:
        return ""
    if _errorless(claim, counted, counted, alpha=alpha, runs=_coin_runs(claim, counted, coins)) > claim.epsilon:
        return ""
    return (
        f"no trial was run, because {counted} + {counted} counted trials would not refute the claim even without "
        "any error: "
        f"at least --trials {factor * least:,} are needed"
    )


def _coin_runs(claim: Claim, counted: int, coins: bool) -> int:
    return 2 * counted if coins and fits_coins(curve=claim.curve, trials=counted) else 0


def _errorless(claim: Claim, n0: int, n1: int, *, alpha: float, runs: int) -> float:
    """The bound from trials without an error: of so many of either input, or of ``runs`` guesses where coins choose."""
    if runs:
        return odds_low(runs, 0, alpha, delta=claim.delta, runs=runs)
    return largest_certifiable_epsilon(max(1, n0), max(1, n1), claim.delta, alpha)
