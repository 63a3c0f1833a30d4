"""Combine several results of one check, find the hook that a failure comes from, and compare the claims of two plans.

The worst of several results of each check: of several claims, pairs of data sets or federations.

Compare the claims that one defense states about two plans.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..audit.check import CheckResult
from ..audit.claim import NOT_PROVABLE, PROVABLE, Claim
from ..fl.hooks import overrides
from ..fl.protection import Protection


def worst_results(results: Iterable[CheckResult], what: str, *, required: str = "") -> tuple[CheckResult, ...]:
    """Return one result per check, in the order of the checks: the first failure; without failures the pass that is
    nearest to its limit; otherwise the first unjudged result. The witness of a pass states for how many of ``what`` the
    check was not judged.

    ``required``: the name of a check that has not passed unless it was judged in all cases.
    """
    by_name: dict[str, list[CheckResult]] = {}
    for result in results:
        by_name.setdefault(result.name, []).append(result)
    return tuple(_worst(found, what, required) for found in by_name.values())


def _worst(results: Sequence[CheckResult], what: str, required: str) -> CheckResult:
    failed = [result for result in results if result.passed is False]
    skipped = [result for result in results if result.passed is None]
    passed = [result for result in results if result.passed]
    if failed or not passed or (skipped and results[0].name == required):
        return (failed or skipped or passed)[0]
    found = max(passed, key=_ratio)
    if not skipped:
        return found
    words = f"no result for {len(skipped)} of {len(results)} {what}: {skipped[0].witness}"
    return replace(found, witness=f"{found.witness}; {words}")


def _ratio(result: CheckResult) -> float:
    """How near a result that passed is to its limit."""
    measured = (result.measured or 0.0) / (result.allowed or 1.0)
    return measured if result.relation == "<=" else -measured


def placed(results: Iterable[CheckResult], protection: Protection) -> tuple[CheckResult, ...]:
    """Return the results; each failed one names the hooks that may have caused it, among those that the protection
    overrides.
    """

    def own(result: CheckResult) -> CheckResult:
        hooks = tuple(one for one in result.check.hook if hasattr(protection, one) and overrides(protection, one))
        return replace(result, hook=hooks) if result.passed is False and hooks else result

    return tuple(map(own, results))


def same_claim(one: Claim, other: Claim) -> bool:
    """Return whether two claims promise the same privacy, whatever noise their plans need."""
    return _promise(one) == _promise(other)


def _promise(claim: Claim) -> tuple[object, ...]:
    return (
        round(claim.epsilon, 6),
        claim.delta,
        claim.unit,
        claim.adjacency,
        claim.observer,
        claim.rounds,
        claim.subjects,
        claim.part,
        claim.parameters.get(PROVABLE),
        NOT_PROVABLE in claim.parameters,
    )
