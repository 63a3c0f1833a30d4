"""Group attacks that need equally many shadow federations, and find the claims that these attacks can audit."""

from collections.abc import Sequence
from dataclasses import replace

from ...audit.claim import Claim
from ..audits.audit_method import AttackMethod
from ..config.resolve import task_of
from ..jobs.planned_audit import AttackedFederation
from ..jobs.planned_claim import PlannedClaim
from ..jobs.trial_job import ShadowJob, TrialJob


def own_part(trial: TrialJob) -> TrialJob:
    """Return the job without its attacks on shadow federations."""
    return replace(trial, attacks=tuple(item for item in trial.attacks if item.entry.shadows is None))


def shadow_jobs(trial: TrialJob, claims: Sequence[Claim]) -> list[ShadowJob]:
    """Return one job for all attacks that need the same number of shadow federations, which are trained once for all of
    them.

    Args:
        claims: those stated of the trial's plan.
    """
    # Sorted, because a set has no order and the order of the rows must not change from run to run.
    counts = sorted({item.entry.shadows for item in trial.attacks if item.entry.shadows is not None})
    return [
        ShadowJob(
            federation=trial.federation,
            change=trial.change,
            protection=trial.protection,
            claims=tuple(claims),
            seed=trial.seed,
            count=count,
            attacks=tuple(item for item in trial.attacks if item.entry.shadows == count),
            device=trial.device,
        )
        for count in counts
    ]


def attacked_federation(
    stated: PlannedClaim, jobs: Sequence[ShadowJob], method: AttackMethod
) -> AttackedFederation | None:
    """Return the shadow federation on which attacks give evidence about a claim, together with these attacks; None if
    there is none.

    The federation is that of the first seed that states the claim, so it is chosen before anything has run.
    """
    about = [job for job in jobs if _about(job) == (stated.federation, stated.defense) and _states(job, stated.claim)]
    if not about or not method.covers(stated.claim, about[0]):
        return None
    # One seed only: the theorem counts the coins of a single run.
    seed = about[0].seed
    attacks = method.registered([job for job in about if job.seed == seed])
    if not attacks:
        return None
    # Every sample of the federation is a candidate: each is a member by its own coin.
    candidates = sum(task_of(about[0].federation, seed).sizes)
    return AttackedFederation(setting=method.setting(about[0]), attacks=attacks, candidates=candidates, seed=seed)


def _about(job: ShadowJob) -> tuple[str, str]:
    facts = job.cells[0].facts
    return facts["federation"], facts["defense"]


def _states(job: ShadowJob, claim: Claim) -> bool:
    return claim.claim_id in {other.claim_id for other in job.claims}
