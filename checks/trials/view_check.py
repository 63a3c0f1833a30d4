"""State the trials of everything that a claim's observer receives as a check of the claim, with their power."""

from dataclasses import replace

import numpy as np

from ...audit.check_result import CheckResult
from ...audit.claim import HELD_BY_CLIENTS, Adjacency, Claim, Unit
from ...audit.finding import refutes
from ...audit.measurement import Measurement
from ...audit.observer import SHUFFLED
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.task import Task
from ..canaries import why_not_covered
from ..replay_checks import replay_setup
from .view_trials import ViewTrials, view_trials

VIEW = "all that is received"
MOST_RUNS = 2**15
"""Runs with and without the unit, at most, each, where nothing else is stated."""


def view_checks(
    task: Task, plan: Plan, protection: Protection, claim: Claim, *, most: int = MOST_RUNS, seed: int = 0
) -> tuple[CheckResult, ...]:
    """Run the trials of a claim in a small federation; the first result's ``evidence`` may refute the claim.

    Args:
        plan: of the federation that is run, for which the protection was prepared.
        most: runs with and without the unit, at most, each.
    """
    reason = _why_not(task, plan, protection, claim)
    if reason:
        return (CheckResult(name=VIEW, passed=None, witness=reason),)
    try:
        setup = replay_setup(task, plan, protection, claim, seed=seed, sampled=True)
        found = view_trials(setup, most)
    except Exception as error:  # A user's own defense may raise anything, and other checks still apply.
        words = f"the federation could not be run: {type(error).__name__}: {error}"
        return (CheckResult(name=VIEW, passed=None, witness=words),)
    return (_result(claim, found), *found.repeats)


def _why_not(task: Task, plan: Plan, protection: Protection, claim: Claim) -> str:
    if reason := why_not_covered(claim):
        return reason
    if claim.rounds > plan.rounds:
        return f"the claim covers {claim.rounds} rounds, of which the federation runs {plan.rounds}"
    added = claim.unit not in HELD_BY_CLIENTS and claim.adjacency is Adjacency.ADD_REMOVE
    if added and (claim.observer.rank >= SHUFFLED.rank or claim.observer.sees_participation):
        return "one client more or less shows by its report alone"
    if (protection.per_sample or claim.unit is Unit.SAMPLE) and task.network.mixes:
        return f"{task.network.mixture}: the gradients of one sample depend on others"
    return ""


def _result(claim: Claim, found: ViewTrials) -> CheckResult:
    if found.why_not:
        return CheckResult(name=VIEW, passed=None, witness=found.why_not)
    detects = None if found.factor is None else claim.epsilon * found.factor
    measured = found.measurement
    if measured is None:
        seen = "which all gave the same numbers" if found.constant else "in which no event is likely to break the claim"
        words = f"{found.runs} runs, {seen}"
        result = CheckResult.at_most(VIEW, 0.0, claim.epsilon, unit="epsilon", witness=words)
    elif refutes(claim, measured) and measured.epsilon_low <= claim.epsilon:
        result = _below_curve(claim, measured)
    else:
        words = f"a lower bound, {measured.witness}"
        result = CheckResult.at_most(VIEW, measured.epsilon_low, claim.epsilon, unit="epsilon", witness=words)
    return replace(
        result,
        detects=detects if result.passed else None,
        compared=("everything that the adversary receives, in independent runs with and without the unit",),
        evidence=measured,
    )


def _below_curve(claim: Claim, measured: Measurement) -> CheckResult:
    fpr, fnr = measured.fpr_high or 0.0, measured.fnr_high or 0.0
    allowed = 0.0 if claim.curve is None else float(np.asarray(claim.curve.fnr(fpr)))
    words = f"by the stated curve at FPR {fpr:.3g}, {measured.witness}"
    return CheckResult.at_least(VIEW, fnr, allowed, unit="FNR", witness=words)
