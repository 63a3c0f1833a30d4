"""Shadow jobs: the attacks of a trial that look at many federations, taken out of it and grouped by how many; and the
claims that what they say of one of these federations is evidence about.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.evidence import Design, Setting
from ...audit.observer import FINAL_MODEL
from ...audit.scope import beyond_all
from ..config.resolve import task_of
from ..jobs.cells import AttackCell, PlannedClaim, ShadowJob, TrialJob


@dataclass(frozen=True, kw_only=True)
class Hearing:
    """A claim that was signed, and the attacks on shadows of one seed that speak about it; ``candidates``: how many
    samples stand in question; ``setting``: what scores of them are evidence of.
    """

    signed: PlannedClaim
    setting: Setting
    attacks: tuple[AttackCell, ...]
    candidates: int
    seed: int


def own_part(trial: TrialJob) -> TrialJob:
    """The trial with those attacks alone that look at its one federation."""
    return replace(trial, attacks=tuple(item for item in trial.attacks if item.entry.shadows is None))


def shadow_jobs(trial: TrialJob, claims: Sequence[Claim]) -> list[ShadowJob]:
    """One job for all attacks on as many federations: these are trained once for all of them. ``claims``: what is
    signed of the trial's plan.
    """
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
        )
        for count in counts
    ]


def hearings(signed: Sequence[PlannedClaim], jobs: Sequence[ShadowJob]) -> list[Hearing]:
    """The claims that evidence of one shadow federation speaks about, each with all attacks that are not null, on the
    first seed that signs it: chosen before anything has run.
    """
    found = []
    for one in signed:
        asked = [job for job in jobs if _about(job) == (one.federation, one.defense) and _signs(job, one.claim)]
        if not asked or beyond_all(one.claim, setting := evidence_setting(asked[0])):
            continue
        seed, federation = asked[0].seed, asked[0].federation
        registered = [item for job in asked if job.seed == seed for item in job.attacks]
        attacks = tuple(item for item in registered if not item.entry.attack.null)
        if attacks:
            candidates = sum(task_of(federation, seed).sizes)
            found.append(Hearing(signed=one, setting=setting, attacks=attacks, candidates=candidates, seed=seed))
    return found


def evidence_setting(job: ShadowJob) -> Setting:
    """What scores of all samples of one federation are evidence of, where each is there by a fair coin of its own."""
    return Setting(
        unit=Unit.SAMPLE,
        adjacency=Adjacency.ADD_REMOVE,
        observer=FINAL_MODEL,
        rounds=job.federation.rounds,
        design=Design.ONE_RUN,
    )


def _about(job: ShadowJob) -> tuple[str, str]:
    facts = job.cells[0].facts
    return facts["federation"], facts["defense"]


def _signs(job: ShadowJob, claim: Claim) -> bool:
    return claim.claim_id in {other.claim_id for other in job.claims}
