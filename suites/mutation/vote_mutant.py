"""Audit a deliberately broken defense of transfers, and its correct version, as mechanisms whose neighbouring inputs
are votes.
"""

from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from ...audit.check import CheckResult
from ...audit.claim import Claim
from ...audit.mechanism.search import find_event
from ...audit.threshold import CountingPlan
from ...checks.results import worst_results
from ...checks.votes import vote_checks
from ...defenses.controls.fault import Mutant, correct_version
from ...defenses.transfer.defense import BudgetedTransfer, PreparedTransfer, TransferDefense
from ...defenses.transfer.worst_votes import Mechanism, Pair, mechanism_of
from ...fl.layout import Layout
from ...fl.task import TrainingRule
from ...fl.transfer.task import TransferPlan
from .versions import PreparedVersions

TEACHERS, QUERIES, CLASSES = 50, 4, 3
CHECKED_QUERIES = 64
"""Queries whose answers the checks compare."""
EPSILON = 2.0
"""Of the budget of all queries: at the default of 8 a bug of pure DP takes hundreds of thousands of trials to show."""
LEARNED_FROM = 20_000
"""Trials of the broken version per input, on average over the pairs of inputs, that choose a pair and learn a score;
pilot and trials make trials of their own."""


@dataclass(frozen=True, kw_only=True)
class VoteVersions(PreparedVersions):
    """The correct and a broken version of a protection of the answers of many teachers."""

    plan: TransferPlan
    correct: PreparedTransfer
    broken: PreparedTransfer
    whole: "VoteVersions | None" = None
    """Both versions for many queries, which the checks run."""

    def checks(self, *, broken: bool, trials: bool, seed: int = 0) -> tuple[CheckResult, ...]:
        whole = self.whole or self
        prepared = whole.broken if broken else whole.correct
        found = [
            vote_checks(prepared.protection, whole.plan, claim, seed=seed, votes=None) for claim in prepared.claims
        ]
        return worst_results(found, "claims")

    def mutant(self) -> Mutant:
        """Return samplers of what an observer receives, ``(n, numbers)``, on the pair of neighbouring inputs that
        reveals the bug best. The inputs are votes that differ by one teacher, or two teachers' logits if teachers
        randomise their own answers.

        Raises:
            ValueError: if no neighbouring inputs are known for the claim.
        """
        claim = self.claim
        (correct, pairs), (broken, _) = (_mechanism(claim, one, self.plan) for one in (self.correct, self.broken))
        plan = CountingPlan(trials=2 * LEARNED_FROM, delta=claim.delta, alpha=0.001, curve=claim.curve)
        found = find_event(broken, pairs, plan, seed=0, batched=True, pilot=LEARNED_FROM, score=None, low_bits=False)
        inputs = (found.streams[0].x, found.streams[1].x)
        return Mutant(
            claim=claim,
            correct=partial(_sampled, correct, inputs),
            broken=partial(_sampled, broken, inputs),
            scores=(found.event.score.score,),
            witness=f"the pair of neighbouring inputs, of {len(pairs)}, that a pilot told apart best; score: "
            f"{found.event.score}",
        )


# Cached as in ``versions_of``.
@lru_cache(maxsize=64)
def vote_versions(part: TransferDefense) -> VoteVersions:
    """Prepare a control and its correct version for the answers of 50 teachers to four queries.

    Raises:
        ValueError: if the two state different claims.
    """
    rule = TrainingRule(steps=1, learning_rate=0.1)
    layout = Layout(names=("weight",), shapes=((1,),))
    plan = TransferPlan(
        sizes=(1,) * TEACHERS, queries=QUERIES, classes=CLASSES, teacher=rule, student=rule, layout=layout
    )
    if isinstance(part, BudgetedTransfer):
        part = replace(part, epsilon=EPSILON)
    found = None
    for one in (replace(plan, queries=CHECKED_QUERIES), plan):
        correct, broken = (version.prepare(one) for version in (correct_version(part), part))
        found = VoteVersions(name=type(part).__name__, plan=one, correct=correct, broken=broken, whole=found)
    assert found is not None
    return found


def _mechanism(claim: Claim, prepared: PreparedTransfer, plan: TransferPlan) -> tuple[Mechanism, list[Pair]]:
    found = mechanism_of(claim, prepared.protection, plan)
    if found is None:
        neighbours = f"one {claim.unit.value} ({claim.adjacency.phrase})"
        raise ValueError(f"no neighbouring inputs are known for {neighbours} and the observer {claim.observer}")
    return found


def _sampled(mechanism: Mechanism, inputs: Pair, arm: int, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return mechanism(np.broadcast_to(inputs[arm], (n, *inputs[arm].shape)), rng)
