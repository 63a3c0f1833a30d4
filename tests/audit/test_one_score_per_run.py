"""One score of each run is a trial; several of one run are not."""

from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.evidence import CandidateScores, Design, MembershipScores, Setting
from fedassay.audit.observer import FINAL_MODEL, UPLOADS
from fedassay.audit.threshold import FixedThreshold

SETTING = Setting(
    unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=FINAL_MODEL, rounds=3, design=Design.CLUSTERED
)


def runs(*values, setting=SETTING):
    return [CandidateScores(np.atleast_1d(value), setting) for value in values]


def test_one_score_per_run_is_an_independent_trial():
    scores = MembershipScores.one_per_run(runs(3.0, 4.0), runs(1.0, 2.0, 0.0))
    assert scores.setting == replace(SETTING, design=Design.INDEPENDENT)
    assert (scores.member.tolist(), scores.nonmember.tolist()) == ([3.0, 4.0], [1.0, 2.0, 0.0])
    assert (scores.member_runs, scores.nonmember_runs) == (None, None)
    measured = clopper_pearson(scores, delta=0.0, alpha=0.05, threshold=FixedThreshold(2.5))
    assert (measured.n1, measured.n0, measured.false_positives, measured.false_negatives) == (2, 3, 0, 0)


@pytest.mark.parametrize(
    ("member", "nonmember", "says"),
    [
        ([], runs(1.0), "member must hold at least one run, got none"),
        (runs(1.0), [], "nonmember must hold at least one run, got none"),
        (runs(1.0), runs(1.0, [1.0, 2.0]), "nonmember must hold one score per run.*got 2 from run 1"),
        (runs(1.0), runs(1.0, setting=replace(SETTING, observer=UPLOADS)), r"runs must have one setting \(.*\), got 2"),
    ],
)
def test_runs_that_are_no_independent_trials_are_refused(member, nonmember, says):
    with pytest.raises(ValueError, match=says):
        MembershipScores.one_per_run(member, nonmember)


def test_clustered_scores_are_refused_with_what_to_give_instead():
    clustered = CandidateScores(np.arange(4.0), SETTING).against(np.array([True, False, True, False]))
    with pytest.raises(ValueError, match=r"clustered: give one score of each of many runs.*one_per_run"):
        clopper_pearson(clustered, delta=0.0, alpha=0.05, threshold=FixedThreshold(2.5))
