"""Bound the epsilon of a vertical federation from independent runs under two data sets that differ in one person.

Scores are linear discriminants, learned on runs of their own: one of the messages about that person, and one of all
messages, because a person's data may show in the messages about other people.
"""

from copy import deepcopy

import torch
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency, Claim
from ...audit.estimators.best_bound import best_bound
from ...audit.estimators.clopper_pearson import clopper_pearson
from ...audit.evidence import Design, MembershipScores, Setting
from ...audit.measurement import Measurement
from ...audit.observer import FINAL_MODEL
from ...audit.power.threshold import SplitThreshold
from ...fl.streams import Streams
from ...fl.vertical.engine import Runs, run_vertical
from ...fl.vertical.plan import VerticalPlan
from ...fl.vertical.protection import VerticalProtection
from ...fl.vertical.task import VerticalTask
from .discriminant import discriminant
from .pairs import Pair
from .received import Received, all_numbers

BLOCK = 250
"""Runs made at once; part of the streams' names, so another number gives other runs."""


def measured_in_runs(
    claim: Claim,
    task: VerticalTask,
    plan: VerticalPlan,
    protection: VerticalProtection,
    *,
    streams: Streams,
    pair: Pair,
    replicas: int,
    pilot: int,
    alpha: float,
) -> Measurement:
    """Return the lower bound on epsilon, the best of the bounds by each score, which share alpha.

    ``replicas``: runs per arm; ``pilot``: further runs per arm, from which the scores are learned.
    """
    arms = [_runs(claim, task, plan, protection, streams, pair, arm, pilot, 0) for arm in (0, 1)]
    scores = [discriminant(out, within) for out, within in zip(*arms, strict=True)]
    first = -(-pilot // BLOCK)
    tested = [_runs(claim, task, plan, protection, streams, pair, arm, replicas, first) for arm in (0, 1)]
    about = ("the messages about this person", "all messages") if len(scores) > 1 else ("all that is published",)
    # What the runs are evidence of, which a claim of another adjacency, or of fewer epochs, does not cover.
    setting = Setting(
        unit=claim.unit,
        adjacency=Adjacency.REPLACE_ONE,
        observer=claim.observer,
        rounds=plan.epochs,
        design=Design.INDEPENDENT,
    )
    bounds = [
        clopper_pearson(
            MembershipScores(score(within), score(out), setting),
            delta=claim.delta,
            alpha=alpha / len(scores),
            threshold=SplitThreshold(0.5, curve=claim.curve),
            curve=claim.curve,
            epsilon=claim.epsilon,
            witness=f"one person's {pair.words}, {replicas} runs per arm, score: a linear discriminant of {words}",
        )
        for score, out, within, words in zip(scores, *tested, about, strict=True)
    ]
    return best_bound(bounds)


def _runs(
    claim: Claim,
    task: VerticalTask,
    plan: VerticalPlan,
    protection: VerticalProtection,
    streams: Streams,
    pair: Pair,
    arm: int,
    count: int,
    first: int,
) -> list[FloatArray]:
    """What the observer received in ``count`` runs of one arm: (count, numbers) about the person, and in all."""
    kept: list[list[Tensor]] = []
    for number in range(-(-count // BLOCK)):
        size = min(BLOCK, count - number * BLOCK)
        seen = Received(observer=claim.observer, person=pair.person)
        final = run_vertical(
            task,
            plan,
            deepcopy(protection),
            streams,
            runs=Runs(replicas=size, block=first + number, world=arm),
            planted=pair.plant(arm, size),
            recorders=[seen],
        )
        parts = [torch.cat(numbers, dim=1) for numbers in (seen.own, seen.everything) if numbers]
        if claim.observer == FINAL_MODEL:
            parts = [all_numbers(final)]
        kept.append(parts)
    return [torch.cat(blocks).double().numpy() for blocks in zip(*kept, strict=True)]
