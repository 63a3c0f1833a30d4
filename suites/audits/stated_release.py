"""Score a canary by the noise that the claim states, for a defense that publishes no law."""

import math
from dataclasses import replace

import torch

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.curve import GaussianCurve
from ...audit.estimators.release_tests import GaussianRelease
from ...audit.observer import FINAL_MODEL, SHUFFLED, UPLOADS
from ...checks.replay import ReplaySetup, replay_setup
from ...fl.canary import Canary
from ...fl.laws.law import describes_release
from ...fl.partitions.sampling import Full
from ...fl.plan import Plan
from ...fl.replay import frozen_federation
from ...fl.task import Task
from ..jobs.block_job import BlockJob
from .audited_federation import audited_federation, federation_of, published_law

_FLAT = 1e-3
"""Factor of the gradients of all other rows."""


def stated_release(job: BlockJob) -> GaussianRelease | None:
    """Return the Gaussian noise that the claim states, in units of the sensitivity to the canary; None where a law is
    published, or the claim states no noise over sensitivity, or its observer receives no single round.
    """
    claim, (task, plan) = job.claim, audited_federation(job)
    # Thresholds designed for Gaussian noise at delta 0 lie so far out that they miss a release without noise.
    if (
        claim.delta == 0
        # The clients of one user are drawn apart: no single rate describes what is released about it.
        or claim.unit is Unit.USER
        or not job.inert
        or claim.observer.rank == FINAL_MODEL.rank
        or describes_release(published_law(job, plan))
    ):
        return None
    fewer = job.defense is None and plan.clients < federation_of(job)[1].clients
    if claim.observer.rank < SHUFFLED.rank and fewer and _clients_add_noise(job, task, plan):
        # Fewer clients may hold less noise together than the claim states, unless it is prepared for them.
        return None
    if plan.cohort.participations(claim.rounds) < claim.rounds or plan.algorithm.linear_scale is None:
        return None
    rate = _number(claim, "rate") or (1.0 if claim.unit is not Unit.SAMPLE or isinstance(plan.lot, Full) else None)
    steps = _steps(job, plan)
    sigma = _sigma(claim, claim.rounds * steps)
    if sigma is None or rate is None or not 0 < rate <= 1:
        return None
    return GaussianRelease(sigma=sigma, rate=rate, steps=steps, rounds=claim.rounds)


def _clients_add_noise(job: BlockJob, task: Task, plan: Plan) -> bool:
    """Whether the hooks' draws move what clients send."""
    claim = replace(job.claim, observer=UPLOADS)
    setup = replay_setup(task, plan, job.protection, claim, seed=job.seed)
    one, other = (setup.run(noise=noise, rounds=1).releases[0] for noise in (0, 1))
    return not torch.equal(one, other)


def unit_of(job: BlockJob, task: Task, plan: Plan, canary: Canary) -> float:
    """Return by how much the canary moves a release in one step, as a share of the canary itself, from two runs with
    equal draws; 0 if it does not move it.
    """
    setup, steps = replay_setup(task, plan, job.protection, job.claim, seed=job.seed), _steps(job, plan)
    if job.claim.unit is Unit.SAMPLE and steps == 1:
        # As in the audit's runs: sampled lots, and other rows that are hardly there.
        still = frozen_federation(task, plan, rounds=setup.still.rounds, steepness=_FLAT, seed=job.seed)
        sampled = replace(setup, still=replace(still, plan=replace(still.plan, lot=plan.lot)))
        # A canary that no lot holds moves nothing.
        return _moved(sampled, plan, canary) or _moved(setup, plan, canary)
    return _moved(setup, plan, canary) / steps


def _moved(setup: ReplaySetup, plan: Plan, canary: Canary) -> float:
    """By how much the canary moves the first release that it moves, over its length; 0 if it moves none."""
    without = None if canary.absent is None else canary
    before, after = setup.run(canary=without), setup.run(canary=canary, world=1)
    moved = [
        float((one[..., -1] - other[..., -1]).abs().max())
        for one, other in zip(after.releases, before.releases, strict=True)
        if one.shape == other.shape
    ]
    absent = torch.zeros_like(canary.present) if canary.absent is None else canary.absent
    scale = abs(plan.algorithm.linear_scale or 1.0) if canary.unit is Unit.SAMPLE else 1.0
    length = scale * float(torch.linalg.vector_norm(canary.present - absent))
    return next((shift for shift in moved if shift), 0.0) / length


def _steps(job: BlockJob, plan: Plan) -> int:
    """Noisy steps of one release."""
    return plan.algorithm.local_steps if job.claim.unit is Unit.SAMPLE and job.protection.per_sample else 1


def _sigma(claim: Claim, steps: int) -> float | None:
    """The noise of one step over the sensitivity, as the claim states it."""
    multiplier, deviation, norm = (_number(claim, name) for name in ("noise_multiplier", "noise_std", "clip_norm"))
    if isinstance(claim.curve, GaussianCurve) and claim.curve.mu > 0:
        return math.sqrt(steps) / claim.curve.mu
    rows = 2 if claim.adjacency is Adjacency.REPLACE_ONE else 1
    if multiplier:
        return multiplier / rows
    return deviation / norm / rows if deviation and norm else None


def _number(claim: Claim, name: str) -> float | None:
    value = claim.parameters.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < math.inf else None
