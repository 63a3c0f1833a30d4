"""The correct and the broken version of a mechanism, which state the same privacy claim; the versions of a protection
run in whole federations.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from ...attacks.attack import Knowledge, Level
from ...attacks.canary import CanaryProjections, canary_sender
from ...audit.arrays import FloatArray
from ...audit.check import CheckResult
from ...audit.claim import HELD_BY_CLIENTS, Adjacency, Claim, Unit
from ...audit.estimators.release_tests import BrokenRelease, GaussianRelease, release_scores
from ...checks.canaries import CanaryInputs, clients_of_user, dirac
from ...checks.claim_checks import Fitted, claim_checks, received_checks
from ...checks.results import worst_results
from ...defenses.controls.case import Fault, ProtectionCase
from ...defenses.controls.fault import Mechanism, Mutant, Score, correct_version
from ...defenses.defense import Defense, Prepared
from ...fl.algorithms import FedAvg, FedSGD
from ...fl.canary import Canary
from ...fl.data.datasets import load_dataset
from ...fl.engine import run_federation
from ...fl.laws import GaussianLaw
from ...fl.layout import Layout
from ...fl.partitions import partition_from
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.recorder import ViewRecorder
from ...fl.sampling import Full, Poisson
from ...fl.streams import Streams
from ...fl.task import Task, build_task
from ...fl.training.local import Batch
from ..audits.case import release_of
from ..audits.planted_canary import canary_words


class Versions(ABC):
    """A correct version of a mechanism and a broken one, which state the same claims; for an unusual correct case there
    is no broken version.
    """

    @property
    @abstractmethod
    def claim(self) -> Claim:
        """The claim that both versions state; if there are several, the first one."""

    @abstractmethod
    def mutant(self) -> Mutant:
        """Return both versions as samplers, to be audited by trials.

        Raises:
            ValueError: where no trials are known that cover the claim.
        """

    def checks(self, *, broken: bool, trials: bool, seed: int = 0) -> tuple[CheckResult, ...]:
        """Run the implementation checks of the broken or of the correct version; there are none if no run can be
        replayed.

        Args:
            trials: whether everything that is received is audited too, where no other check fails.
            seed: seed of all draws.
        """
        return ()


@dataclass(frozen=True, kw_only=True)
class MechanismVersions(Versions):
    """Both versions of a stand-alone mechanism, which belongs to no federation, so that no run can be replayed."""

    own: Mutant

    @property
    def claim(self) -> Claim:
        return self.own.claim

    def mutant(self) -> Mutant:
        return self.own


def mechanism_versions(mechanism: Mechanism) -> MechanismVersions:
    """Return both versions of a mechanism with a planted bug."""
    return MechanismVersions(own=mechanism.mutant())


@dataclass(frozen=True, kw_only=True)
class PreparedVersions(Versions):
    """Both versions of a protection, prepared for one plan.

    Args:
        name: of the class that plants the bug.
        broken: None for an unusual correct case.

    Raises:
        ValueError: unless both state the same claims, or a difference of verdicts would not be due to the bug.
    """

    name: str
    correct: Any
    broken: Any

    def __post_init__(self) -> None:
        if self.broken is not None and tuple(self.correct.claims) != tuple(self.broken.claims):
            raise ValueError(
                f"{self.name} (a deliberately broken defense) must state the claim of its correct version, got "
                f"{[claim.describe() for claim in self.broken.claims]}"
            )

    @property
    def claim(self) -> Claim:
        found: Claim = self.correct.claims[0]
        return found


CLIENTS, SAMPLES, ROUNDS = 3, 8, 5
UNEQUAL, UNEQUAL_SAMPLES = 4, 40
"""Clients and samples of the federation of cases, whose clients have 8 to 12 samples each."""
_MOST_TRIALS = 2**15
"""Runs of each arm of the trials of one version, at most."""
CANARY_NORM = 10.0
"""In clip norms: a canary of norm 1 could never show a missing clip."""
LOOKED_FOR = (BrokenRelease(noise=0.5), BrokenRelease(noise=0.1), BrokenRelease(row=CANARY_NORM))
"""Bugs to be scored for, as changes of the release; the planner takes the score that needs the fewest trials."""


@dataclass(frozen=True, kw_only=True)
class FederatedVersions(PreparedVersions):
    """The correct and the broken version of a protection in one federation; for an unusual correct case there is no
    broken version.
    """

    task: Task
    plan: Plan
    correct: Prepared
    broken: Prepared | None
    prepare_correct: Callable[[Plan], Prepared]
    prepare_broken: Callable[[Plan], Prepared]

    def mutant(self) -> Mutant:
        return federated_mutant(self)

    def checks(self, *, broken: bool, trials: bool, seed: int = 0) -> tuple[CheckResult, ...]:
        broken = broken and self.broken is not None
        prepared = self.broken if broken and self.broken is not None else self.correct
        prepare = self.prepare_broken if broken else self.prepare_correct
        results: list[CheckResult] = []
        for number, claim in enumerate(prepared.claims):
            given = Fitted(protection=prepared.protection, claim=claim)
            fit = partial(_fitted, given, self.plan.layout, prepare, number)
            checks = claim_checks(fit, claim, self.plan, (self.task, self.plan), seed=seed)
            # As in an audit: trials cost seconds, and a bug that is found needs none.
            if trials and all(check.passed is not False for check in checks):
                checks += received_checks(fit, self.plan, (self.task, self.plan), most=_MOST_TRIALS, seed=seed)
            results += checks
        return worst_results(results, "claims")


# Cached: preparing a defense may take seconds, and the mutant and its checks both need it.
@lru_cache(maxsize=256)
def versions_of(part: Defense | type[ProtectionCase]) -> FederatedVersions:
    """Prepare a control (a deliberately broken defense) and its correct version, or both versions of a case, for a
    federation in which the claimed unit is sampled.

    Controls run on digits with 3 clients of 8 samples, cases with 4 clients of unequal sizes; both for 5 rounds.

    Raises:
        ValueError: if the two state different claims.
    """
    if isinstance(part, Defense):
        right = correct_version(part)
        task, plan = _federation(_sampled_unit(right))
        both: tuple[Callable[[Plan], Prepared], Callable[[Plan], Prepared]] = right.prepare, part.prepare
        versions: tuple[Prepared, Prepared | None] = (right.prepare(plan), part.prepare(plan))
    else:
        task, plan = _federation(part.sampled, equal=False, local_steps=part.local_steps)
        prepared = part.prepare(plan)
        both = (part.correct, part.prepare) if issubclass(part, Fault) else (part.prepare, part.prepare)
        versions = (both[0](plan), prepared if issubclass(part, Fault) else None)
    name = (type(part) if isinstance(part, Defense) else part).__name__
    return FederatedVersions(
        name=name,
        task=task,
        plan=plan,
        correct=versions[0],
        broken=versions[1],
        prepare_correct=both[0],
        prepare_broken=both[1],
    )


def federated_mutant(versions: FederatedVersions) -> Mutant:
    """Build the audit of a broken protection and of its correct version with a canary along an inert (unused) weight.

    Raises:
        ValueError: where no such canary covers the claim, or the correct version publishes no Gaussian law.
    """
    task, plan, correct, broken = versions.task, versions.plan, versions.correct, versions.broken
    claim = correct.claims[0]
    if broken is None:
        raise ValueError(f"{versions.name} is a correct case without a broken version")
    holder = 0 if claim.unit in HELD_BY_CLIENTS else plan.clients
    law = correct.protection.law(claim.observer, plan, holder)
    norm, multiplier = (claim.parameters.get(name) for name in ("clip_norm", "noise_multiplier"))
    if law is None and claim.unit is Unit.CLIENT and isinstance(norm, float) and isinstance(multiplier, float):
        # Any score is valid, also that of noise as the claim states it, new in each round.
        scale = 1 / plan.expected_cohort
        law = GaussianLaw(clip_norm=norm, scale=scale, noise_std=scale * norm * multiplier)
    if not isinstance(law, GaussianLaw):
        raise ValueError(
            f"{versions.name} must publish a Gaussian noise law of its release, or state its noise, got {law}"
        )
    inputs = CanaryInputs(
        unit=claim.unit,
        adjacency=claim.adjacency,
        length=CANARY_NORM * law.clip_norm,
        task=task,
        plan=plan,
        streams=Streams(0),
        clients=clients_of_user(claim, plan),
    )
    canary = dirac(inputs)
    release = release_of(law, canary.present, replaced=claim.adjacency is Adjacency.REPLACE_ONE, rounds=plan.rounds)
    return Mutant(
        claim=claim,
        correct=partial(_projections, task, plan, correct.protection, claim, canary),
        broken=partial(_projections, task, plan, broken.protection, claim, canary),
        scores=tuple(_score(release, looked_for) for looked_for in LOOKED_FOR),
        witness=canary_words(CANARY_NORM),
    )


def _fitted(given: Fitted, layout: Layout, prepare: Callable[[Plan], Prepared], number: int, plan: Plan) -> Fitted:
    """The version as it is; prepared again for a model of another layout."""
    if plan.layout == layout:
        return given
    prepared = prepare(plan)
    return Fitted(protection=prepared.protection, claim=prepared.claims[number], again=True)


@lru_cache(maxsize=16)
def _federation(sampled: Unit, *, equal: bool = True, local_steps: int = 1) -> tuple[Task, Plan]:
    clients = CLIENTS if equal else UNEQUAL
    task = build_task(
        load_dataset("digits"),
        model="logistic",
        partition=partition_from("iid" if equal else {"kind": "dirichlet", "alpha": 1.0}),
        clients=clients,
        streams=Streams(0),
        samples=CLIENTS * SAMPLES if equal else UNEQUAL_SAMPLES,
        # One weight that no data moves: the canary along it is the only thing that it shows besides noise.
    ).with_inert(1)
    # Pairs of neighbouring samples of the pool: some owners have samples at two clients.
    task = replace(task, owners=torch.arange(len(task.labels)) // 2)
    steps = FedAvg(learning_rate=0.5, local_steps=local_steps)
    plan = Plan(
        sizes=task.sizes,
        rounds=ROUNDS,
        cohort=Poisson(0.5) if sampled is Unit.CLIENT else Full(),
        lot=Poisson(0.25) if sampled is Unit.SAMPLE else Full(),
        algorithm=FedSGD(learning_rate=0.5) if local_steps == 1 else steps,
        layout=task.network.layout,
        clients_per_user=task.clients_per_user,
    )
    return task, plan


def _sampled_unit(defense: Defense) -> Unit:
    """The unit of its claim where all clients take part; REPORT, so that nothing is sampled, for zero-out and where the
    claim counts on no sampling.
    """
    _, plan = _federation(Unit.REPORT)
    claim = defense.prepare(plan).claims[0]
    counted = claim.adjacency is not Adjacency.ZERO_OUT and claim.sampling != "none assumed"
    return claim.unit if counted else Unit.REPORT


def _projections(
    task: Task,
    plan: Plan,
    protection: Protection,
    claim: Claim,
    canary: Canary,
    arm: int,
    n: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Projections on the canary ``(n, rounds)``, one federation per row; 0 where the observer saw nothing of it."""
    sender = canary_sender(canary, plan)
    unused = slice(plan.layout.model_dim, plan.layout.dim)
    recorder = ViewRecorder(observer=claim.observer, coordinates=unused, senders=(sender,))
    # A fresh seed for each call, drawn from the caller's stream: calls are then independent, and still repeatable.
    streams, batch = Streams(int(rng.integers(2**63))), Batch(replicas=n, arm=arm)
    final = run_federation(task, plan, protection, streams, batch=batch, canary=canary, recorders=[recorder])
    knowledge = Knowledge.of(task, plan, protection, level=Level.WORST_CASE, canary=canary)
    seen = CanaryProjections().run(recorder.view(plan, final), knowledge, streams.generator("attack canary"))
    return np.where(seen.seen, seen.values, 0.0)


def _score(release: GaussianRelease, looked_for: BrokenRelease) -> Score:
    return lambda projections: release_scores(projections, release, looked_for)
