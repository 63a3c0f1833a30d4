"""Prepare a defense again for the federation that an audit runs, where that is not the federation of the claim.

A defense may compute constants from the plan, such as each client's share of the noise. In a smaller federation, or
under a model with one weight more, these constants would be wrong, and an audit would accuse a correct defense.
"""

from dataclasses import dataclass, replace

import numpy as np

from ...audit.claim import Claim
from ...audit.observer import AGGREGATE, UPLOADS
from ...checks.law import law_checks
from ...fl.plan import Plan
from ...fl.protection import Protection
from ..config.calibration import calibrated
from ..jobs.block_job import AuditRequest

_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A protection prepared for the plan that is run, with the claim that its defense states there.

    Args:
        reason: why runs under this plan are no evidence about the audited claim; empty where they are.
        unprepared: whether the protection is not one that the defense prepared for a claim under this plan.
        again: whether the defense was prepared again; else the protection is that of the claim's own plan.
    """

    protection: Protection
    claim: Claim
    reason: str = ""
    unprepared: bool = False
    again: bool = False


def fitted(request: AuditRequest, plan: Plan) -> Fitted:
    """Return the request's defense as prepared for ``plan``.

    Runs under the plan are evidence about the audited claim where the defense states it for the plan too, or a stronger
    one: a run that contradicts the audited claim then contradicts what is stated for the run.
    """
    if request.defense is None:
        return Fitted(protection=request.protection, claim=request.claim)
    what = f"the audit's federation ({plan.clients} clients of {_sizes(plan)} samples, {plan.layout.dim} weights)"
    try:
        prepared = calibrated(request.defense, plan)
    except Exception as error:  # A user's own part may raise anything; no audit may then accuse it.
        reason = f"the defense cannot be prepared for {what}: {type(error).__name__}: {error}"
        return Fitted(protection=request.protection, claim=request.claim, reason=reason, unprepared=True)
    same = [claim for claim in prepared.claims if _about(claim) == _about(request.claim)]
    if not same:
        reason = f"the defense states no such claim for {what}"
        return Fitted(protection=prepared.protection, claim=request.claim, reason=reason, unprepared=True)
    # Of claims about several groups of clients the weakest holds for all of them.
    stated = request.claim if request.claim in same else max(same, key=lambda claim: claim.epsilon)
    reason = "" if implies(stated, request.claim) else f"for {what} the defense states less: {stated.describe()}"
    return Fitted(protection=prepared.protection, claim=stated, reason=reason, again=True)


def implies(stated: Claim, other: Claim) -> bool:
    """Return whether ``stated`` is at least as strong as another claim about the same unit and adversary."""
    if _about(stated) != _about(other) or (stated.rounds, stated.subjects) != (other.rounds, other.subjects):
        return False
    if stated.epsilon > other.epsilon * (1 + _ROUNDING) or stated.delta > other.delta * (1 + _ROUNDING):
        return False
    if other.curve is None or stated.curve == other.curve:
        return True
    rates = np.logspace(-9, 0, 200)
    return stated.curve is not None and bool((stated.curve.fnr(rates) >= other.curve.fnr(rates) - _ROUNDING).all())


def stronger_claims(given: Fitted, plan: Plan) -> list[Claim]:
    """Return the same claim for the adversaries that see more than the claim's, unless a law contradicts it there.

    Such a claim implies the given one. It need not hold: clients may hide their updates from the server alone.
    """
    stronger = [replace(given.claim, observer=one) for one in (AGGREGATE, UPLOADS) if one != given.claim.observer]
    implying = [claim for claim in stronger if claim.observer.covers(given.claim.observer)]
    return [claim for claim in implying if law_checks(given.protection, claim, plan)[0].passed is not False]


def _about(claim: Claim) -> tuple[object, ...]:
    return claim.unit, claim.adjacency, claim.observer, claim.part


def _sizes(plan: Plan) -> str:
    least, most = min(plan.sizes), max(plan.sizes)
    return str(least) if least == most else f"{least} to {most}"
