"""Shadow jobs: the attacks of a trial that look at many federations, taken out of it and grouped by how many."""

from dataclasses import replace

from .cells import ShadowJob, TrialJob


def own_part(trial: TrialJob) -> TrialJob:
    """The trial with those attacks alone that look at its one federation."""
    return replace(trial, attacks=tuple(item for item in trial.attacks if item.entry.shadows is None))


def shadow_jobs(trial: TrialJob) -> list[ShadowJob]:
    """One job for all attacks on as many federations: these are trained once for all of them."""
    counts = sorted({item.entry.shadows for item in trial.attacks if item.entry.shadows is not None})
    return [
        ShadowJob(
            federation=trial.federation,
            change=trial.change,
            protection=trial.protection,
            seed=trial.seed,
            count=count,
            attacks=tuple(item for item in trial.attacks if item.entry.shadows == count),
        )
        for count in counts
    ]
