"""Run small federations with and without a canary, and project what the observer receives onto the canary."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...attacks.canary import CanaryProjections, canary_sender
from ...audit.arrays import FloatArray
from ...audit.check import CheckResult
from ...audit.claim import HELD_BY_CLIENTS
from ...audit.evidence import Projections
from ...audit.finding import Weakness
from ...audit.measurement import Measurement
from ...audit.mechanism.trial_stream import dependence
from ...audit.parts import name_and_options
from ...checks.canaries import CanaryInputs, canary_kind, check_covered, clients_of_user
from ...checks.noise_replicas import expected_repeats, seen_spacing
from ...fl.canary import Canary, DataCanary
from ...fl.streams import Streams
from ...fl.training.local import Batch
from ..config.tables.suite import AuditSpec
from .audit_method import BlockJob, PlannedAudit
from .case import Case
from .replicas import ALONE, Arms, ReplicaMethod

DIRAC = "dirac"
"""The canary along a weight that no data moves, which alone is scored by the law of the noise."""
_CALLS, _ROWS, _LEVEL = 16, 64, 1e-3
"""Batches, and runs of each, that show whether runs of one batch share draws, and the level of that test: where it
errs, runs are made again one at a time.
"""
_APART = 2**24
"""Number of the first run that is made alone, or of a batch of its own."""
_ALONE = 128
"""Runs that are made one at a time where it is in doubt whether runs made together are independent."""


class CanaryMethod(ReplicaMethod):
    """An audit method that runs whole federations with and without a canary, and scores each run by projecting what the
    observer receives onto the canary (Andrew et al. 2023). The canary is an update along a random direction of all
    weights, which reveals missing noise on any weight, or a mislabelled or crafted sample in a client's data.
    """

    attack = "projection"
    precedence = 40
    powered = False

    def place(self, job: BlockJob) -> int | None:
        try:
            job.length  # noqa: B018
        except Exception:  # The law of a defense that holds one number for each client of the plan.
            return job.small[1].clients - 1
        return None

    def tried_place(self, job: BlockJob) -> int | None:
        return place_of(job)

    def covers(self, request: Case) -> bool:
        name, _ = name_and_options("canary", request.audit.canary)
        return super().covers(request) and self.audits_with(name)

    def audits_with(self, canary: str) -> bool:
        """Return whether this method uses the kind of canary with the given name."""
        # What a canary from outside is made of is not known before it is built: its scores need no assumption on it.
        return canary != DIRAC

    def inert(self, audit: AuditSpec) -> int:
        # These canaries go through the model's own weights; only a planted one needs a weight of its own.
        return 0

    def trials(self, job: BlockJob) -> tuple[Arms, Mapping[str, NDArray[Any]]]:
        canary = canary_for(job)
        arms = [
            [_evidence(job, canary, arm, size, number) for number, size in job.batches(job.audit.batch)]
            for arm in (0, 1)
        ]
        if repeated(arms[0], partial(runs_alone, job, canary)):
            return self.alone(job), {ALONE: np.ones(1)}
        return arms, {}

    def alone(self, job: BlockJob) -> Arms:
        """Make all runs of a job one at a time."""
        canary = canary_for(job)
        return [[_evidence(job, canary, arm, 1, number) for number, _ in job.batches(1)] for arm in (0, 1)]

    def dependent(self, audit: PlannedAudit) -> bool:
        job = audit.blocks[0]
        canary, size = canary_for(job), min(_ROWS, job.audit.batch)

        def calls(series: int) -> FloatArray:
            numbers = range(2 * _APART + series * _CALLS, 2 * _APART + (series + 1) * _CALLS)
            return dependent_columns([_evidence(job, canary, 0, size, number) for number in numbers])

        return size > 1 and dependence(calls, _LEVEL) is not None

    def witness(self, audit: PlannedAudit) -> str:
        spec = audit.blocks[0].audit
        return canary_kind(spec.canary).phrase.format(length=spec.canary_norm)

    def weakness(self, audit: PlannedAudit, measured: Measurement, checks: Sequence[CheckResult]) -> Weakness:
        reason = (
            "the runs show no effect of the canary, and it is not known how much noise must be missing before such "
            "runs show one"
        )
        return Weakness(unknown_power=reason)


def canary_for(job: BlockJob) -> Canary | DataCanary:
    """Build the suite's canary for the claim's unit and adjacency; a canary update has norm ``canary_norm`` times the
    clip norm.

    Raises:
        ValueError: for a unit or adjacency that no canary design covers.
    """
    check_covered(job.claim)
    task, plan = job.small
    ground = CanaryInputs(
        unit=job.claim.unit,
        adjacency=job.claim.adjacency,
        length=job.length,
        task=task,
        plan=plan,
        streams=Streams(job.seed),
        place=job.place,
        clients=clients_of_user(job.claim, plan),
    )
    return canary_kind(job.audit.canary).build(ground)


def place_of(job: BlockJob) -> int | None:
    """Return the client whose place the canary takes, or None if the defense accepts one client more than the plan
    has.

    A defense may hold a list of constants with one entry per client of the plan.
    """
    if job.claim.unit in HELD_BY_CLIENTS:
        return None
    last = job.small[1].clients - 1
    for place in dict.fromkeys((job.place, last)):
        one_round = job.changed(place=place, claim=replace(job.claim, rounds=1))
        try:
            canary = canary_for(one_round)
            for arm in (0, 1):
                _evidence(one_round, canary, arm, 1, 0)
        except Exception:  # A user's own part may raise anything; in the audit itself it becomes a failed row.
            continue
        return place
    return None


def repeated(batches: list[Projections], alone: Callable[[], Projections]) -> bool:
    """Return whether runs without the canary give equal results because they share their noise.

    A tenth more of them then repeat another one bit for bit than noise rounded as theirs would. Runs made one at a time
    share nothing: where these are equal too, the mechanism has no noise there. Runs in which the canary's sender was
    never drawn show no noise and are left out.

    Args:
        alone: makes such runs; called only where runs are equal.
    """
    # Over all batches together: batches that draw the same noise are no more independent than equal replicas.
    return _repeat(batches) and not _repeat([alone()])


def _repeat(batches: list[Projections]) -> bool:
    values = np.concatenate([batch.values[batch.seen.any(axis=1)] for batch in batches])
    if not len(values):
        return False
    step = seen_spacing(list(values.T))
    return len(np.unique(values, axis=0)) < (0.9 - expected_repeats(len(values), step)) * len(values)


def dependent_columns(calls: list[Projections]) -> FloatArray:
    """Return numbers ``(calls, rows, 3)`` whose distribution differs between calls if the rows of a call share a random
    draw. They are the sum of all rounds' projections, and the sum and the largest of the projections' distances from
    each round's median.
    """
    values = np.stack([np.where(one.seen, one.values, 0.0) for one in calls])
    # A public coin that skips a release moves no mean.
    away = np.abs(values - np.median(values, axis=(0, 1)))
    return np.stack([values.sum(axis=2), away.sum(axis=2), away.max(axis=2)], axis=2)


def runs_alone(job: BlockJob, canary: Canary | DataCanary) -> Projections:
    """Run federations without the canary one at a time, so that no two of them can share a draw."""
    each = [_evidence(job, canary, 0, 1, _APART + number) for number in range(_ALONE)]
    return replace(
        each[0],
        values=np.concatenate([one.values for one in each]),
        seen=np.concatenate([one.seen for one in each]),
    )


def _evidence(job: BlockJob, canary: Canary | DataCanary, arm: int, replicas: int, number: int) -> Projections:
    """One batch of replicas: ``arm`` 1 with the canary, 0 without."""
    # Block 0 is the trial's: no replica shares a cohort, a lot or a noise draw with it, another batch or the other arm.
    batch = Batch(replicas=replicas, block=number + 1, arm=arm)
    view = job.observed(canary, batch, senders=(canary_sender(canary, job.small[1]),))
    return CanaryProjections().run(view, job.knowledge(canary), Streams(job.seed).generator("attack canary"))


METHOD = CanaryMethod()
