"""Make the replay checks on the claim's own model too: its layers are not those of the audit's small model."""

from collections.abc import Sequence
from dataclasses import replace

from ..audit.check_result import CheckResult
from ..audit.claim import Claim
from ..fl.plan import Plan
from ..fl.protection import Protection
from ..fl.task import Task
from .replay_checks import check_claim

_OWN = "the claim's own model "
_ROUNDS = 2
"""Rounds that are run; the state of the second one shows what the first one left."""


def with_own_model(
    checks: Sequence[CheckResult], task: Task, plan: Plan, protection: Protection, claim: Claim, *, seed: int = 0
) -> tuple[CheckResult, ...]:
    """Return the results of the replay checks. A check that fails on the claim's own model, or can be made there alone,
    gets the result that it has there.

    Args:
        checks: results on the model of the audit.
        task, plan: a few clients with the claim's own model.
        protection, claim: as prepared and stated for this plan.
    """
    words = f"{_OWN}{task.network.model}, {_ROUNDS} rounds"
    brief = replace(claim, rounds=min(_ROUNDS, claim.rounds))
    try:
        found = {one.name: one for one in check_claim(task, plan, protection, brief, seed=seed)}
    except Exception as error:  # A user's own model or hook may raise anything, and the other results stand.
        reason = f"{words}: the checks do not run there ({type(error).__name__}: {error})"
        return (replace(checks[0], not_compared=(*checks[0].not_compared, reason)), *checks[1:])
    return tuple(_together(one, found.get(one.name), words) for one in checks)


def on_own_model(checks: Sequence[CheckResult]) -> bool:
    """Return whether any of the results was compared on the claim's own model."""
    return any(words.startswith(_OWN) for one in checks for words in one.compared)


def _together(one: CheckResult, other: CheckResult | None, words: str) -> CheckResult:
    if other is None or other.passed is None or one.passed is False:
        return one
    if other.passed is False or one.passed is None:
        witness = f"{words}: {other.witness}"
        one = replace(other, witness=witness, compared=one.compared, not_compared=one.not_compared)
    return replace(one, compared=(*one.compared, words))
