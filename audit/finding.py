"""Decides the verdict on a claim from one measurement; no other module decides or changes a verdict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from .binomial import upper_bound
from .check import EPSILON, LOTTERY, MOVE, NOISE, VIEW, CheckResult, Subject
from .claim import Claim, check_claim
from .curve import Curve, GaussianCurve, Tangent
from .evidence import Setting
from .finite import limits_of
from .measurement import FAIR_COINS, INDEPENDENT_TRIALS, NEEDS_GAUSSIAN_CURVE, Kind, Measurement
from .power import enough_trials, planned_for
from .wording import at_least, at_most, plain


def beyond_scope(claim: Claim, setting: Setting) -> str:
    """Return why a claim does not cover evidence from this setting (its unit, adversary, rounds); empty string if the
    claim covers it.

    The setting's observer, unit, adjacency and rounds are compared with the claim's.
    """
    if not claim.observer.covers(setting.observer):
        return f"the evidence is what {setting.observer.phrase} can see, but the claim covers {claim.observer.phrase}"
    if setting.unit != claim.unit:
        return f"the evidence is about one {setting.unit}, but the claim is about one {claim.unit}"
    if setting.adjacency != claim.adjacency:
        return (
            f"the evidence is from {setting.adjacency.phrase} neighbours, but the claim is about "
            f"{claim.adjacency.phrase}"
        )
    # Fewer rounds are covered: the claim also bounds every part of the release that it covers.
    if setting.rounds > claim.rounds:
        return f"the evidence is from {setting.rounds} rounds, but the claim covers {claim.rounds}"
    return ""


def beyond_all(claim: Claim, setting: Setting) -> str:
    """Return why the claim does not cover the whole release (it may cover one layer only); empty string if the claim
    covers all of it.

    A claim of one layer, or of some users only, bounds no attack on the whole release. In a vertical federation, a
    claim of a person's columns at one party bounds no attack on the person, whose columns at other parties are released
    too; together they have the sum of the parties' epsilons, which no such claim states.
    """
    if claim.part != "joint":
        return f"the claim covers only {claim.part}"
    if claim.subjects != "all":
        return f"the claim covers only {claim.subjects}"
    return beyond_scope(claim, setting)


class Verdict(StrEnum):
    """The outcome of an audit of one claim, such as REFUTED or NOT_REFUTED.

    NOT_REFUTED is the best that a claim can get, because evidence never proves privacy.
    """

    REFUTED = "REFUTED"
    NOT_REFUTED = "NOT_REFUTED"
    UNDERPOWERED = "UNDERPOWERED"
    OUT_OF_SCOPE = "OUT_OF_SCOPE"
    NO_CLAIM = "NO_CLAIM"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A verdict on a claim, with the reason for it in words.

    Args:
        route: what refuted the claim: "curve" (its trade-off curve), "eps_low" (the bound on epsilon), "check" (an
            implementation check), or "" where nothing did.
        weak: whether the claim is UNDERPOWERED for the only reason that the minimum detectable epsilon of its test is
            too large; ``accept_weak`` makes it NOT_REFUTED, and leaves this mark.
        limit: for whom alone the claim holds, and why, and what a public number of records would show under add/remove;
            empty for neither.
    """

    verdict: Verdict
    route: str
    reason: str
    claim: Claim | None
    measurement: Measurement | None
    weak: bool = False
    limit: str = ""

    def line(self) -> str:
        """Return one line to print: the claim, what was measured, and the verdict."""
        measurement = self.measurement
        shown = [] if measurement is None else [_bound(measurement), *_curve(self, measurement)]
        if self.verdict is Verdict.OUT_OF_SCOPE or measurement is None:
            shown.append(self.reason)
        if self.verdict in (Verdict.NOT_REFUTED, Verdict.UNDERPOWERED) and measurement is not None:
            found = "none" if measurement.detectable is None else plain(round(measurement.detectable, 2))
            shown.append(f"min detectable {found}")
        if self.verdict is not Verdict.REFUTED and self.limit:
            shown.append(self.limit)
        accepted = f" {ACCEPTED}" if self.weak and self.verdict is Verdict.NOT_REFUTED else ""
        return f"{_subject(self)}: {', '.join(shown)}: {self.verdict.value.replace('_', ' ')}{accepted}"

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as a dictionary of JSON values; the claim appears as its identity (``claim_id``)."""
        return {
            "verdict": self.verdict.value,
            "route": self.route,
            "reason": self.reason,
            "claim_id": None if self.claim is None else self.claim.claim_id,
            "measurement": None if self.measurement is None else self.measurement.to_dict(),
            "weak": self.weak,
            "limit": self.limit,
        }


def weak_beyond(epsilon: float) -> float:
    """Return the minimum detectable epsilon above which a test of a claim counts as weak: twice the claimed epsilon, or
    the claimed epsilon plus one if that is larger.

    A test that could miss more than that says too little for an OK.
    """
    return max(2 * epsilon, epsilon + 1)


_MOST_TRIALS = 10**7
"""Runs per arm beyond which no number is stated that would do."""
_RATES, _ROUNDED = 1001, 1e-9
"""Rates at which a tangent must not lie above its curve, and what rounding may add."""
ACCEPTED = "by a weak test, accepted"
"""What follows the verdict of a claim whose weak test the user accepts."""


@dataclass(frozen=True, kw_only=True)
class Weakness:
    """The reasons why an audit that refuted nothing may have been too weak to find a violation; a reason that does not
    apply is an empty string.

    Args:
        unseen: why no run could have shown a violation, such as a canary that never reached the release.
        no_power: why no violation would have been refuted; it counts where no detectable epsilon was found.
        unknown_power: why the power is not known; it counts where also too little was shown.
        low_power: why a violation that the runs were planned for would not be refuted with 90 % power; it counts also
            where the detectable epsilon, that of a Gaussian mechanism and of the best attack on it, is small enough.
        not_looked_at: which parts of the claim no check looked at, with the reasons; it counts where the checks, and
            not the runs, have the power.
        enough: how many runs would be enough, where it is known of the attack that was made; else it is stated of the
            best attack.
    """

    unseen: str = ""
    no_power: str = ""
    unknown_power: str = ""
    low_power: str = ""
    not_looked_at: str = ""
    enough: str = ""


_UNKNOWN = "weak test: its power is not known, and its lower bound on epsilon is small"
WEAK_TEST = Weakness(no_power="weak test: no violation of the claim would be found with 90 % power")
"""The weakness of an audit of evidence from outside a suite, where only the measurement is known."""


def blind_words(checks: Sequence[CheckResult], *, sampled: bool, epsilon: float = 0.0) -> str:
    """Return which of lots, clip, noise and accounting no check examined, each with the first reason; empty if all were
    examined.

    Args:
        sampled: whether clients or samples are drawn at random; else there are no lots.
        epsilon: the claimed one, > 0; trials of all that is received look at everything where they are no weak test of
            it.
    """
    needed = (*([LOTTERY] if sampled else []), MOVE, NOISE, EPSILON)
    seen = {subject for one in checks if one.passed is not None for subject in one.check.subjects}
    strong = (one.name == VIEW and one.detects is not None and one.detects <= weak_beyond(epsilon) for one in checks)
    missing = [] if any(strong) else [subject for subject in needed if subject not in seen]
    return f"not looked at: {', '.join(_why_blind(checks, subject) for subject in missing)}" if missing else ""


def _why_blind(checks: Sequence[CheckResult], subject: Subject) -> str:
    reasons = (f"{one.name}: {one.witness}" for one in checks if one.passed is None and subject in one.check.subjects)
    return f"{subject.value} ({next(reasons, 'no check applies')})"


BY_CHECKS = "the implementation checks fail with probability 0.9 if the true eps is at least"
"""What stands in a reason before the epsilon that the checks of the code detect."""


def detected_by_checks(reason: str, detectable: float | None) -> bool:
    """Return whether a finding's minimum detectable epsilon was computed for its checks of the code, not for its
    runs.
    """
    return detectable is not None and f"{BY_CHECKS} {plain(round(detectable, 3))} " in reason


@dataclass(frozen=True, kw_only=True)
class CheckPower:
    """The smallest violation that the implementation checks of a claim, all of which passed, can detect.

    Args:
        detectable: smallest true epsilon, at the claim's delta, at which one of the checks fails with probability 0.9.
        assumption: how a defense of that epsilon differs from the stated one, as in "its noise is smaller by one
            factor in all weights".
    """

    detectable: float
    assumption: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.detectable) and self.detectable >= 0):
            raise ValueError(f"detectable must be >= 0 and finite, got {self.detectable}")


def judge(
    claim: Claim | None,
    measurement: Measurement,
    *,
    weakness: Weakness | None = None,
    checked: CheckPower | None = None,
) -> Finding:
    """Decide whether a measurement refutes a claim, and return the verdict with its reason.

    NO_CLAIM without a claim. OUT_OF_SCOPE when the evidence is of an observer that the claim does not cover, of
    another unit, adjacency or delta, or of more rounds, or when the bound assumes a Gaussian mechanism, the claim
    states no Gaussian curve, and no curve was tested (correct randomised response at epsilon 4 would "show" 26).
    REFUTED by "curve" when the joint point, or counts by a tangent, lie under the stated trade-off curve, by "eps_low"
    when the bound exceeds its epsilon; the reason carries the estimator's assumption. UNDERPOWERED when no data could
    have refuted it by either route: the largest epsilon that the sample size can certify does not exceed the claim's
    and, where a curve was tested, even zero errors on both sides would not fall under it (a curve is refutable from far
    fewer trials than an epsilon). A point estimate never refutes: UNDERPOWERED. Else
    NOT_REFUTED, unless ``weakness`` names a reason why this audit would have refuted nothing, or its minimum detectable
    epsilon is larger than max(2 epsilon, epsilon + 1): then UNDERPOWERED, with the number of runs per arm that would
    do.

    ``checked``: the power of implementation checks that held the defense against the claim, and passed. They are
    evidence too: the minimum detectable epsilon of a claim is the smaller one of runs and checks. They change nothing
    where no run could have shown a violation, where nothing was bounded, or where a part of the claim was not looked
    at.

    Where the power is not known, an audit has shown that it works only by what it showed. Its bound must reach
    epsilon^2 / max(2 epsilon, epsilon + 1), a half of the claim from epsilon 1 on: if the claim holds, the bound is at
    least this share of the truth, and at this share a violation at the limit would have been refuted.

    Raises ValueError when the measurement was tested against a curve that this claim does not state, and TypeError for
    an argument of another type.
    """
    if claim is not None:
        check_claim(claim)
    if not isinstance(measurement, Measurement):
        raise TypeError(f"measurement must be a Measurement, as every estimator returns, got {measurement!r}")
    found = _judged(claim, measurement)
    undecided = found.verdict in (Verdict.NOT_REFUTED, Verdict.UNDERPOWERED)
    if claim is None or not undecided or measurement.kind is not Kind.BOUND:
        return found
    return _powered(found, claim, measurement, weakness or Weakness(), checked)


def refutes(claim: Claim, measurement: Measurement) -> bool:
    """Return whether the measurement refutes the claim."""
    return _judged(claim, measurement).verdict is Verdict.REFUTED


def with_evidence(finding: Finding, further: Sequence[Measurement]) -> Finding:
    """Return the finding; if it does not refute the claim, but one of the ``further`` measurements does, return the
    finding from that measurement.

    Each measurement has an error rate of its own, and a claim that holds is refuted at most with their sum.
    """
    if finding.claim is None or finding.verdict is Verdict.REFUTED:
        return finding
    judged = (judge(finding.claim, measurement) for measurement in further)
    return next((found for found in judged if found.verdict is Verdict.REFUTED), finding)


def not_audited(claim: Claim | None, reason: str) -> Finding:
    """Return the finding OUT_OF_SCOPE for a claim that no audit method covers, and NO_CLAIM if no claim was stated."""
    return _found(Verdict.NO_CLAIM if claim is None else Verdict.OUT_OF_SCOPE, reason, claim, None)


def not_run(claim: Claim, reason: str) -> Finding:
    """Return the finding UNDERPOWERED for an audit that was not run, because its trials could not have decided
    anything.
    """
    return _found(Verdict.UNDERPOWERED, reason, claim, None)


def with_limit(finding: Finding, checks: Sequence[CheckResult]) -> Finding:
    """Return the finding with a note of the participants to whom the claim is limited, if the system did not stop NaN
    or infinite values, and of what a public number of records would show under add/remove.
    """
    return replace(finding, limit="; ".join(limits_of(checks)))


def with_failed_checks(finding: Finding, failed_checks: Sequence[str]) -> Finding:
    """Return the finding with the failed implementation checks added; any failed check refutes the claim.

    It does so even if the measurement did not. ``failed_checks`` describes each failed check in words.
    """
    if not failed_checks:
        return finding
    reason = f"{finding.reason}; failed checks: {'; '.join(failed_checks)}"
    route = finding.route if finding.verdict is Verdict.REFUTED else "check"
    return replace(finding, verdict=Verdict.REFUTED, route=route, reason=reason)


def checked_alone(claim: Claim, failed_checks: Sequence[str], *, not_looked_at: str = "", aside: str = "") -> Finding:
    """Return the finding on a claim if only its implementation was checked, without trials.

    ``not_looked_at``: which parts of the claim no check looked at; empty if all were looked at. ``aside``: what was not
    looked at and leaves the verdict as it is.
    """
    verdict = Verdict.UNDERPOWERED if not_looked_at else Verdict.NOT_REFUTED
    none_run = "no independent trials were run"
    words = none_run if failed_checks else f"no implementation check failed, and {none_run}"
    passed = _found(verdict, "; ".join(filter(None, (not_looked_at, words, aside))), claim, None)
    return with_failed_checks(passed, failed_checks)


def _judged(claim: Claim | None, measurement: Measurement) -> Finding:
    """The verdict by the measurement alone."""
    if claim is None:
        return _found(Verdict.NO_CLAIM, "nothing was claimed", None, measurement)
    # Scope comes first: evidence about something else can neither refute the claim nor support it.
    _check_curve(claim, measurement)
    beyond = _beyond_scope(claim, measurement)
    if beyond:
        return _found(Verdict.OUT_OF_SCOPE, beyond, claim, measurement)
    if measurement.kind is not Kind.BOUND:
        reason = "a point estimate is not a bound, so it cannot refute a claim"
        return _found(Verdict.UNDERPOWERED, reason, claim, measurement)
    # The curve before epsilon, because its test assumes nothing about the mechanism.
    if measurement.below_curve:
        reason = f"error rates below the stated trade-off curve ({_joint_point(measurement)})"
        return _found(Verdict.REFUTED, reason, claim, measurement, route="curve")
    if _bound_holds(claim, measurement) and measurement.epsilon_low > claim.epsilon:
        reason = (
            f"eps >= {at_least(measurement.epsilon_low)} > {plain(claim.epsilon)}, assuming {measurement.assumption}"
        )
        return _found(Verdict.REFUTED, reason, claim, measurement, route="eps_low")
    if not _refutable(claim, measurement):
        reason = f"even without any error, {measurement.trials} would not refute the claim"
        return _found(Verdict.UNDERPOWERED, reason, claim, measurement)
    return _found(Verdict.NOT_REFUTED, f"at alpha {plain(measurement.alpha)}", claim, measurement)


def _powered(
    finding: Finding, claim: Claim, measured: Measurement, weakness: Weakness, checked: CheckPower | None
) -> Finding:
    """The verdict on a claim that nothing refuted, by what runs and checks would have found."""
    refutable = finding.verdict is Verdict.NOT_REFUTED
    if weakness.unseen:
        # So the detectable epsilon of this audit is not known, and no number may be printed for it.
        unknown = replace(measured, detectable=None)
        return _underpowered(finding, weakness.unseen, unknown) if refutable else finding
    alone = (
        _without_power(claim, measured, weakness)
        if refutable
        else f"{finding.reason}{weakness.enough or _enough(claim, measured)}"
    )
    # What passed says nothing for a claim of which a part was not looked at.
    counted = None if weakness.not_looked_at else checked
    powers = [measured.detectable if refutable else None, None if counted is None else counted.detectable]
    known = replace(measured, detectable=min((one for one in powers if one is not None), default=None))
    if counted is not None and counted.detectable <= weak_beyond(claim.epsilon):
        words = f"{BY_CHECKS} {plain(round(counted.detectable, 3))} and {counted.assumption}"
        reason = f"{words}; the compared runs alone are not enough: {alone}" if alone else f"{finding.reason}; {words}"
        return replace(finding, verdict=Verdict.NOT_REFUTED, reason=reason, measurement=known)
    if not alone:
        return finding
    weak = known.detectable is not None and not weakness.not_looked_at
    return replace(_underpowered(finding, "; ".join(filter(None, (weakness.not_looked_at, alone))), known), weak=weak)


def _underpowered(finding: Finding, reason: str, measured: Measurement) -> Finding:
    return replace(finding, verdict=Verdict.UNDERPOWERED, reason=reason, measurement=measured)


def _without_power(claim: Claim, measured: Measurement, weakness: Weakness) -> str:
    """Why the runs would not have refuted a violation at the limit of a weak test; empty where they would have."""
    limit = weak_beyond(claim.epsilon)
    if measured.detectable is None:
        shown = measured.epsilon_low >= claim.epsilon**2 / limit
        # Of evidence from elsewhere only the number of runs is known to be too small.
        more = _enough(claim, measured) if weakness.no_power == WEAK_TEST.no_power else ""
        return f"{weakness.no_power}{more}" or ("" if shown else weakness.unknown_power or _UNKNOWN)
    if measured.detectable <= limit:
        return weakness.low_power
    return (
        f"weak test: the minimum detectable epsilon of the runs, {plain(round(measured.detectable, 2))}, is more than "
        f"{plain(limit)} (the larger of 2 eps and eps + 1){weakness.enough or _enough(claim, measured)}"
    )


def _enough(claim: Claim, measured: Measurement) -> str:
    """How many runs per arm would find a violation at the limit of a weak test, where the attack is the best one."""
    if measured.false_negatives is None:
        return ""
    needed = enough_trials(
        weak_beyond(claim.epsilon),
        curve=None if measured.below_curve is None else claim.curve,
        epsilon=claim.epsilon,
        delta=claim.delta,
        alpha=measured.share,
        limit=_MOST_TRIALS,
    )
    if needed is None:
        return f"; even {_MOST_TRIALS:,} runs per arm would not be enough"
    made = min(measured.n0, measured.n1)
    if needed <= made:
        return (
            f"; the best attack needs {needed:,} counted runs per arm, and this attack needs more than the "
            f"{made:,} that were made"
        )
    return f"{enough_words(claim, needed).replace('; ', '; with the best attack, ')} {planned_for(claim.delta)}"


def enough_words(claim: Claim, runs: int) -> str:
    """Return in words that so many runs per arm find a violation at the limit of a weak test."""
    limit = plain(weak_beyond(claim.epsilon))
    return f"; about {runs:,} counted runs per arm would be enough to find a true eps of {limit}"


def accept_weak(finding: Finding) -> Finding:
    """Return an UNDERPOWERED finding as NOT_REFUTED if its only defect is a weak test, which the caller accepts; return
    any other finding unchanged.
    """
    return replace(finding, verdict=Verdict.NOT_REFUTED) if finding.weak else finding


def with_weak_part(finding: Finding, words: str) -> Finding:
    """Return the finding as UNDERPOWERED if nothing refuted the claim, but the test of a part of what the claim covers
    is weak; ``words`` name the part and how weak its test is.
    """
    if finding.verdict is not Verdict.NOT_REFUTED:
        return finding
    return replace(finding, verdict=Verdict.UNDERPOWERED, reason=f"{words}; {finding.reason}", weak=True)


def _found(verdict: Verdict, reason: str, claim: Claim | None, seen: Measurement | None, route: str = "") -> Finding:
    return Finding(verdict=verdict, route=route, reason=reason, claim=claim, measurement=seen)


def _check_curve(claim: Claim, measurement: Measurement) -> None:
    if measurement.below_curve is None:
        return
    if claim.curve is None:
        raise ValueError(
            f"the measurement was tested against a trade-off curve, but claim {claim.claim_id} states none"
        )
    if measurement.tangent is not None:
        _check_tangent(claim, claim.curve, measurement.tangent)
        return
    fpr_high, fnr_high = measurement.fpr_high, measurement.fnr_high
    if fpr_high is None or fnr_high is None:
        raise ValueError(
            "below_curve (error rates under the claimed curve) needs bounds on both rates, but fpr_high and fnr_high "
            "are None"
        )
    if measurement.below_curve and not fnr_high < claim.curve.fnr(fpr_high):
        point = f"({fpr_high}, {fnr_high})"
        raise ValueError(
            f"below_curve is set, but {point} does not lie under the trade-off curve of claim {claim.claim_id}"
        )


def _check_tangent(claim: Claim, curve: Curve, tangent: Tangent) -> None:
    """Raise ValueError unless the curve states the guarantee of its tangent; a little is lost to rounding."""
    rates = np.linspace(0, 1, _RATES)
    if not (tangent.fnr(rates) <= curve.fnr(rates) + _ROUNDED).all():
        raise ValueError(f"{tangent} does not lie under the trade-off curve of claim {claim.claim_id}")


def _beyond_scope(claim: Claim, measurement: Measurement) -> str:
    """Why the claim does not cover this evidence; empty when it does."""
    beyond = beyond_scope(claim, measurement.setting)
    if beyond:
        return beyond
    # Almost equal is equal: the same delta, computed in two places, may differ in its last digit.
    if not math.isclose(measurement.delta, claim.delta, rel_tol=1e-9):
        return (
            f"epsilon was measured at delta {plain(measurement.delta)}, but the claim states delta {plain(claim.delta)}"
        )
    if measurement.below_curve is None and not _bound_holds(claim, measurement):
        return f"the bound assumes the {measurement.assumption}, but the claim states no Gaussian trade-off curve"
    return ""


def _bound_holds(claim: Claim, measurement: Measurement) -> bool:
    """Whether the claim states what the bound assumes of the mechanism."""
    return measurement.assumption not in NEEDS_GAUSSIAN_CURVE or isinstance(claim.curve, GaussianCurve)


def _refutable(claim: Claim, measurement: Measurement) -> bool:
    """Whether errorless data of this size would refute the claim by one of the two routes."""
    in_reach = measurement.ceiling is None or measurement.ceiling > claim.epsilon
    if in_reach and _bound_holds(claim, measurement):
        return True
    if claim.curve is None or measurement.below_curve is None:
        return False
    # The level at which the estimator bounded each of two rates.
    best_fpr, best_fnr = upper_bound(0, [measurement.n0, measurement.n1], measurement.share / 2)
    return bool(best_fnr < claim.curve.fnr(best_fpr))


def _subject(finding: Finding) -> str:
    if finding.claim is not None:
        return finding.claim.describe()
    if finding.measurement is None:
        return "no claim"
    setting = finding.measurement.setting
    where = f"one {setting.unit} ({setting.adjacency.phrase}), adversary: {setting.observer.phrase}"
    return f"no claim, delta {plain(finding.measurement.delta)}, {where}"


def _bound(measurement: Measurement) -> str:
    if measurement.kind is Kind.ESTIMATE:
        read = "none" if measurement.estimate is None else plain(round(measurement.estimate, 2))
        return f"point estimate of eps {read}, which is not a bound"
    ceiling = "none" if measurement.ceiling is None else plain(round(measurement.ceiling, 2))
    shown = f"eps >= {at_least(measurement.epsilon_low)}, max certifiable {ceiling}"
    needs_no_word = measurement.assumption in (INDEPENDENT_TRIALS, FAIR_COINS)
    return shown if needs_no_word else f"{shown}, assuming {measurement.assumption}"


def _curve(finding: Finding, measurement: Measurement) -> list[str]:
    if measurement.below_curve is None or finding.verdict in (Verdict.OUT_OF_SCOPE, Verdict.NO_CLAIM):
        return []
    if finding.route != "curve":
        return ["error rates not below the stated trade-off curve"]
    return [f"error rates below the stated trade-off curve ({_joint_point(measurement)})"]


def _joint_point(measurement: Measurement) -> str:
    if (tangent := measurement.tangent) is not None:
        return f"the curve implies eps {plain(round(tangent.epsilon, 3))} at delta {plain(round(tangent.delta, 5))}"
    # None only where no curve was tested.
    return f"FPR <= {at_most(measurement.fpr_high or 0.0)}, FNR <= {at_most(measurement.fnr_high or 0.0)}"
