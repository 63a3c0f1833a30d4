"""Audit a mechanism with a planted bug and its correct version in the same way."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.estimators.clopper_pearson import clopper_pearson
from ...audit.estimators.joint_point import best_bound
from ...audit.evidence import MembershipScores, Setting
from ...audit.finding import Finding, Verdict, accept_weak, judge
from ...audit.measurement import Measurement
from ...audit.power import TrialPlan, forbidden_curve, most_refuting_point, simulated_points, trials_needed
from ...audit.threshold import BonferroniThresholds, FixedThreshold, ThresholdPolicy
from ...defenses.controls.fault import Mutant, Sample, Score
from ...fl.streams import Streams

CHUNK = 2000
"""Trials drawn at once; part of the streams' names, so another number gives other trials."""
LEAST = 1000
"""Trials of a correct version, at least: with fewer, not even an attack without an error could refute its claim."""
CAUTION = 2.0
"""Standard errors of the pilot by which the planner raises both error rates."""


@dataclass(frozen=True, kw_only=True)
class MutantAudit:
    """A planned audit of one mutant, which is a mechanism with a planted bug.

    Args:
        score: the one of the mutant's scores that needs the fewest trials.
        plan: number of trials per arm, and the threshold.
        own_threshold: where the correct version itself comes nearest to its claim; it is tested there too, or its test
            could be too easy to pass.
        visible: whether the bug can be seen within the limit of trials; if not, the plan is for the correct version.
    """

    mutant: Mutant
    score: Score
    plan: TrialPlan
    own_threshold: float
    visible: bool


@dataclass(frozen=True, kw_only=True)
class VersionFindings:
    """The audit results of one version of a mechanism: ``each`` holds one verdict per seed, and ``decided`` the verdict
    of all seeds together.
    """

    each: tuple[Finding, ...]
    decided: Finding
    scores: MembershipScores

    @property
    def refuted(self) -> int:
        """The number of seeds whose own trials alone refute the claim."""
        return sum(finding.verdict is Verdict.REFUTED for finding in self.each)


def plan_mutant_audit(mutant: Mutant, *, name: str, pilot: int, power: float, alpha: float, limit: int) -> MutantAudit:
    """Plan the audit of a mutant (a mechanism with a planted bug) from ``pilot`` simulated trials per arm (with and
    without the canary); the audit does not reuse these trials.

    Of the mutant's scores it takes the one that needs the fewest trials.
    """
    claim, scores = mutant.claim, mutant.scores
    out, within = (_drawn(mutant.broken, scores, w, pilot, Streams(0), f"pilot {name}") for w in (0, 1))
    plans = [
        trials_needed(
            simulated_points(out[number], within[number], cautious=CAUTION),
            curve=claim.curve,
            epsilon=claim.epsilon,
            delta=claim.delta,
            alpha=alpha,
            power=power,
            limit=limit,
        )
        for number in range(len(scores))
    ]
    # A score that needs more trials than the limit has no plan and sorts last.
    best = min(range(len(scores)), key=lambda number: plan.trials if (plan := plans[number]) else limit + 1)
    chosen, score, purpose = plans[best], scores[best], f"pilot of {name}'s twin"
    own = [_drawn(mutant.correct, [score], arm, pilot, Streams(0), purpose)[0] for arm in (0, 1)]
    points = simulated_points(*own)
    forbidden = forbidden_curve(claim.curve, claim.epsilon, claim.delta)
    nearest = most_refuting_point(points, forbidden, chosen.trials if chosen else LEAST)
    threshold = float(points.thresholds[nearest])
    fpr, fnr = float(points.fpr[nearest]), float(points.fnr[nearest])
    return MutantAudit(
        mutant=mutant,
        score=score,
        plan=chosen or TrialPlan(trials=LEAST, threshold=threshold, fpr=fpr, fnr=fnr, power=0.0),
        own_threshold=threshold,
        visible=chosen is not None,
    )


def audit_broken(audit: MutantAudit, *, name: str, seeds: Sequence[int], alpha: float) -> VersionFindings:
    """Run the planned trials of the broken version. Each seed gets a verdict at level ``alpha``, and all trials
    together give the final verdict.
    """
    sides = [_sides(audit, audit.mutant.broken, audit.plan.trials, seed, f"mutant {name}") for seed in seeds]
    together = MembershipScores(
        np.concatenate([side.member for side in sides]),
        np.concatenate([side.nonmember for side in sides]),
        sides[0].setting,
    )
    # One threshold, fixed by the pilot: no correction for several is needed, which gives the most power.
    policy = FixedThreshold(audit.plan.threshold)
    each = [_measured(audit, side, policy, alpha) for side in sides]
    return _findings(audit, each, _measured(audit, together, policy, alpha), together)


def audit_correct(audit: MutantAudit, *, name: str, seeds: Sequence[int], alpha: float) -> VersionFindings:
    """Run the trials of the correct version, as many as for the broken one. These trials are tested at two score
    thresholds, chosen for the broken and for the correct version; ``alpha`` bounds the error rate over all seeds.
    """
    # Never fewer than could refute: a correct version must be able to fail.
    trials = max(LEAST, audit.plan.trials)
    policy = BonferroniThresholds((audit.plan.threshold, audit.own_threshold))
    sides = [_sides(audit, audit.mutant.correct, trials, seed, f"twin {name}") for seed in seeds]
    # The best bound of any seed decides: a correct version must hold its claim on every seed.
    each = [_measured(audit, side, policy, alpha / len(seeds)) for side in sides]
    return _findings(audit, each, best_bound(each), sides[0])


def _findings(
    audit: MutantAudit, each: Sequence[Measurement], decided: Measurement, scores: MembershipScores
) -> VersionFindings:
    claim = audit.mutant.claim
    # The trials are planned for the planted bug: whether they would find any other violation is not asked here.
    found = [accept_weak(judge(claim, one)) for one in (*each, decided)]
    return VersionFindings(each=tuple(found[:-1]), decided=found[-1], scores=scores)


def _measured(audit: MutantAudit, scores: MembershipScores, policy: ThresholdPolicy, alpha: float) -> Measurement:
    claim = audit.mutant.claim
    return clopper_pearson(
        scores,
        delta=claim.delta,
        alpha=alpha,
        threshold=policy,
        curve=claim.curve,
        epsilon=claim.epsilon,
        witness=audit.mutant.witness,
    )


def _sides(audit: MutantAudit, sample: Sample, trials: int, seed: int, purpose: str) -> MembershipScores:
    claim = audit.mutant.claim
    out, within = (_drawn(sample, [audit.score], arm, trials, Streams(seed), purpose)[0] for arm in (0, 1))
    return MembershipScores(within, out, Setting.claimed(claim))


def _drawn(
    sample: Sample, scores: Sequence[Score], arm: int, trials: int, streams: Streams, purpose: str
) -> list[FloatArray]:
    """Each score ``(trials,)`` of one arm, ``arm`` 1 with the canary, 0 without."""
    chunks: list[list[FloatArray]] = [[] for _ in scores]
    # In chunks, for memory; each has a stream of its own.
    for k in range(math.ceil(trials / CHUNK)):
        outputs = sample(arm, min(CHUNK, trials - CHUNK * k), streams.generator(purpose, arm=arm, replicate=k))
        for kept, score in zip(chunks, scores, strict=True):
            kept.append(score(outputs))
    return [np.concatenate(kept) for kept in chunks]
