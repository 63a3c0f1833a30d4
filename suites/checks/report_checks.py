"""Crafted probes: whether reports follow the law that scores them, and whether a shuffler hides whose is whose.

Every likelihood ratio s keeps E1[g(s)] = E0[e^s g(s)] for any bounded g. A report that the law describes wrongly breaks
it, and what then shows little may leak all the same.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency
from ...audit.observer import SHUFFLED
from ..jobs.cells import BlockJob
from ..jobs.crafted_reports import federation_of, rate_of, report_law, subject
from .check import CheckResult

FITS, POSSIBLE, PLACE = "law fits the reports", "reports are possible", "shuffled places tell nothing"
_ERRORS = 7.0
"""Standard errors from which a probe is broken: once in 10^11 probes of an honest mechanism."""
_FEWEST = 30


def report_checks(block: BlockJob, arrays: Sequence[Mapping[str, Any]]) -> tuple[CheckResult, ...]:
    """Of all blocks' trials together; ``arrays``: what each block kept."""
    kept = {name: np.concatenate([one[name] for one in arrays]) for name in arrays[0]}
    shuffled = block.claim.observer.rank == SHUFFLED.rank
    found = [_fits(kept["member"], kept["nonmember"]) if _exact(block) else _not_exact()]
    found.append(_place(kept, _clients(block)) if shuffled else _possible(kept))
    return tuple(found)


def _clients(block: BlockJob) -> int:
    return federation_of(block)[1].clients


def _exact(block: BlockJob) -> bool:
    """Whether the score is the likelihood ratio itself: all clients share the subject's law, and nothing is drawn."""
    _, plan = federation_of(block)
    if block.claim.adjacency is Adjacency.ADD_REMOVE or rate_of(block.claim) < 1 or plan.cohort_rate < 1:
        return False
    if block.claim.observer.rank > SHUFFLED.rank:
        return True
    law = report_law(block)
    others = (block.protection.law(block.claim.observer, plan, client) for client in range(plan.clients))
    return all(other == law for other in others) and subject(block.claim, plan) >= 0


def _not_exact() -> CheckResult:
    reason = "others report by laws of their own, or are drawn: the score is no exact likelihood ratio"
    return CheckResult(name=FITS, kept=None, witness=reason)


def _fits(member: FloatArray, nonmember: FloatArray) -> CheckResult:
    """The identity for g = 1 / (1 + e^s)^2 and its mirror image, a mean over the rounds of each trial."""
    if member.size and np.ptp(member) == np.ptp(nonmember) == member.flat[0] - nonmember.flat[0] == 0:
        return CheckResult(name=FITS, kept=False, witness="the law scores every report alike")
    worst: CheckResult | None = None
    for name, present, absent in (("present", member, nonmember), ("absent", -nonmember, -member)):
        one, other = (torch.from_numpy(side.astype(np.float64)) for side in (present, absent))
        left, right = (-one).sigmoid().square().mean(1).numpy(), (other.sigmoid() * (-other).sigmoid()).mean(1).numpy()
        error = math.sqrt(left.var() / len(left) + right.var() / len(right)) + 1e-9
        measured = abs(float(left.mean() - right.mean())) / error
        found = CheckResult(
            name=FITS,
            kept=measured <= _ERRORS,
            measured=measured,
            allowed=_ERRORS,
            unit="standard errors",
            witness=f"{len(left)} trials a world, identity of likelihood ratios, {name} row",
        )
        worst = found if worst is None or measured > (worst.measured or 0.0) else worst
    if worst is None or min(len(member), len(nonmember)) < _FEWEST:
        return CheckResult(name=FITS, kept=None, witness=f"fewer than {_FEWEST} trials")
    return worst


def _possible(kept: Mapping[str, Any]) -> CheckResult:
    """No report may come that its own row cannot give."""
    odd = np.concatenate([kept["member_odd"], kept["nonmember_odd"]])
    measured = float(odd.mean())
    return CheckResult(
        name=POSSIBLE,
        kept=measured == 0,
        measured=measured,
        allowed=0.0,
        unit="share of trials",
        witness=f"{len(odd)} trials, reports of density zero",
    )


def _place(kept: Mapping[str, Any], clients: int) -> CheckResult:
    """How much more what arrives in the sender's own place looks like its row where that is the present one."""
    within, out = kept["member_place"], kept["nonmember_place"]
    error = math.sqrt(within.var() / len(within) + out.var() / len(out))
    allowed = 1 / clients + _ERRORS * error
    measured = abs(float(within.mean() - out.mean()))
    return CheckResult(
        name=PLACE,
        kept=measured <= allowed,
        measured=measured,
        allowed=allowed,
        unit="likeness",
        witness=f"{len(within)} trials a world, the row in the sender's own place",
    )
