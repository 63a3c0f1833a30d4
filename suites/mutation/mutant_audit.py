"""Contest: one mutant against the audit that its bug calls for, and its correct twin against the same audit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.estimators.best_bound import best_bound
from ...audit.estimators.clopper_pearson import clopper_pearson
from ...audit.evidence import Design, MembershipScores, Setting
from ...audit.finding import Finding, Verdict, judge
from ...audit.measurement import Measurement
from ...audit.power.threshold import BonferroniThresholds, FixedThreshold, ThresholdPolicy
from ...audit.power.trials_needed import (
    TrialPlan,
    forbidden_curve,
    most_refuting_point,
    simulated_points,
    trials_needed,
)
from ...defenses.controls.mutant import Mutant, Sample, Score
from ...fl.streams import Streams

CHUNK = 2000
"""Trials drawn at once."""
LEAST = 1000
"""Trials of a correct twin at least: with fewer, not even an attack without an error could accuse it."""
CAUTION = 2.0
"""Standard errors of the pilot by which the planner raises both error rates."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """The audit planned for a mutant: which ``score``, how many trials at which threshold.

    ``own_threshold``: where the correct twin itself comes nearest to its claim; tested too, or its test could be easy.
    ``visible``: false where the bug cannot be seen within the limit of trials; the plan is then only the twin's.
    """

    mutant: Mutant
    score: Score
    plan: TrialPlan
    own_threshold: float
    visible: bool


@dataclass(frozen=True, kw_only=True)
class Bout:
    """One edition's trials: a finding of each seed's, and ``decided``, the one that stands for all seeds."""

    each: tuple[Finding, ...]
    decided: Finding
    scores: MembershipScores

    @property
    def refuted(self) -> int:
        """Seeds whose trials alone refuted."""
        return sum(finding.verdict is Verdict.REFUTED for finding in self.each)


def prepare_contest(mutant: Mutant, *, name: str, pilot: int, power: float, alpha: float, limit: int) -> Contest:
    """TrialPlan by ``pilot`` trials a world of both editions, never counted; the score that needs the fewest wins."""
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
    best = min(range(len(scores)), key=lambda number: plan.trials if (plan := plans[number]) else limit + 1)
    chosen, score, purpose = plans[best], scores[best], f"pilot of {name}'s twin"
    own = [_drawn(mutant.correct, [score], world, pilot, Streams(0), purpose)[0] for world in (0, 1)]
    points = simulated_points(*own)
    forbidden = forbidden_curve(claim.curve, claim.epsilon, claim.delta)
    nearest = most_refuting_point(points, forbidden, chosen.trials if chosen else LEAST)
    threshold = float(points.thresholds[nearest])
    fpr, fnr = float(points.fpr[nearest]), float(points.fnr[nearest])
    return Contest(
        mutant=mutant,
        score=score,
        plan=chosen or TrialPlan(trials=LEAST, threshold=threshold, fpr=fpr, fnr=fnr, power=0.0),
        own_threshold=threshold,
        visible=chosen is not None,
    )


def fight_broken(contest: Contest, *, name: str, seeds: Sequence[int], alpha: float) -> Bout:
    """The planned trials for every seed, each at ``alpha``; decided by all of them together."""
    sides = [_sides(contest, contest.mutant.broken, contest.plan.trials, seed, f"mutant {name}") for seed in seeds]
    together = MembershipScores(
        np.concatenate([side.member for side in sides]),
        np.concatenate([side.nonmember for side in sides]),
        sides[0].setting,
    )
    policy = FixedThreshold(contest.plan.threshold)
    each = [_measured(contest, side, policy, alpha) for side in sides]
    return _bout(contest, each, _measured(contest, together, policy, alpha), together)


def fight_correct(contest: Contest, *, name: str, seeds: Sequence[int], alpha: float) -> Bout:
    """As many trials of the twin, at the mutant's threshold and at its own; all seeds together err with ``alpha``."""
    trials = max(LEAST, contest.plan.trials)
    policy = BonferroniThresholds((contest.plan.threshold, contest.own_threshold))
    sides = [_sides(contest, contest.mutant.correct, trials, seed, f"twin {name}") for seed in seeds]
    each = [_measured(contest, side, policy, alpha / len(seeds)) for side in sides]
    return _bout(contest, each, best_bound(each), sides[0])


def _bout(contest: Contest, each: Sequence[Measurement], decided: Measurement, scores: MembershipScores) -> Bout:
    claim = contest.mutant.claim
    return Bout(each=tuple(judge(claim, one) for one in each), decided=judge(claim, decided), scores=scores)


def _measured(contest: Contest, scores: MembershipScores, policy: ThresholdPolicy, alpha: float) -> Measurement:
    claim = contest.mutant.claim
    return clopper_pearson(
        scores,
        delta=claim.delta,
        alpha=alpha,
        threshold=policy,
        curve=claim.curve,
        epsilon=claim.epsilon,
        witness=contest.mutant.witness,
    )


def _sides(contest: Contest, sample: Sample, trials: int, seed: int, purpose: str) -> MembershipScores:
    claim = contest.mutant.claim
    out, within = (_drawn(sample, [contest.score], world, trials, Streams(seed), purpose)[0] for world in (0, 1))
    setting = Setting(
        unit=claim.unit,
        adjacency=claim.adjacency,
        observer=claim.observer,
        rounds=claim.rounds,
        design=Design.INDEPENDENT,
    )
    return MembershipScores(within, out, setting)


def _drawn(
    sample: Sample, scores: Sequence[Score], world: int, trials: int, streams: Streams, purpose: str
) -> list[FloatArray]:
    """``(trials,)`` of each score in one world; outputs are drawn by chunks, each from a stream of its own."""
    chunks: list[list[FloatArray]] = [[] for _ in scores]
    for k in range(math.ceil(trials / CHUNK)):
        outputs = sample(world, min(CHUNK, trials - CHUNK * k), streams.generator(purpose, world=world, replicate=k))
        for kept, score in zip(chunks, scores, strict=True):
            kept.append(score(outputs))
    return [np.concatenate(kept) for kept in chunks]
