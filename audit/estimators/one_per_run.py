"""One a run: scores of many runs, one of each, as the independent trials that estimators count."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..evidence import CandidateScores, Design, MembershipScores


def one_a_run(member: Sequence[CandidateScores], nonmember: Sequence[CandidateScores]) -> MembershipScores:
    """``member``: what an attack said of one candidate in each of n1 runs with it; ``nonmember``: in n0 runs without.

    Whoever brings them answers for runs that differ in nothing else but their draws, and share none of these. Raises
    ValueError for a side without runs, a run with several scores or none, and runs of different settings.
    """
    for side, runs in (("member", member), ("nonmember", nonmember)):
        if not runs:
            raise ValueError(f"{side} must hold at least one run, got none")
        for number, run in enumerate(runs):
            if len(run.values) != 1:
                raise ValueError(
                    f"{side} must hold one score a run, for those of one run share its noise; "
                    f"got {len(run.values)} of run {number}"
                )
    settings = {run.setting for run in (*member, *nonmember)}
    if len(settings) != 1:
        raise ValueError(f"runs must be of one setting, got {len(settings)} different ones")
    inside, outside = (np.concatenate([run.values for run in side]) for side in (member, nonmember))
    return MembershipScores(inside, outside, replace(settings.pop(), design=Design.INDEPENDENT))
