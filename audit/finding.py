"""The verdict: what a measurement says about a claim, and no more than its theorem."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .binomial import upper_bound
from .claim import Claim
from .curve import GaussianCurve
from .measurement import FAIR_COINS, INDEPENDENT_TRIALS, NEEDS_GAUSSIAN_CURVE, Kind, Measurement
from .power.trials_needed import fewest_trials
from .scope import beyond_scope
from .wording import at_least, at_most, plain

_KINDS = {Kind.ESTIMATE: "a point estimate", Kind.CREDIBLE: "a credible interval"}


class Verdict(StrEnum):
    """NOT_REFUTED is all that evidence can do for a claim."""

    REFUTED = "REFUTED"
    NOT_REFUTED = "NOT_REFUTED"
    UNDERPOWERED = "UNDERPOWERED"
    OUT_OF_SCOPE = "OUT_OF_SCOPE"
    NO_CLAIM = "NO_CLAIM"
    FAILED = "FAILED"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A verdict, the ``route`` that refuted ("curve", "eps_low", or "" where none did), and the reason in words."""

    verdict: Verdict
    route: str
    reason: str
    claim: Claim | None
    measurement: Measurement | None

    def line(self) -> str:
        """One line to print: the claim, what was shown, the verdict."""
        measurement = self.measurement
        shown = [] if measurement is None else [_bound(measurement), *_curve(self, measurement)]
        if self.verdict in (Verdict.OUT_OF_SCOPE, Verdict.FAILED):
            shown.append(self.reason)
        if self.verdict in (Verdict.NOT_REFUTED, Verdict.UNDERPOWERED) and measurement is not None:
            found = "none" if measurement.detectable is None else plain(round(measurement.detectable, 2))
            shown.append(f"detectable {found}")
        return f"{_subject(self)}: {', '.join(shown)}: {self.verdict.value.replace('_', ' ')}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; the claim by its identity."""
        return {
            "verdict": self.verdict.value,
            "route": self.route,
            "reason": self.reason,
            "claim_id": None if self.claim is None else self.claim.claim_id,
            "measurement": None if self.measurement is None else self.measurement.to_dict(),
        }


def judge(claim: Claim | None, measurement: Measurement) -> Finding:
    """Judge one claim by one measurement.

    NO_CLAIM without a claim. OUT_OF_SCOPE when the evidence is of an observer that the claim does not cover, of
    another unit, adjacency or delta, or of more rounds, or when the bound assumes a Gaussian mechanism, the claim signs
    no Gaussian curve, and no curve was tested (honest randomised response at epsilon 4 would "show" 26). REFUTED by
    "curve" when the joint point lies under the curve that the claim signs, by "eps_low" when the bound exceeds its
    epsilon; the reason carries the estimator's assumption. UNDERPOWERED when no data could have refuted it by either
    route: the ceiling does not exceed epsilon and, where a curve was tested, even zero errors on both sides would not
    fall under it (a signed curve is refutable from far fewer trials than an epsilon); the reason says how many trials
    it would take at least. A point estimate or a credible
    interval never refutes, whatever it reads: UNDERPOWERED. Else NOT_REFUTED.

    Raises ValueError when the measurement was held against a curve that this claim does not sign.
    """
    if claim is None:
        return _found(Verdict.NO_CLAIM, "nothing was claimed", None, measurement)
    _check_curve(claim, measurement)
    beyond = _beyond_scope(claim, measurement)
    if beyond:
        return _found(Verdict.OUT_OF_SCOPE, beyond, claim, measurement)
    if measurement.kind is not Kind.BOUND:
        reason = f"{_KINDS[measurement.kind]} bounds nothing, so it cannot refute"
        return _found(Verdict.UNDERPOWERED, reason, claim, measurement)
    if measurement.below_curve:
        reason = f"under the signed curve ({_joint_point(measurement)})"
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


def failed(claim: Claim | None, reason: str) -> Finding:
    """The finding of a measurement that could not be made: not measured is not zero."""
    return _found(Verdict.FAILED, reason, claim, None)


def _found(verdict: Verdict, reason: str, claim: Claim | None, seen: Measurement | None, route: str = "") -> Finding:
    return Finding(verdict=verdict, route=route, reason=reason, claim=claim, measurement=seen)


def _check_curve(claim: Claim, measurement: Measurement) -> None:
    if measurement.below_curve is None:
        return
    if claim.curve is None:
        raise ValueError(f"the measurement was held against a curve, but claim {claim.claim_id} signs none")
    fpr_high, fnr_high = measurement.fpr_high, measurement.fnr_high
    if fpr_high is None or fnr_high is None:
        raise ValueError("a curve was tested without a joint point: fpr_high and fnr_high are None")
    if measurement.below_curve and not fnr_high < claim.curve.fnr(fpr_high):
        point = f"({fpr_high}, {fnr_high})"
        raise ValueError(f"below_curve is set, but {point} does not lie under the curve of claim {claim.claim_id}")


def _beyond_scope(claim: Claim, measurement: Measurement) -> str:
    """Why the claim does not speak about this evidence; empty when it does."""
    beyond = beyond_scope(claim, measurement.setting)
    if beyond:
        return beyond
    if not math.isclose(measurement.delta, claim.delta, rel_tol=1e-9):
        return f"epsilon was read at delta {plain(measurement.delta)}, the claim is at {plain(claim.delta)}"
    if measurement.below_curve is None and not _bound_holds(claim, measurement):
        return f"the bound assumes the {measurement.assumption}, the claim signs none"
    return ""


def _bound_holds(claim: Claim, measurement: Measurement) -> bool:
    """Whether the claim grants what the bound assumes of the mechanism."""
    return measurement.assumption not in NEEDS_GAUSSIAN_CURVE or isinstance(claim.curve, GaussianCurve)


def _refutable(claim: Claim, measurement: Measurement) -> bool:
    in_reach = measurement.ceiling is None or measurement.ceiling > claim.epsilon
    if in_reach and _bound_holds(claim, measurement):
        return True
    if claim.curve is None or measurement.below_curve is None:
        return False
    share = measurement.alpha / measurement.comparisons / 2
    best_fpr, best_fnr = upper_bound(0, [measurement.n0, measurement.n1], share)
    return bool(best_fnr < claim.curve.fnr(best_fpr))


def _least_trials(claim: Claim, measurement: Measurement) -> str:
    """How many trials a world it would take at least; empty where none would do, or none were counted by world."""
    if measurement.fpr_high is None:
        return ""
    share = measurement.alpha / measurement.comparisons
    routes = [claim.curve] if measurement.below_curve is not None else []
    found = [
        fewest_trials(curve=curve, epsilon=claim.epsilon, delta=claim.delta, alpha=share)
        for curve in ([None] if _bound_holds(claim, measurement) else []) + routes
    ]
    least = min((n for n in found if n is not None), default=None)
    return "" if least is None else f", at least {least:,} a world would be needed"


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
    shown = f"eps >= {at_least(measurement.epsilon_low)} (ceiling {ceiling})"
    needs_no_word = measurement.assumption in (INDEPENDENT_TRIALS, FAIR_COINS)
    return shown if needs_no_word else f"{shown}, assuming {measurement.assumption}"


def _curve(finding: Finding, measurement: Measurement) -> list[str]:
    if measurement.below_curve is None or finding.verdict in (Verdict.OUT_OF_SCOPE, Verdict.NO_CLAIM):
        return []
    if finding.route != "curve":
        return ["not under the signed curve"]
    return [f"under the signed curve ({_joint_point(measurement)})"]


def _joint_point(measurement: Measurement) -> str:
    # None only where no curve was tested.
    return f"FPR <= {at_most(measurement.fpr_high or 0.0)}, FNR <= {at_most(measurement.fnr_high or 0.0)}"
