"""Audit a deliberately broken defense, and its correct version, in whole federations."""

from functools import lru_cache, partial

import numpy as np
import torch

from ...attacks.attack import Knowledge, Level
from ...attacks.canary import CanaryProjections, canary_sender
from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.estimators.release_tests import BrokenRelease, GaussianRelease, release_scores
from ...defenses.controls.control import correct_version
from ...defenses.controls.mutant import Mutant, Score
from ...defenses.defense import Defense
from ...fl.algorithms.algorithm import FedSGD
from ...fl.canary import Canary
from ...fl.data.datasets import load_dataset
from ...fl.engine import run_federation
from ...fl.laws.law import GaussianLaw
from ...fl.partitions.partitions import partition_from
from ...fl.partitions.sampling import Full, Poisson
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.recorder import ViewRecorder
from ...fl.streams import Streams
from ...fl.task import Task, build_task
from ...fl.training.local import Batch
from ..audits.audited_federation import release_of
from ..audits.planted_canary import canary_words
from ..checks.check import CheckResult
from ..checks.law_check import law_checks
from ..checks.replay_checks import check_claim
from ..config.canaries import absent_row

CLIENTS, SAMPLES, ROUNDS = 3, 8, 5
CANARY_NORM = 10.0
"""In clip norms: a canary of norm 1 could never show a missing clip."""
LOOKED_FOR = (BrokenRelease(noise=0.5), BrokenRelease(noise=0.1), BrokenRelease(row=CANARY_NORM))
"""Bugs to be scored for, as changes of the release; the planner takes the score that needs the fewest trials."""


def federated_mutant(control: Defense) -> Mutant:
    """Build the audit of a deliberately broken defense and of its correct version, on digits with 3 clients of 8
    samples and 5 rounds.

    The claimed unit is sampled.

    Raises:
        ValueError: if the two state different claims, or one that no canary along an inert weight covers.
    """
    right = correct_version(control)
    task, plan = _federation(_sampled_unit(right))
    broken, correct = control.prepare(plan), right.prepare(plan)
    # Both versions must be held to one claim, or a difference of verdicts would not be due to the bug.
    claim = broken.claims[0]
    if claim != correct.claims[0]:
        raise ValueError(
            f"{type(control).__name__} (a deliberately broken defense) must state the claim of its "
            f"correct version, got {claim.describe()}"
        )
    law = correct.protection.law(claim.observer, plan, 0 if claim.unit is Unit.SAMPLE else plan.clients)
    if not isinstance(law, GaussianLaw):
        raise ValueError(f"{type(right).__name__} must publish a Gaussian noise law of its release, got {law}")
    canary = _canary(claim, plan, CANARY_NORM * law.clip_norm)
    release = release_of(law, canary.present, replaced=claim.adjacency is Adjacency.REPLACE_ONE, rounds=plan.rounds)
    return Mutant(
        claim=claim,
        correct=partial(_projections, task, plan, correct.protection, claim, canary),
        broken=partial(_projections, task, plan, broken.protection, claim, canary),
        scores=tuple(_score(release, looked_for) for looked_for in LOOKED_FOR),
        witness=canary_words(CANARY_NORM),
    )


def checks_of(control: Defense, *, broken: bool) -> tuple[CheckResult, ...]:
    """Run the implementation checks of the broken defense, or of its correct version."""
    right = correct_version(control)
    task, plan = _federation(_sampled_unit(right))
    prepared = (control if broken else right).prepare(plan)
    replayed = check_claim(task, plan, prepared.protection, prepared.claims[0])
    return (*replayed, *law_checks(prepared.protection, prepared.claims[0], plan, replayed))


@lru_cache(maxsize=4)
def _federation(sampled: Unit) -> tuple[Task, Plan]:
    task = build_task(
        load_dataset("digits"),
        model="logistic",
        partition=partition_from("iid"),
        clients=CLIENTS,
        streams=Streams(0),
        samples=CLIENTS * SAMPLES,
        # One weight that no data moves: the canary along it is the only thing that it shows besides noise.
    ).with_inert(1)
    plan = Plan(
        sizes=task.sizes,
        rounds=ROUNDS,
        cohort=Poisson(0.5) if sampled is Unit.CLIENT else Full(),
        lot=Poisson(0.25) if sampled is Unit.SAMPLE else Full(),
        algorithm=FedSGD(learning_rate=0.5),
        layout=task.network.layout,
    )
    return task, plan


# Cached: preparing a defense may take seconds, and the mutant and its checks both need the unit.
@lru_cache(maxsize=16)
def _sampled_unit(defense: Defense) -> Unit:
    """The unit of its claim where all clients take part; REPORT, so that nothing is sampled, for zero-out."""
    _, plan = _federation(Unit.REPORT)
    claim = defense.prepare(plan).claims[0]
    return Unit.REPORT if claim.adjacency is Adjacency.ZERO_OUT else claim.unit


def _canary(claim: Claim, plan: Plan, length: float) -> Canary:
    row = torch.zeros(plan.layout.dim)
    row[-1] = length
    return Canary(unit=claim.unit, present=row, absent=absent_row(row, claim.adjacency))


def _projections(
    task: Task,
    plan: Plan,
    protection: Protection,
    claim: Claim,
    canary: Canary,
    world: int,
    n: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Projections on the canary ``(n, rounds)``, one federation per row; 0 where the observer saw nothing of it."""
    sender = canary_sender(canary, plan)
    unused = slice(plan.layout.model_dim, plan.layout.dim)
    recorder = ViewRecorder(observer=claim.observer, coordinates=unused, senders=(sender,))
    # A fresh seed for each call, drawn from the caller's stream: calls are then independent, and still repeatable.
    streams, batch = Streams(int(rng.integers(2**63))), Batch(replicas=n, world=world)
    final = run_federation(task, plan, protection, streams, batch=batch, canary=canary, recorders=[recorder])
    knowledge = Knowledge.of(task, plan, protection, level=Level.WORST_CASE, canary=canary)
    seen = CanaryProjections().run(recorder.view(plan, final), knowledge, streams.generator("attack canary"))
    return np.where(seen.seen, seen.values, 0.0)


def _score(release: GaussianRelease, looked_for: BrokenRelease) -> Score:
    return lambda projections: release_scores(projections, release, looked_for)
