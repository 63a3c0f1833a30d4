"""Add a canary update along a weight that no data changes, and score runs by the published noise (Nasr et al. 2023).

For a defense that publishes no law, the noise that its claim states scores the canary.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...audit.binomial import ErrorCounts, largest_certifiable_epsilon
from ...audit.check import ARRIVES, CheckResult
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.curve import GaussianCurve
from ...audit.estimators.clopper_pearson import clopper_pearson_of_counts
from ...audit.estimators.release_tests import GaussianRelease, ReleaseTest, audit_release_tests, release_scores
from ...audit.evidence import MembershipScores, Projections, Setting
from ...audit.finding import Weakness, enough_words, refutes, weak_beyond
from ...audit.measurement import Measurement
from ...audit.observer import FINAL_MODEL, SHUFFLED, UPLOADS
from ...audit.power import Look
from ...checks.canaries import CANARIES
from ...checks.neighbours import Inputs, ReplaySetup, replay_setup
from ...checks.noise_replicas import off_centre, replica_checks
from ...checks.results import placed
from ...fl.canary import Canary
from ...fl.laws import GaussianLaw, describes_release
from ...fl.plan import Plan
from ...fl.replay import frozen_federation
from ...fl.sampling import Full
from ...fl.task import Task
from ..config.tables.suite import AuditSpec
from ..results.store import Store
from .audit_method import BlockJob, PlannedAudit, Reading, final_look, pooled_replicas, unknown_power
from .canary_replicas import DIRAC, CanaryMethod, canary_for, runs_alone
from .power import designed_tests, detectable_epsilon, replicas_needed, strong_replicas
from .replicas import ALONE, Arms, pooled, replicas_words

_REPLACED_SAMPLE = (Unit.SAMPLE, Adjacency.REPLACE_ONE)

_HARDLY = 0.1
"""Share of the law's shift up to which a canary counts as one that did not reach the release."""


class PlantedCanary(CanaryMethod):
    """An audit method that adds a canary along an unused weight, so that the exact likelihood ratio is known (Nasr et
    al. 2023, section 4).
    """

    attack = "likelihood_ratio"
    precedence = 30
    powered = True

    def audits_with(self, canary: str) -> bool:
        return canary == DIRAC

    def inert(self, audit: AuditSpec) -> int:
        return 1

    def trials(self, job: BlockJob) -> tuple[Arms, Mapping[str, NDArray[Any]]]:
        arms, more = super().trials(job)
        law, canary = job.law, canary_for(job)

        def scaled(arms: Arms) -> Arms:
            if stated_release(job) is None:
                return arms
            # A canary that moves nothing is scored as it is.
            unit = (unit_of(job, canary) if isinstance(canary, Canary) else 0.0) or 1.0
            # A row and its opposite lie half of their distance from the middle, whatever a clip leaves of them.
            middle = 0.5 if job.claim.adjacency is Adjacency.REPLACE_ONE else 0.0
            return [[replace(batch, values=(batch.values - middle) / unit + middle) for batch in arm] for arm in arms]

        arms = scaled(arms)
        # A replaced sample is there without the canary too: under a misplaced law it does not scatter about zero.
        centred = isinstance(law, GaussianLaw) and not law.then
        centred = centred and (job.claim.unit, job.claim.adjacency) != _REPLACED_SAMPLE
        if centred and off_centre(arms[0], partial(runs_alone, job, canary)):
            return scaled(self.alone(job)), {ALONE: np.ones(1)}
        return arms, more

    def measure(self, audit: PlannedAudit, store: Store) -> Reading:
        block = audit.blocks[0]
        law, release = block.release, _scored_by(block)
        member, nonmember = pooled(audit, store)
        if release is None:
            found = self.measure_by_split(audit, member, nonmember)
            return replace(found, measurement=replace(found.measurement, detectable=None))
        claim, last, tests = audit.claim, final_look(audit), _tests_of(audit, release)
        measured = audit_release_tests(
            member,
            nonmember,
            release,
            tests,
            alpha=audit.alpha,
            delta=claim.delta,
            curve=claim.curve,
            epsilon=claim.epsilon,
            witness=self.witness(audit),
        )
        # Without a law it is not known how the release differs from that of a defense with less noise.
        detectable = detectable_epsilon(claim, law, tests, n=last.replicas, alpha=last.alpha) if law else None
        # What an audit can certify that stops because it cannot refute any more is what all of its runs could have.
        ceiling = max(measured.ceiling or 0.0, _most_certified(audit, tests)) if audit.looks else measured.ceiling
        return Reading(
            measurement=replace(measured, detectable=detectable, ceiling=ceiling),
            scores=_scores_read(measured, release, tests, member, nonmember),
        )

    def could_refute(self, audit: PlannedAudit, store: Store) -> bool:
        """Return whether the claim could still be refuted at a later look (interim test), if no test made another error
        in the runs until then.

        Error counts only grow, and every bound falls with more errors: what errorless runs do not refute, no runs do.
        """
        release = _scored_by(audit.blocks[0])
        if release is None or audit.blocks[0].audit.estimator is not None:
            return True
        made, tests = pooled_replicas(audit), _tests_of(audit, release)
        later = [look for look in audit.looks if look.replicas > made]
        sides = pooled(audit, store)
        for test in tests:
            within, out = (release_scores(side.values, release, test.broken, seen=side.seen) for side in sides)
            errors = int(np.count_nonzero(out > test.threshold)), int(np.count_nonzero(within <= test.threshold))
            if any(_refuted_by(audit.claim, sides[0].setting, errors, look, len(tests)) for look in later):
                return True
        return False

    def checks(self, audit: PlannedAudit, store: Store) -> tuple[CheckResult, ...]:
        release = audit.blocks[0].release
        found = super().checks(audit, store)
        if release is None:
            return found
        return (*found, *placed(replica_checks(*pooled(audit, store), release), audit.blocks[0].protection))

    def weakness(self, audit: PlannedAudit, measured: Measurement, checks: Sequence[CheckResult]) -> Weakness:
        # Also a check that could not be made counts: a canary that was never seen has shown nothing.
        missed = next((check for check in checks if check.name == ARRIVES and check.passed is not True), None)
        part = missed is not None and (missed.measured or 0.0) > _HARDLY
        unseen = ""
        if missed is not None and not part:
            unseen = f"the canary hardly reached the release ({missed.words}): plant a canary that reaches it"
            if missed.measured is None:
                unseen = (
                    f"these runs are too few to show whether the canary reached the release ({missed.words}): make "
                    "more runs"
                )
        release = audit.blocks[0].release
        if missed is not None and part:
            # The planned power is that of the law's shift.
            return Weakness(no_power=f"only a part of the canary reached the release ({missed.words})")
        if release is None:
            return Weakness(unseen=unseen, no_power=unknown_power(checks))
        if measured.detectable is not None:
            return Weakness(unseen=unseen, enough=_enough(audit, release, measured))
        no_power = (
            f"these runs could not have refuted the claim, however much noise was missing: they are too few "
            f"({_cost_of_half(audit, release)}), or the published noise distribution does not fit the claim"
        )
        return Weakness(unseen=unseen, no_power=no_power)

    def plan_text(self, audit: PlannedAudit) -> list[str]:
        last, law, release = final_look(audit), audit.blocks[0].release, _scored_by(audit.blocks[0])
        if release is None:
            return super().plan_text(audit)
        tests = _tests_of(audit, release)
        size = f"{replicas_words(audit)}, max certifiable {_most_certified(audit, tests):.2f}"
        if law is None:
            return [
                f"{size}, {self.witness(audit)}: the defense publishes no noise distribution, so runs are scored by "
                "the noise of the claim"
            ]
        found = detectable_epsilon(audit.claim, law, tests, n=last.replicas, alpha=last.alpha)
        power = "UNDERPOWERED unless a check fails: these runs could not refute the claim even without any noise"
        power = power if found is None else f"min detectable {found:.2f}"
        needed = replicas_needed(audit.claim, law, share=0.5, alpha=last.alpha)
        costs = ", ".join(f"{route} {'out of reach' if n is None else f'{n:,}'}" for route, n in needed.items())
        return [
            f"{size}, {power} (power .9 at alpha {last.alpha:.2g})",
            f"replicas per arm needed to find, with power .9, that half of the noise is missing: {costs}",
        ]


def _scored_by(block: BlockJob) -> GaussianRelease | None:
    """The noise by which runs are scored: that of the published law, or else what the claim states."""
    return block.release or stated_release(block)


def _tests_of(audit: PlannedAudit, release: GaussianRelease) -> tuple[ReleaseTest, ...]:
    """The tests that were fixed for all planned runs of an audit."""
    return designed_tests(audit.claim, release, audit.blocks[0].audit, n=final_look(audit).replicas)


def canary_words(length: float) -> str:
    """Return a description of the canary; ``length`` is its norm in multiples of the clip norm."""
    return CANARIES[DIRAC].phrase.format(length=length)


def _refuted_by(claim: Claim, setting: Setting, errors: tuple[int, int], look: Look, tests: int) -> bool:
    counts = ErrorCounts(
        threshold=0.0,
        false_positives=errors[0],
        false_negatives=errors[1],
        n0=look.replicas,
        n1=look.replicas,
        alpha=look.alpha / tests,
    )
    found = clopper_pearson_of_counts(
        counts, setting=setting, delta=claim.delta, threshold_policy="fixed", curve=claim.curve, epsilon=claim.epsilon
    )
    return refutes(claim, found)


def _most_certified(audit: PlannedAudit, tests: Sequence[ReleaseTest]) -> float:
    """The largest bound that all planned runs could prove."""
    last = final_look(audit)
    return largest_certifiable_epsilon(last.replicas, last.replicas, audit.claim.delta, last.alpha / len(tests))


def _cost_of_half(audit: PlannedAudit, release: GaussianRelease) -> str:
    """How many replicas would show half of the noise."""
    needed = replicas_needed(audit.claim, release, share=0.5, alpha=final_look(audit).alpha)
    least = min((n for n in needed.values() if n is not None), default=None)
    return (
        "no number of replicas would show that half of the noise is missing"
        if least is None
        else f"{least:,} replicas per arm are needed to show that half of the noise is missing"
    )


def _enough(audit: PlannedAudit, release: GaussianRelease, measured: Measurement) -> str:
    """How many runs would be no weak test; empty where these are none, where they refute, and where it is not known."""
    claim, last = audit.claim, final_look(audit)
    if (measured.detectable or 0.0) <= weak_beyond(claim.epsilon) or refutes(claim, measured):
        return ""
    needed = strong_replicas(claim, release, audit.blocks[0].audit, made=last.replicas, alpha=last.alpha)
    return "" if needed is None else enough_words(claim, needed)


def _scores_read(
    measured: Measurement,
    release: GaussianRelease,
    tests: Sequence[ReleaseTest],
    member: Projections,
    nonmember: Projections,
) -> MembershipScores:
    """The scores of the test that the measurement reports."""
    # Thresholds are distinct floats from separate simulations, so one identifies its test.
    broken = next(test.broken for test in tests if test.threshold == measured.threshold)
    within, out = (release_scores(side.values, release, broken, seen=side.seen) for side in (member, nonmember))
    return MembershipScores(within, out, member.setting)


METHOD = PlantedCanary()


_FLAT = 1e-3
"""Factor of the gradients of all other rows."""


def stated_release(job: BlockJob) -> GaussianRelease | None:
    """Return the Gaussian noise that the claim states, in units of the sensitivity to the canary. Return None if a
    noise distribution is published, if the claim states no ratio of noise to sensitivity, or if the claim's observer
    receives no single round.
    """
    claim, (task, plan) = job.claim, job.small
    # Thresholds designed for Gaussian noise at delta 0 lie so far out that they miss a release without noise.
    if (
        claim.delta == 0
        # The clients of one user are drawn apart: no single rate describes what is released about it.
        or claim.unit is Unit.USER
        or not job.inert
        or claim.observer.rank == FINAL_MODEL.rank
        or describes_release(job.law)
    ):
        return None
    fewer = job.defense is None and plan.clients < job.own[1].clients
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


def unit_of(job: BlockJob, canary: Canary) -> float:
    """Return how far the canary moves a release in one step, as a share of the canary itself, measured by two runs with
    equal draws; 0 if it does not move the release.
    """
    task, plan = job.small
    setup, steps = replay_setup(task, plan, job.protection, job.claim, seed=job.seed), _steps(job, plan)
    if job.claim.unit is Unit.SAMPLE and steps == 1:
        # As in the audit's runs: sampled lots, and other rows that are hardly there.
        still = frozen_federation(task, plan, rounds=setup.rounds, steepness=_FLAT, seed=job.seed)
        sampled = replace(setup, task=still.task, plan=replace(still.plan, lot=plan.lot))
        # A canary that no lot holds moves nothing.
        return _moved(sampled, plan, canary) or _moved(setup, plan, canary)
    return _moved(setup, plan, canary) / steps


def _moved(setup: ReplaySetup, plan: Plan, canary: Canary) -> float:
    """By how much the canary moves the first release that it moves, over its length; 0 if it moves none."""
    without = None if canary.absent is None else canary
    before, after = setup.run(Inputs(canary=without)), setup.run(Inputs(canary=canary, arm=1))
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
