"""One run: plant a crowd of canaries in one federation, each in or out by a fair coin, and measure what is guessed."""

import json
from dataclasses import dataclass, replace

import numpy as np
import torch

from ...attacks.many_canaries import CanarySetProjections
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.curve import GaussianCurve
from ...audit.estimators.best_bound import best_bound
from ...audit.estimators.guess_plan import planned_guesses
from ...audit.estimators.one_run import epsilon_from_guesses, guess, one_run
from ...audit.estimators.one_run_fdp import detectable_gaussian, one_run_fdp
from ...audit.estimators.release_tests import BrokenRelease, GaussianRelease, release_scores
from ...audit.evidence import CandidateScores, Design, Guesses, MembershipScores, Projections, Setting
from ...audit.measurement import Measurement
from ...fl.canary import CanarySet
from ...fl.plan import Plan
from ...fl.streams import Streams
from ...fl.training.local import Batch
from ..config.canaries import check_covered
from ..jobs.audited_federation import audited_federation, canary_length, knowledge, observed
from ..jobs.cells import AuditCell, BlockJob
from ..results.store import Store

SETTING = "setting.json"
"""What a block's scores are evidence of, as the attack says it."""


@dataclass(frozen=True, kw_only=True)
class OneRunReading:
    """What one run measured, and the scores of its canaries, in and out."""

    measurement: Measurement
    scores: MembershipScores


def run_one_run(job: BlockJob, store: Store) -> str:
    """Run the federation of a one-run audit; keeps its projections, its setting and the coins. Returns the artifact's
    path.
    """
    task, plan = audited_federation(job)
    crowd = canary_set_for(job, plan)
    clients = tuple(range(plan.clients, plan.clients + len(crowd.coins)))
    senders = (crowd.client,) if crowd.unit is Unit.SAMPLE else clients
    # Block 0 is the trial's.
    view = observed(job, task, plan, crowd, Batch(block=1, world=1), senders=senders)
    known = knowledge(job, task, plan, crowd.shown)
    seen = CanarySetProjections().run(view, known, Streams(job.seed).generator("attack canary"))
    store.save_text(job.cell.cell_id, SETTING, json.dumps(seen.setting.to_dict()))
    arrays = {"values": seen.values.astype(np.float32), "seen": seen.seen, "member": crowd.coins.numpy()}
    return store.save_arrays(job.cell.cell_id, "crowd", arrays)


def canary_set_for(job: BlockJob, plan: Plan) -> CanarySet:
    """The suite's number of canaries under the claim's unit and adjacency; the coins have a stream of their own.

    Raises:
        ValueError: for a unit or adjacency that no canary design covers.
    """
    check_covered(job.claim)
    if job.claim.adjacency is Adjacency.ZERO_OUT:
        raise ValueError("one run covers canaries that are there or not, or turned round: zero_out is not audited so")
    coins = Streams(job.seed).generator("canary coins").integers(2, size=plan.layout.inert)
    return CanarySet(
        unit=job.claim.unit,
        length=canary_length(job, plan),
        dim=plan.layout.dim,
        coins=torch.from_numpy(coins == 1),
        replaced=job.claim.adjacency is Adjacency.REPLACE_ONE,
    )


def measure_one_run(audit: AuditCell, release: GaussianRelease | None, store: Store, *, witness: str) -> OneRunReading:
    """The registered estimators' best at alpha over their number.

    The f-DP reading is registered where the claim signs the Gaussian curve that it assumes. No score knows the coins.

    Raises:
        ValueError: if the block failed; the reason is the block's.
    """
    (block,) = audit.blocks
    row = store.cell_records(block.cell.cell_id)[0]
    if row.status != "ok":
        raise ValueError(f"the run of seed {block.seed}: {row.reason}")
    arrays = store.load_arrays(row.artifact)
    setting = json.loads((store.cell_folder(block.cell.cell_id) / SETTING).read_text(encoding="utf-8"))
    seen = Projections(arrays["values"], arrays["seen"], Setting.from_dict(setting))
    values = np.where(seen.seen, seen.values, 0.0).sum(axis=1)
    if release is not None:
        values = release_scores(seen.values, release, BrokenRelease(), seen=seen.seen)
    candidates = CandidateScores(values, seen.setting)
    guesses = {}
    for estimator, made in guesses_planned(audit).items():
        rng = Streams(block.seed).generator("guess ties")
        guesses[estimator] = guess(candidates, arrays["member"], highest=made - made // 2, lowest=made // 2, rng=rng)
    measured = read_guesses(audit.claim, guesses, alpha=audit.alpha, witness=witness)
    return OneRunReading(measurement=measured, scores=candidates.against(arrays["member"]))


def best_case(audit: AuditCell) -> Measurement:
    """What the audit would read if every planned guess were right: its ceiling, and what it could detect."""
    claim, block = audit.claim, audit.blocks[0]
    setting = Setting(
        unit=claim.unit,
        adjacency=claim.adjacency,
        observer=claim.observer,
        rounds=claim.rounds,
        design=Design.ONE_RUN,
    )
    count = block.audit.canaries or 0
    right = {name: Guesses(made, made, count, setting) for name, made in guesses_planned(audit).items()}
    return read_guesses(claim, right, alpha=audit.alpha, witness="")


def guesses_planned(audit: AuditCell) -> dict[str, int]:
    """The registered estimators and how many guesses each will make: known from the claim and the suite alone."""
    canaries = audit.blocks[0].audit.canaries
    if canaries is None:
        raise ValueError("a one-run audit needs a number of canaries")
    return guesses_on(audit.claim, canaries, alpha=audit.alpha)


def guesses_on(claim: Claim, canaries: int, *, alpha: float) -> dict[str, int]:
    """The estimators that this claim allows, together at ``alpha``, and how many guesses on so many canaries each
    makes.
    """
    gaussian = isinstance(claim.curve, GaussianCurve) and claim.delta > 0
    estimators = ("one_run_fdp", "one_run") if gaussian else ("one_run",)
    levels = {"epsilon": claim.epsilon, "delta": claim.delta, "alpha": alpha / len(estimators)}
    return {name: planned_guesses(canaries, gaussian=name == "one_run_fdp", **levels) for name in estimators}


def read_guesses(claim: Claim, guesses: dict[str, Guesses], *, alpha: float, witness: str) -> Measurement:
    """The best of the registered estimators, together at ``alpha``; ``guesses``: what each of them guessed."""
    levels = {"delta": claim.delta, "alpha": alpha / len(guesses), "epsilon": claim.epsilon}
    return best_bound(
        [
            one_run_fdp(made, witness=witness, **levels) if name == "one_run_fdp" else _one_run(made, witness, **levels)
            for name, made in guesses.items()
        ]
    )


def _one_run(guesses: Guesses, witness: str, *, delta: float, alpha: float, epsilon: float) -> Measurement:
    """With what is detectable of Gaussian canaries, not of the worst mechanism, which is guessed far better."""
    measured = one_run(guesses, delta=delta, alpha=alpha, epsilon=epsilon, witness=witness)
    if delta == 0:
        return measured

    def bound(right: int) -> float:
        return epsilon_from_guesses(right, guesses.made, guesses.canaries, delta=delta, alpha=alpha)

    return replace(measured, detectable=detectable_gaussian(guesses, bound, delta=delta, epsilon=epsilon))
