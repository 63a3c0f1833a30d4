"""State what the implementation checks of a claim looked at and what they did not, from the results that they gave."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..audit.check_result import CheckResult
from .law_check import AS_SAMPLED, LAW_CURVE, LAW_EPSILON
from .measured_checks import MEASURED
from .messages.message_checks import MESSAGE, PUBLIC_STATE
from .noise.noise_checks import BETWEEN_CLIENTS, BETWEEN_ROUNDS, PRESENT, SCALE
from .noise.replica_checks import ARRIVES, EVERY_ROUND, REPEATED
from .pure_checks import PURE
from .replay_checks import SENSITIVITY
from .report_checks import AMPLIFIED, FITS, LOCAL, PLACE
from .trials.view_check import VIEW

NEVER = ("the timing of messages: no check measures it",)
"""What no check of this package can look at."""
_LOW_BITS = "trailing zero bits"
_SUBJECTS = (
    (SENSITIVITY, FITS, MEASURED, PURE, LOCAL, VIEW),
    (PRESENT, SCALE, EVERY_ROUND, FITS, MEASURED, PURE, LOCAL),
    (BETWEEN_CLIENTS, BETWEEN_ROUNDS, REPEATED, FITS, PLACE),
    (LAW_EPSILON, LAW_CURVE, MEASURED, PURE, AMPLIFIED, VIEW),
    (MESSAGE, PUBLIC_STATE),
)
"""Checks of one subject replace each other: reports that fit their law need no check of additive noise."""
_OF_WEIGHTS = (PRESENT, SCALE)
_OF_RUNS = (ARRIVES, EVERY_ROUND, FITS, AS_SAMPLED, VIEW)
"""Checks of many independent runs, in which clients and samples are drawn as the plan states."""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What was looked at for one claim, and what was not, each with the reason.

    ``half_blind``: why the audit counts as too weak, where checks of more than half of the subjects could not be made;
    else empty. An audit of known power, or one that showed some leakage, is no weaker for it.
    """

    looked_at: tuple[str, ...]
    not_looked_at: tuple[str, ...]
    half_blind: str


def coverage_of(
    checks: Sequence[CheckResult], *, sampled: bool, federation: Sequence[str] = (), smaller: Sequence[str] = ()
) -> Coverage:
    """Return the coverage of a claim's checks.

    Args:
        sampled: whether the claim's plan samples clients or samples at random.
        federation: the size of the federation that the checks ran.
        smaller: in which respects it was smaller than the claim's own.
    """
    made = [check for check in checks if check.passed is not None]
    blind = [check for check in checks if check.passed is None]
    compared = [channel for check in checks for channel in check.compared]
    missing = [f"{check.name}: {check.witness}" for check in blind]
    missing += [channel for check in checks for channel in check.not_compared]
    # Statements about a topic follow from what ran: a topic that no result names was not looked at.
    if not compared:
        missing.append("side channels: nothing that the adversary receives was compared")
    if not any(_LOW_BITS in channel for channel in compared):
        missing.append("floating point: no numbers that carry noise were compared bit by bit")
    if not any(check.name in _OF_WEIGHTS for check in made):
        missing.append("weights: the noise of single layers was not compared")
    if sampled and not any(check.name in _OF_RUNS for check in made):
        missing.append("sampling: no check of independent runs could be made")
    missing += [*smaller, *NEVER]
    tried = [names for names in _SUBJECTS if any(check.name in names for check in checks)]
    unseen = [names for names in tried if not any(check.name in names for check in made)]
    half = f"{len(blind)} of {len(checks)} implementation checks could not be made: "
    half += ", ".join(check.name for check in blind)
    return Coverage(
        looked_at=(*(check.name for check in made), *dict.fromkeys(compared), *federation),
        not_looked_at=tuple(dict.fromkeys(missing)),
        half_blind=half if 2 * len(unseen) > len(tried) else "",
    )
