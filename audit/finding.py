"""Decides the verdict on a claim from one measurement; no other module decides or changes a verdict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from .binomial import upper_bound
from .claim import Claim, check_claim
from .curve import GaussianCurve
from .evidence import Setting
from .measurement import FAIR_COINS, INDEPENDENT_TRIALS, NEEDS_GAUSSIAN_CURVE, Kind, Measurement
from .power import fewest_trials
from .wording import at_least, at_most, plain


def beyond_scope(claim: Claim, setting: Setting) -> str:
    """Return why a claim does not cover evidence from this setting (its unit, adversary, rounds); empty string if it
    does.

    The setting's observer, unit, adjacency and rounds are compared with the claim's.
    """
    if not claim.observer.covers(setting.observer):
        return f"the evidence is of {setting.observer.phrase}, the claim covers {claim.observer.phrase}"
    if setting.unit != claim.unit:
        return f"the evidence is of one {setting.unit}, the claim of one {claim.unit}"
    if setting.adjacency != claim.adjacency:
        return f"the evidence is of {setting.adjacency.phrase} neighbours, the claim of {claim.adjacency.phrase}"
    # Fewer rounds are covered: the claim also bounds every part of the release that it covers.
    if setting.rounds > claim.rounds:
        return f"the evidence is of {setting.rounds} rounds, the claim covers {claim.rounds}"
    return ""


def beyond_all(claim: Claim, setting: Setting) -> str:
    """Return why the claim does not cover the whole release (it may cover one layer only); empty string if it does.

    A claim of one layer, or of some users only, bounds no attack on the whole release. In a vertical federation, a
    claim of a person's columns at one party bounds no attack on the person, whose columns at other parties are released
    too; together they have the sum of the parties' epsilons, which no such claim states.
    """
    if claim.part != "joint":
        return f"the claim is of {claim.part} alone"
    if claim.subjects != "all":
        return f"the claim is for {claim.subjects} alone"
    return beyond_scope(claim, setting)


_KINDS = {Kind.ESTIMATE: "a point estimate", Kind.CREDIBLE: "a credible interval"}


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
    """

    verdict: Verdict
    route: str
    reason: str
    claim: Claim | None
    measurement: Measurement | None

    def line(self) -> str:
        """Return one line to print: the claim, what was measured, and the verdict."""
        measurement = self.measurement
        shown = [] if measurement is None else [_bound(measurement), *_curve(self, measurement)]
        if self.verdict is Verdict.OUT_OF_SCOPE or measurement is None:
            shown.append(self.reason)
        if self.verdict in (Verdict.NOT_REFUTED, Verdict.UNDERPOWERED) and measurement is not None:
            found = "none" if measurement.detectable is None else plain(round(measurement.detectable, 2))
            shown.append(f"min detectable {found}")
        return f"{_subject(self)}: {', '.join(shown)}: {self.verdict.value.replace('_', ' ')}"

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as a dictionary of JSON values; the claim appears as its identity (``claim_id``)."""
        return {
            "verdict": self.verdict.value,
            "route": self.route,
            "reason": self.reason,
            "claim_id": None if self.claim is None else self.claim.claim_id,
            "measurement": None if self.measurement is None else self.measurement.to_dict(),
        }


@dataclass(frozen=True, kw_only=True)
class Weakness:
    """The reasons why an audit that refuted nothing may have been too weak to find a violation; a reason that does not
    apply is an empty string.

    Args:
        unseen: why no run could have shown a violation, such as a canary that never reached the release.
        no_power: why no violation would have been refuted; it counts where no detectable epsilon was found.
        unknown_power: why the power is not known; it counts where also nothing was shown.
    """

    unseen: str = ""
    no_power: str = ""
    unknown_power: str = ""


WEAK_BEYOND = 10.0
"""An audit or a check is a weak test if its minimum detectable epsilon is more than so many times the claimed one."""
WEAK_TEST = Weakness(
    no_power="weak test: no violation of the claim would be refuted with 90 % power",
    unknown_power="weak test: nothing was shown, and the power of this estimator is not known",
)
"""The weakness of an audit of evidence from outside a suite, where only the measurement is known."""


@dataclass(frozen=True, kw_only=True)
class CheckPower:
    """What the implementation checks of a claim, which all passed, would have found.

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
    REFUTED by "curve" when the joint point lies under the trade-off curve that the claim states, by "eps_low" when the
    bound exceeds its epsilon; the reason carries the estimator's assumption. UNDERPOWERED when no data could have
    refuted it by either route: the largest epsilon that the sample size can certify does not exceed the claim's and,
    where a curve was tested, even zero errors on both sides would not fall under it (a curve is refutable from far
    fewer trials than an epsilon); the reason states the smallest sufficient number of trials. A point estimate or a
    credible interval never refutes: UNDERPOWERED. Else NOT_REFUTED, unless ``weakness`` names a reason why this audit
    would have refuted nothing, or its minimum detectable epsilon is more than ten times the claimed one: then
    UNDERPOWERED.

    ``checked``: the power of implementation checks that held the defense against the claim, and passed. They are
    evidence too: a bound that was too weak alone then ends as NOT_REFUTED, and the detectable epsilon is theirs. They
    change nothing where no run could have shown a violation, or where nothing was bounded.

    Raises ValueError when the measurement was tested against a curve that this claim does not state, and TypeError for
    an argument of another type.
    """
    if claim is not None:
        check_claim(claim)
    if not isinstance(measurement, Measurement):
        raise TypeError(f"measurement must be a Measurement, as every estimator returns, got {measurement!r}")
    weakness = weakness or Weakness()
    found = _downgraded(_judged(claim, measurement), weakness)
    return found if weakness.unseen else _with_checks(found, checked)


def refutes(claim: Claim, measurement: Measurement) -> bool:
    """Return whether the measurement refutes the claim."""
    return _judged(claim, measurement).verdict is Verdict.REFUTED


def with_evidence(finding: Finding, further: Sequence[Measurement]) -> Finding:
    """Return the finding, or that of the first of ``further`` measurements that refutes the claim where it does not.

    Each measurement has an error rate of its own, and a claim that holds is refuted at most with their sum.
    """
    if finding.claim is None or finding.verdict is Verdict.REFUTED:
        return finding
    judged = (judge(finding.claim, measurement) for measurement in further)
    return next((found for found in judged if found.verdict is Verdict.REFUTED), finding)


def not_audited(claim: Claim, reason: str) -> Finding:
    """Return the finding OUT_OF_SCOPE for a claim that no audit method covers."""
    return _found(Verdict.OUT_OF_SCOPE, reason, claim, None)


def not_run(claim: Claim, reason: str) -> Finding:
    """Return the finding UNDERPOWERED for an audit that was not run, because its trials could judge nothing."""
    return _found(Verdict.UNDERPOWERED, reason, claim, None)


def with_failed_checks(finding: Finding, failed_checks: Sequence[str]) -> Finding:
    """Return the finding with the failed implementation checks added; any failed check refutes the claim.

    It does so even if the measurement did not. ``failed_checks`` describes each failed check in words.
    """
    if not failed_checks:
        return finding
    reason = f"{finding.reason}; failed checks: {'; '.join(failed_checks)}"
    route = finding.route if finding.verdict is Verdict.REFUTED else "check"
    return replace(finding, verdict=Verdict.REFUTED, route=route, reason=reason)


def checked_alone(claim: Claim, failed_checks: Sequence[str]) -> Finding:
    """Return the finding on a claim of which only the implementation was checked, without trials."""
    passed = _found(Verdict.NOT_REFUTED, "no implementation check failed, and no trials were run", claim, None)
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
        reason = f"{_KINDS[measurement.kind]} bounds nothing, so it cannot refute"
        return _found(Verdict.UNDERPOWERED, reason, claim, measurement)
    # The curve before epsilon, because the joint point tests it without any assumption about the mechanism.
    if measurement.below_curve:
        reason = f"under the stated trade-off curve ({_joint_point(measurement)})"
        return _found(Verdict.REFUTED, reason, claim, measurement, route="curve")
    if _bound_holds(claim, measurement) and measurement.epsilon_low > claim.epsilon:
        reason = (
            f"eps >= {at_least(measurement.epsilon_low)} > {plain(claim.epsilon)}, assuming {measurement.assumption}"
        )
        return _found(Verdict.REFUTED, reason, claim, measurement, route="eps_low")
    if not _refutable(claim, measurement):
        reason = f"{measurement.trials} without an error would not refute it{_least_trials(claim, measurement)}"
        return _found(Verdict.UNDERPOWERED, reason, claim, measurement)
    return _found(Verdict.NOT_REFUTED, f"at alpha {plain(measurement.alpha)}", claim, measurement)


def _downgraded(finding: Finding, weakness: Weakness) -> Finding:
    """UNDERPOWERED instead of NOT_REFUTED where the audit could not have refuted anything."""
    measured = finding.measurement
    # Only NOT_REFUTED is downgraded: a weak audit that did refute needs no power.
    if finding.verdict is not Verdict.NOT_REFUTED or measured is None:
        return finding
    if measured.detectable is None:
        # An audit of unknown power that showed some leakage has shown that it works.
        reason = weakness.no_power or (weakness.unknown_power if measured.epsilon_low <= 0 else "")
        if reason:
            return replace(finding, verdict=Verdict.UNDERPOWERED, reason=reason)
    elif finding.claim is not None and measured.detectable > WEAK_BEYOND * finding.claim.epsilon:
        reason = (
            f"weak test: the minimum detectable epsilon {plain(round(measured.detectable, 2))} is more than "
            f"{plain(WEAK_BEYOND)} times the claimed {plain(finding.claim.epsilon)}"
        )
        return replace(finding, verdict=Verdict.UNDERPOWERED, reason=reason)
    # Applies also where a detectable epsilon was computed: power means nothing if the canary never reached the release.
    if weakness.unseen:
        # So the detectable epsilon of this audit is not known, and no number may be printed for it.
        unknown = replace(measured, detectable=None)
        return replace(finding, verdict=Verdict.UNDERPOWERED, reason=weakness.unseen, measurement=unknown)
    return finding


def _with_checks(finding: Finding, checked: CheckPower | None) -> Finding:
    """NOT_REFUTED instead of UNDERPOWERED where implementation checks of known power passed."""
    measured = finding.measurement
    if checked is None or finding.verdict is not Verdict.UNDERPOWERED or measured is None:
        return finding
    if measured.kind is not Kind.BOUND or finding.claim is None:
        return finding
    # Checks that find only far larger violations are a weak test, like an audit that does.
    if checked.detectable > WEAK_BEYOND * finding.claim.epsilon:
        return finding
    words = f"the implementation checks fail with probability 0.9 from eps {plain(round(checked.detectable, 3))}"
    reason = f"{words} if {checked.assumption}; the runs alone would not do: {finding.reason}"
    known = replace(measured, detectable=checked.detectable)
    return replace(finding, verdict=Verdict.NOT_REFUTED, reason=reason, measurement=known)


def _found(verdict: Verdict, reason: str, claim: Claim | None, seen: Measurement | None, route: str = "") -> Finding:
    return Finding(verdict=verdict, route=route, reason=reason, claim=claim, measurement=seen)


def _check_curve(claim: Claim, measurement: Measurement) -> None:
    if measurement.below_curve is None:
        return
    if claim.curve is None:
        raise ValueError(
            f"the measurement was tested against a trade-off curve, but claim {claim.claim_id} states none"
        )
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


def _beyond_scope(claim: Claim, measurement: Measurement) -> str:
    """Why the claim does not cover this evidence; empty when it does."""
    beyond = beyond_scope(claim, measurement.setting)
    if beyond:
        return beyond
    # Almost equal is equal: the same delta, computed in two places, may differ in its last digit.
    if not math.isclose(measurement.delta, claim.delta, rel_tol=1e-9):
        return f"epsilon was read at delta {plain(measurement.delta)}, the claim is at {plain(claim.delta)}"
    if measurement.below_curve is None and not _bound_holds(claim, measurement):
        return f"the bound assumes the {measurement.assumption}, the claim states none"
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


def _least_trials(claim: Claim, measurement: Measurement) -> str:
    """How many runs per arm it would take at least; empty where no number would do, or runs have no arms."""
    if measurement.fpr_high is None:
        return ""
    routes = [claim.curve] if measurement.below_curve is not None else []
    found = [
        fewest_trials(curve=curve, epsilon=claim.epsilon, delta=claim.delta, alpha=measurement.share)
        for curve in ([None] if _bound_holds(claim, measurement) else []) + routes
    ]
    least = min((n for n in found if n is not None), default=None)
    return "" if least is None else f", at least {least:,} runs per arm would be needed"


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
        return f"point estimate of eps {read}, no bound"
    if measurement.credible is not None:
        low, high = measurement.credible
        share = plain(100 * (1 - measurement.alpha))
        return f"{share} % credible interval of eps {plain(round(low, 2))} to {plain(round(high, 2))}, no bound"
    ceiling = "none" if measurement.ceiling is None else plain(round(measurement.ceiling, 2))
    shown = f"eps >= {at_least(measurement.epsilon_low)}, max certifiable {ceiling}"
    needs_no_word = measurement.assumption in (INDEPENDENT_TRIALS, FAIR_COINS)
    return shown if needs_no_word else f"{shown}, assuming {measurement.assumption}"


def _curve(finding: Finding, measurement: Measurement) -> list[str]:
    if measurement.below_curve is None or finding.verdict in (Verdict.OUT_OF_SCOPE, Verdict.NO_CLAIM):
        return []
    if finding.route != "curve":
        return ["not under the stated trade-off curve"]
    return [f"under the stated trade-off curve ({_joint_point(measurement)})"]


def _joint_point(measurement: Measurement) -> str:
    # None only where no curve was tested.
    return f"FPR <= {at_most(measurement.fpr_high or 0.0)}, FNR <= {at_most(measurement.fnr_high or 0.0)}"
