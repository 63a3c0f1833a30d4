"""State, from the results of a claim's implementation checks, what the checks examined, what they did not examine, and
the smallest epsilon that they would have found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..audit.check import FITS, LAW_EPSILON, MEASURED, NOT_CLAIMED, SCALE, SENSITIVITY, VIEW, CheckResult
from ..audit.claim import Claim
from ..audit.finding import CheckPower, blind_words
from ..audit.finite import limit_of
from ..fl.plan import Plan
from ..fl.protection import Protection
from .law import law_checks, law_of_all_rounds
from .measured import states_gaussian

NEVER = ("the timing of messages: no check measures it",)
"""What no check of this package can look at."""
_LOW_BITS = "trailing zero bits"
_FOLLOWS = "so it follows"


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The items that were examined for one claim, and those that were not, each with the reason.

    ``blind``: which of lots, clip, noise and accounting no check looked at, with the reasons; else empty.
    """

    looked_at: tuple[str, ...]
    not_looked_at: tuple[str, ...]
    blind: str


def coverage_of(
    checks: Sequence[CheckResult],
    *,
    sampled: bool,
    epsilon: float = 0.0,
    federation: Sequence[str] = (),
    smaller: Sequence[str] = (),
) -> Coverage:
    """Return the coverage of a claim's checks.

    Args:
        sampled: whether the claim's plan samples clients or samples at random.
        epsilon: the claimed one.
        federation: the size of the federation that the checks ran.
        smaller: in which respects it was smaller than the claim's own.
    """
    made = [check for check in checks if check.passed is not None]
    blind = [check for check in checks if check.passed is None]
    compared = [channel for check in checks for channel in check.compared]
    # What the claim is not about comes first: nothing else says it.
    missing = [words for check in checks for words in check.not_compared if NOT_CLAIMED in words]
    missing += [f"{check.name}: {check.witness}" for check in blind if not limit_of([check])]
    missing += [channel for check in checks for channel in check.not_compared]
    # Statements about a topic follow from what ran: a topic that no result names was not looked at.
    if not compared:
        missing.append("side channels: nothing that the adversary receives was compared")
    if not any(_LOW_BITS in channel for channel in compared):
        missing.append("floating point: no noised numbers were compared bit by bit")
    if not any(one.check.of_layers for one in made):
        missing.append("weights: the noise of single layers was not compared")
    if sampled and not any(one.check.of_runs for one in made):
        missing.append("sampling: no check with independent runs could be made")
    missing += [*smaller, *NEVER]
    return Coverage(
        looked_at=(*(check.name for check in made), *dict.fromkeys(compared), *federation),
        # What follows from something else comes last: the first reason stands in one line with the verdict.
        not_looked_at=tuple(sorted(dict.fromkeys(missing), key=lambda item: _FOLLOWS in item)),
        blind=blind_words(checks, sampled=sampled, epsilon=epsilon) if checks else "",
    )


def power_of_checks(
    checks: Sequence[CheckResult], protection: Protection, claim: Claim, plan: Plan
) -> CheckPower | None:
    """Return the power of the checks that compared the defense with the claim's epsilon; of several checks, the
    smallest detectable epsilon.

    Four chains of checks reach an epsilon: the law's epsilon is at most the claim's, and the noise of many runs and
    the move by one unit are as the law states; or the law's epsilon is at most the claim's, and reports fit the law; or
    the measured move over the measured noise implies at most the claim's epsilon; or trials of everything that is
    received, or of reports on extreme rows, did not refute it, nor did the tails of additive noise.

    All but the trials of everything that is received need something that says what the noise is: a law, a claim that
    states it or has no delta, or runs that show it. Else its shape and size are held against nothing, and a defense
    would gain by publishing less.

    Args:
        checks: all results for the claim.
        plan: the plan for which the defense was prepared.

    Returns:
        None where no chain is complete, where it covers some of the claim's rounds only, or where a check failed.
    """
    if any(check.passed is False for check in checks):
        return None
    made = {check.name: check for check in checks if check.passed is not None}
    if _says_nothing(made, protection, claim, plan):
        # Trials of everything that is received need nobody to say what the noise is.
        made = {name: result for name, result in made.items() if name == VIEW}
    found = [_of_noise(checks, made, protection, claim, plan)]
    law = LAW_EPSILON in made and not law_of_all_rounds(protection, plan)
    for result in made.values():
        check = result.check
        # Reports that fit a law say nothing about a claim that the law was not held against.
        if check.assumes and (check != FITS or law):
            found.append(_power(claim, result.detects, check.assumes))
    return min((one for one in found if one is not None), key=lambda one: one.detectable, default=None)


def _says_nothing(made: dict[str, CheckResult], protection: Protection, claim: Claim, plan: Plan) -> bool:
    """Whether neither a law nor the claim nor runs say what the noise of a release is."""
    if claim.delta == 0 or SCALE in made or states_gaussian(claim):
        return False
    if MEASURED in made and made[MEASURED].measured == 0:
        # What no unit moves needs no noise.
        return False
    return protection.law(claim.observer, plan, 0) is None


def _of_noise(
    checks: Sequence[CheckResult], made: dict[str, CheckResult], protection: Protection, claim: Claim, plan: Plan
) -> CheckPower | None:
    share = made[SCALE].detects if SCALE in made else None
    # A unit that moves the release further than the law's bound has a number too, although it alone is no fault.
    moved = any(check.name == SENSITIVITY and check.measured is not None for check in checks)
    if not share or not moved or LAW_EPSILON not in made or law_of_all_rounds(protection, plan):
        return None
    first = law_checks(protection, claim, plan, checks, noise=share)[0]
    if first.measured is None or first.unit != "epsilon":
        return None
    words = f"its noise is at most {share:.3g} times the stated noise in all weights and rounds"
    return _power(claim, first.measured, words)


def _power(claim: Claim, detectable: float | None, assumption: str) -> CheckPower | None:
    # A looser claim is broken later than its law: then every violation is found.
    return None if detectable is None else CheckPower(detectable=max(claim.epsilon, detectable), assumption=assumption)
