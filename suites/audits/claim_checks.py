"""Run every implementation check of one claim: replays, calls of hooks, the published law, measurements, and trials of
everything that is received.
"""

from collections.abc import Callable
from dataclasses import replace

from ...audit.check import MESSAGE, VIEW, CheckResult
from ...audit.claim import Claim
from ...checks.hook_checks import HookRuns, hook_runs
from ...checks.law import with_law_checks
from ...checks.measured import measured_checks
from ...checks.pure import pure_checks
from ...checks.replay import check_claim, with_own_model
from ...checks.trials import view_checks
from ...fl.plan import Plan
from ...fl.task import Task
from ..config.tables.suite import MOST_TRIALS
from .prepared_again import Fitted


def claim_checks(
    fit: Callable[[Plan], Fitted],
    claim: Claim,
    own: Plan,
    checked: tuple[Task, Plan],
    *,
    own_model: tuple[Task, Plan] | None = None,
    seed: int = 0,
) -> tuple[CheckResult, ...]:
    """Return the results of all implementation checks of a claim except those of trials.

    A move that is longer than the law's bound is no failure where the claim's epsilon covers it at the law's noise,
    whichever check measured it.

    Args:
        fit: returns the protection and the claim as the defense prepares them for a plan.
        claim, own: the claim, and the plan for which it is stated.
        checked: the federation that is run.
        own_model: a few clients with the claim's own model, where the federation has another one.
    """
    task, plan = checked
    there, whole = fit(plan), replace(own, layout=plan.layout)
    # Hooks are called on given rows, so that all clients of the claim's plan can take part.
    hooks = there if whole == plan else fit(whole)
    of_hooks = hook_runs(task, whole, hooks.protection, hooks.claim, seed=seed)
    of_checked = of_hooks if hooks is there else hook_runs(*checked, there.protection, there.claim, seed=seed)
    replayed = _replayed(there, fit, checked, own_model, of_checked, seed)
    hooked = () if hooks.unprepared else of_hooks.checks()
    moves, laws = with_law_checks(fit(own).protection, claim, own, (*replayed, *hooked))
    measured: tuple[CheckResult, ...] = ()
    if not there.unprepared:
        about = plan if there.again else own
        given = (task, plan, there.protection, there.claim, about)
        measured = (*measured_checks(*given, seed=seed), *pure_checks(*given, seed=seed))
    return (*moves[: len(replayed)], *laws, *measured, *moves[len(replayed) :])


def received_checks(
    fit: Callable[[Plan], Fitted], own: Plan, small: tuple[Task, Plan], *, most: int = MOST_TRIALS, seed: int = 0
) -> tuple[CheckResult, ...]:
    """Return the results of the trials of everything that the claim's observer receives.

    Args:
        small: a federation that can be run thousands of times.
        most: runs with and without the unit, at most, each.
    """
    task, plan = small
    there = fit(plan)
    reason = there.reason
    if not reason and not there.again and plan.clients < own.clients:
        reason = f"the protection was prepared for {own.clients} clients, and not for {plan.clients}"
    if reason:
        return (VIEW.skipped(reason),)
    return view_checks(task, plan, there.protection, there.claim, most=most, seed=seed)


def _replayed(
    there: Fitted,
    fit: Callable[[Plan], Fitted],
    checked: tuple[Task, Plan],
    own_model: tuple[Task, Plan] | None,
    runs: HookRuns,
    seed: int,
) -> tuple[CheckResult, ...]:
    if there.unprepared:
        return (MESSAGE.skipped(there.reason),)
    checks = check_claim(*checked, there.protection, there.claim, seed=seed, seen=runs.seen)
    if own_model is None or (same := fit(own_model[1])).unprepared:
        return checks
    return with_own_model(checks, *own_model, same.protection, same.claim, seed=seed)
