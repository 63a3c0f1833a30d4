"""Audit a deliberately broken defense of vertical federations, and its correct version, in small federations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.check import VIEW, CheckResult
from ...audit.claim import Claim
from ...audit.finding import Verdict, judge
from ...audit.ledger import SUITE
from ...checks.results import worst_results
from ...defenses.controls.fault import Mutant, Score, correct_version
from ...defenses.vertical.defense import VerticalDefense, VerticalPrepared
from ...fl.data.datasets import load_dataset
from ...fl.streams import Streams
from ...fl.vertical.protection import VerticalPlan
from ...fl.vertical.task import VerticalTask, build_vertical_task
from ..vertical.case import VerticalCase
from ..vertical.checks.play_back import vertical_checks
from ..vertical.pairs import PersonPair
from ..vertical.runs import DependentRuns, check_apart, measured_in_runs, observed_blocks
from ..vertical.scores import discriminant
from .versions import PreparedVersions

PEOPLE, BATCH, EPOCHS, LEARNING_RATE = 10, 4, 2, 0.1
"""Of the federation; its last batch is smaller, because a bug may lie in the code for such a batch."""
LEARNED_FROM = 500
"""Runs per arm of the broken version from which the scores are learned; pilot and trials make runs of their own."""
RECEIVED = 5000
"""Runs per arm of the check of all that is received; half of them choose its threshold."""
_BLOCKS = 2**31
"""Numbers of blocks among which a call of a sampler draws its first one."""


@dataclass(frozen=True, kw_only=True)
class VerticalVersions(PreparedVersions):
    """The correct and a broken version of a protection in one vertical federation."""

    task: VerticalTask
    plan: VerticalPlan
    correct: VerticalPrepared
    broken: VerticalPrepared

    def case(self, prepared: VerticalPrepared, claim: Claim, seed: int = 0) -> VerticalCase:
        """Return the case of a claim that one version states."""
        found = VerticalCase.stated(prepared, claim, self.task, self.plan, Streams(seed))
        assert found is not None
        return found

    def mutant(self) -> Mutant:
        """Return samplers of everything that the observer of the first claim receives, ``(n, numbers)``. As in the
        audits of suites, each score is a linear discriminant, either of the messages about the person or of all
        messages.

        Raises:
            DependentRuns: if runs of a version that are made together share noise, so that no bound from them holds.
        """
        cases = [self.case(one, self.claim) for one in (self.correct, self.broken)]
        pair = cases[0].pairs[0]
        correct, broken = (partial(_observed, case, pair) for case in cases)
        # A version that sends fewer messages sends zeros in place of the others, so that one score reads both.
        widths = [max(part.shape[1] for part in both) for both in zip(correct(0, 1, 0), broken(0, 1, 0), strict=True)]
        correct, broken = (partial(_padded, version, widths) for version in (correct, broken))
        scores = _scores(*(broken(arm, LEARNED_FROM, 0) for arm in (0, 1)))
        for version in (correct, broken):
            check_apart(partial(_all_scores, version, scores))
        return Mutant(
            claim=self.claim,
            correct=partial(_sampled, correct),
            broken=partial(_sampled, broken),
            scores=scores,
            witness=f"neighbouring inputs: one person's {pair.words}; score: a linear discriminant",
        )

    def checks(self, *, broken: bool, trials: bool, seed: int = 0) -> tuple[CheckResult, ...]:
        prepared = self.broken if broken else self.correct
        cases = [self.case(prepared, claim, seed) for claim in prepared.claims]
        return worst_results([result for case in cases for result in _checks(case, trials)], "claims")


def _checks(case: VerticalCase, trials: bool) -> list[CheckResult]:
    made, level = vertical_checks(case), SUITE.level("vertical runs")
    if not trials or any(result.passed is False for result in made):
        return list(made)
    try:
        measured = measured_in_runs(case, case.pairs, replicas=RECEIVED, pilot=LEARNED_FROM, alpha=level)
    except DependentRuns as why:
        return [*made, VIEW.skipped(str(why))]
    refuted = judge(case.claim, measured).verdict is Verdict.REFUTED
    tried = VIEW.at_most(measured.epsilon_low, case.claim.epsilon, unit="epsilon", witness=measured.witness)
    # A trade-off curve may be refuted where the epsilon is not.
    return [*made, replace(tried, passed=not refuted, evidence=measured)]


# Cached as in ``versions_of``.
@lru_cache(maxsize=64)
def vertical_versions(part: VerticalDefense) -> VerticalVersions:
    """Prepare a control and its correct version for a small federation: digits of ten classes, with two parties. The
    bottom models are trained if the defense allows it.

    Raises:
        ValueError: if the two state different claims.
    """
    right, task = correct_version(part), _task()
    plan = VerticalPlan(people=PEOPLE, network=task.network, epochs=EPOCHS, batch=BATCH, learning_rate=LEARNING_RATE)
    try:
        correct = right.prepare(plan)
    except ValueError:
        plan = replace(plan, frozen=True)
        correct = right.prepare(plan)
    name = type(part).__name__
    return VerticalVersions(name=name, task=task, plan=plan, correct=correct, broken=part.prepare(plan))


@lru_cache(maxsize=1)
def _task() -> VerticalTask:
    return build_vertical_task(
        load_dataset("digits"), streams=Streams(0), people=PEOPLE, public=100, embedding=3, hidden=(8,)
    )


def _observed(case: VerticalCase, pair: PersonPair, arm: int, runs: int, block: int) -> list[FloatArray]:
    """All runs of one arm, by part of what is received: see ``observed_blocks``."""
    return [np.concatenate(part) for part in zip(*observed_blocks(case, pair, arm, runs, block), strict=True)]


def _padded(
    observed: Callable[[int, int, int], list[FloatArray]], widths: Sequence[int], arm: int, runs: int, block: int
) -> list[FloatArray]:
    """The same with zeros to the right, each part ``widths`` wide."""
    parts = zip(observed(arm, runs, block), widths, strict=True)
    return [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part, width in parts]


def _sampled(
    observed: Callable[[int, int, int], list[FloatArray]], arm: int, n: int, rng: np.random.Generator
) -> FloatArray:
    # The first block is reserved for learning; another start for each call makes calls independent.
    return np.concatenate(observed(arm, n, 1 + int(rng.integers(_BLOCKS))), axis=1)


def _scores(out: list[FloatArray], within: list[FloatArray]) -> tuple[Score, ...]:
    """One score per part of what is received, each of its own columns of the samplers' outputs."""
    ends = np.cumsum([part.shape[1] for part in out])
    return tuple(
        partial(_score, slice(end - zero.shape[1], end), discriminant(zero, one))
        for end, zero, one in zip(ends, out, within, strict=True)
    )


def _score(columns: slice, score: Callable[[FloatArray], FloatArray], received: FloatArray) -> FloatArray:
    return score(received[:, columns])


def _all_scores(
    observed: Callable[[int, int, int], list[FloatArray]], scores: Sequence[Score], arm: int, block: int, runs: int
) -> FloatArray:
    """(runs, scores) of one block of runs."""
    received = np.concatenate(observed(arm, runs, block), axis=1)
    return np.stack([score(received) for score in scores], axis=1)
