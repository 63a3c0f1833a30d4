"""Audit a privacy claim in one run: coins decide which canaries are added, and the number of right guesses bounds
epsilon.

The theorem of Steinke, Nasr, Jagielski (2023) counts the coins of a single federation, that of the first seed.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from ...attacks.attack import Undefined
from ...attacks.canary import CanarySetProjections
from ...audit.arrays import BoolArray, FloatArray
from ...audit.check import CheckResult
from ...audit.claim import Adjacency, Unit
from ...audit.curve import GaussianCurve
from ...audit.estimators.joint_point import best_bound
from ...audit.estimators.one_run_claim import best_of_guesses, guesses_on, measured_by_guesses
from ...audit.estimators.one_run_gaussian import detectable_epsilon, gaussian_canaries
from ...audit.estimators.release_tests import BrokenRelease, release_scores
from ...audit.evidence import CanaryScores, CandidateScores, Design, Projections, Setting
from ...audit.finding import Weakness
from ...audit.measurement import Kind, Measurement
from ...audit.output_file import parsed_json
from ...audit.parts import Spec
from ...audit.supplied.chosen import EstimatorOptions, chosen, measure_canaries
from ...checks.canaries import check_covered
from ...fl.canary import CanarySet
from ...fl.streams import Streams
from ...fl.training.local import Batch
from ..config.tables.suite import AuditSpec
from ..results.store import Store
from .audit_method import BlockJob, BlockMethod, PlannedAudit, Reading, unknown_power
from .case import Case
from .planted_canary import canary_words
from .replicas import SETTING

_GUESSED = 0.1
"""Share of alpha of the guesses where the scores' mean shift is tested too."""


class OneRun(BlockMethod):
    """An audit method that runs one federation with many canaries, each added along its own weight that no training
    data changes.
    """

    attack = "one_run"
    # First: a suite with a single run makes no trials of reports or lots.
    precedence = 0
    design = "one_run"

    def shares(self, replicas: int, seeds: int) -> list[int]:
        # Coins of several federations are not the independent coins of one run that the theorem counts.
        return [1][:seeds]

    def runs(self, replicas: int) -> int:
        return 1

    def inert(self, audit: AuditSpec) -> int:
        # A weight for each: canaries that shared one would show each other's coins.
        return audit.canaries or 1

    def out_of_scope(self, request: Case) -> str:
        if request.claim.unit is Unit.USER:
            return (
                "a one-run audit plants samples or clients, and no users, so this claim is not audited: set "
                'audit.design to "independent"'
            )
        return super().out_of_scope(request)

    def not_made(self, audit: PlannedAudit, store: Store) -> str:
        row = store.cell_records(audit.blocks[0].cell.cell_id)[0]
        return row.reason if row.status == "skipped" else ""

    def run(self, job: BlockJob, store: Store) -> dict[str, Any]:
        plan = job.small[1]
        planted = canary_set_for(job)
        if job.claim.unit is not Unit.SAMPLE:
            _check_runs(job, planted)
        clients = tuple(range(plan.clients, plan.clients + len(planted.coins)))
        senders = (planted.client,) if planted.unit is Unit.SAMPLE else clients
        # Block 0 is the trial's.
        view = job.observed(planted, Batch(block=1, arm=1), senders=senders)
        known = job.knowledge(planted.shown)
        seen = CanarySetProjections().run(view, known, Streams(job.seed).generator("attack canary"))
        store.save_text(job.cell.cell_id, SETTING, json.dumps(seen.setting.to_dict()))
        arrays = {"values": seen.values.astype(np.float32), "seen": seen.seen, "member": planted.coins.numpy()}
        artifact, count = store.save_arrays(job.cell.cell_id, "crowd", arrays), job.audit.canaries
        return {"metric": "canaries", "value": count, "n": count, "unit": "canaries in one run", "artifact": artifact}

    def measure(self, audit: PlannedAudit, store: Store) -> Reading:
        (block,) = audit.blocks
        candidates, coins, _ = self._scored(audit, store)
        # Ties are broken by the same draws for every estimator; no score depends on the coins.
        ties, witness = partial(Streams(block.seed).generator, "guess ties"), self._witness(audit)
        alpha, claim = audit.alpha * (_GUESSED if _gaussian(audit) else 1.0), audit.claim
        measured = measured_by_guesses(claim, candidates, coins, alpha=alpha, rng=ties, witness=witness)
        if _gaussian(audit):
            shown = CanaryScores(candidates.values, coins, candidates.setting)
            levels = {"delta": claim.delta, "alpha": audit.alpha - alpha, "epsilon": claim.epsilon}
            shift = gaussian_canaries(shown, **levels, witness=witness)
            # Guesses also show noise that is none, or not as published. Either test finds what it can.
            found = [one.detectable for one in (shift, measured) if one.detectable is not None]
            best = best_bound([measured, shift] if shift.estimate is None else [shift, measured])
            measured = replace(best, detectable=min(found, default=None))
        return Reading(measurement=measured, scores=candidates.against(coins))

    def measure_by(self, estimator: Spec, audit: PlannedAudit, store: Store) -> Reading:
        (one,) = chosen(estimator, Design.ONE_RUN, ())
        (block,), witness = audit.blocks, self._witness(audit)
        candidates, coins, sums = self._scored(audit, store)
        shown, dimension = candidates, None
        if one.evidence is CandidateScores:
            shown, dimension = self._cosines(block, sums, candidates.setting)
            witness += (
                "; score: cosine of a canary with the release, whose noise has the norm that the defense publishes"
            )
        measured = measure_canaries(
            one,
            shown,
            coins,
            audit.claim,
            alpha=audit.alpha,
            options=EstimatorOptions(dimension=dimension, seed=block.seed),
            guesses=None,
            witness=witness,
        )
        if measured.kind is Kind.ESTIMATE:
            measured = replace(measured, witness=f"{witness}; point estimate of epsilon {measured.estimate}")
        return Reading(measurement=measured, scores=candidates.against(coins))

    def _scored(self, audit: PlannedAudit, store: Store) -> tuple[CandidateScores, BoolArray, FloatArray]:
        """The canaries' scores, the coins that included them, and their projections summed over rounds."""
        (block,) = audit.blocks
        row = store.cell_records(block.cell.cell_id)[0]
        if row.status != "ok":
            raise ValueError(f"the one-run audit's federation of seed {block.seed} failed: {row.reason}")
        arrays = store.load_arrays(row.artifact)
        setting = parsed_json((store.cell_folder(block.cell.cell_id) / SETTING).read_text(encoding="utf-8"))
        seen = Projections(arrays["values"], arrays["seen"], Setting.from_dict(setting))
        values = sums = np.where(seen.seen, seen.values, 0.0).sum(axis=1)
        # The law's likelihood ratio sorts canaries better than a plain sum where rounds are sampled.
        if (release := block.release) is not None:
            values = release_scores(seen.values, release, BrokenRelease(), seen=seen.seen)
        return CandidateScores(values, seen.setting), arrays["member"], sums

    def _cosines(self, block: BlockJob, sums: FloatArray, setting: Setting) -> tuple[CandidateScores, int]:
        """Cosines of the canaries with the sum of all releases, less what is known of them, and its dimension."""
        release, (_, plan) = block.release, block.small
        if release is None:
            raise ValueError(
                "one_shot compares canaries with the noise, but the defense publishes no noise distribution that "
                "fits the claim"
            )
        # Of the known remainder only noise is left, whose norm is sharp in many dimensions.
        deviation = release.sigma * math.sqrt(release.steps * release.rounds)
        dimension = plan.layout.dim
        return CandidateScores(sums / (deviation * math.sqrt(dimension)), setting), dimension

    def _witness(self, audit: PlannedAudit) -> str:
        spec = audit.blocks[0].audit
        return f"one run with {spec.canaries} canaries, each {canary_words(spec.canary_norm)}"

    def weakness(self, audit: PlannedAudit, measured: Measurement, checks: Sequence[CheckResult]) -> Weakness:
        if audit.blocks[0].release is None:
            return Weakness(no_power=unknown_power(checks))
        reason = "one run with so few canaries could not have refuted the claim, however much noise was missing"
        return Weakness(
            no_power=f"{reason}: plant more canaries, use replicas, or check that the published noise distribution "
            "fits the claim"
        )

    def plan_text(self, audit: PlannedAudit) -> list[str]:
        if _gaussian(audit) and audit.blocks[0].audit.estimator is None:
            claim, canaries, alpha = audit.claim, _canaries(audit), audit.alpha * (1 - _GUESSED)
            seen = detectable_epsilon(canaries, epsilon=claim.epsilon, delta=claim.delta, alpha=alpha)
            reach = "UNDERPOWERED" if seen is None else f"min detectable {seen:.2f}"
            size = f"{canaries} canaries in one run, scored by their mean shift under the published Gaussian noise"
            return [f"{size}, {reach} (power .9 at alpha {audit.alpha:.2g})"]
        best = best_of_guesses(audit.claim, _canaries(audit), alpha=audit.alpha)
        size = f"{audit.blocks[0].audit.canaries} canaries in one run, {guesses_text(guesses_planned(audit))}"
        reach = f"min detectable {best.detectable:.2f}" if best.detectable is not None else "UNDERPOWERED"
        certified = f"max certifiable {best.ceiling:.2f}"
        return [f"{size}, {certified}, {reach} (power .9 at alpha {audit.alpha:.2g})"]


def _gaussian(audit: PlannedAudit) -> bool:
    """Whether the scores of canaries are Gaussian by a published law, for a claim of a Gaussian curve: no round samples
    them.
    """
    (block,), claim = audit.blocks, audit.claim
    release = block.release
    sampled = release is None or any(rate < 1 for rate in (release.rate, *release.rates))
    return not sampled and isinstance(claim.curve, GaussianCurve) and claim.delta > 0


def _check_runs(job: BlockJob, planted: CanarySet) -> None:
    """Raise Undefined where the defense does not run with its canaries, which are clients, in one round."""
    one_round = job.changed(claim=replace(job.claim, rounds=1))
    try:
        one_round.observed(planted, Batch(block=1, arm=1), senders=())
    except Exception as error:  # A user's own part may raise anything, as for a client without prepared numbers.
        count, words = len(planted.coins), f"{type(error).__name__}: {error}"
        raise Undefined(f"the defense does not run with {count} more clients, the canaries: {words}") from error


def canary_set_for(job: BlockJob) -> CanarySet:
    """Build the suite's canaries for the claim's unit and adjacency. The fair coins that decide which canaries are
    included have a random stream of their own.

    Raises:
        ValueError: for a unit or adjacency that no canary design covers.
    """
    check_covered(job.claim)
    if job.claim.adjacency is Adjacency.ZERO_OUT:
        raise ValueError(
            "a one-run audit covers only claims under add/remove or replace-one adjacency, got a claim under zero-out "
            'adjacency: set audit.design to "independent"'
        )
    plan = job.small[1]
    coins = Streams(job.seed).generator("canary coins").integers(2, size=plan.layout.inert)
    return CanarySet(
        unit=job.claim.unit,
        length=job.length,
        dim=plan.layout.dim,
        coins=torch.from_numpy(coins == 1),
        replaced=job.claim.adjacency is Adjacency.REPLACE_ONE,
    )


def guesses_planned(audit: PlannedAudit) -> dict[str, int]:
    """Return the number of guesses about the canaries for each estimator; the claim and the suite fix these numbers
    before any run.
    """
    return guesses_on(audit.claim, _canaries(audit), alpha=audit.alpha)


def _canaries(audit: PlannedAudit) -> int:
    canaries = audit.blocks[0].audit.canaries
    if canaries is None:
        raise ValueError("a one-run audit needs the number of canaries: set audit.canaries, got none")
    return canaries


def guesses_text(planned: dict[str, int]) -> str:
    """Format the numbers of guesses, as in ``60 guesses (one_run_fdp) or 44 guesses (one_run)``."""
    return " or ".join(f"{made} guesses ({estimator})" for estimator, made in planned.items())


METHOD = OneRun()
