"""All implementation checks of one claim about a vertical federation."""

from collections.abc import Sequence

from ....audit.check import CheckResult
from ....audit.claim import Claim, Unit
from ....audit.ledger import SUITE
from ....fl.streams import Streams
from ....fl.vertical.protection import VerticalLaw, VerticalPlan, VerticalProtection
from ....fl.vertical.task import VerticalTask
from ..pairs import PersonPair, labels_of, why_no_pair
from .label_channel import channel_check
from .play_back import play_back_checks


def vertical_checks(
    claim: Claim,
    task: VerticalTask,
    plan: VerticalPlan,
    protection: VerticalProtection,
    streams: Streams,
    pairs: Sequence[PersonPair],
    *,
    law: VerticalLaw | None,
) -> tuple[CheckResult, ...]:
    """Return the results of all checks of a claim; ``law``: see ``play_back_checks``."""
    checks = play_back_checks(claim, task, plan, protection, streams, pairs, law=law)
    if claim.unit is not Unit.LABEL or why_no_pair(claim, frozen=plan.frozen):
        return checks
    labels = labels_of(task, streams)
    return (*checks, channel_check(claim, plan, protection, streams, labels, alpha=SUITE.level("released labels")))
