import numpy as np
import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import CandidateScores, Design, MembershipScores, Setting
from fedassay.audit.metrics import ScoresByRun, run_weights
from fedassay.audit.observer import FINAL_MODEL


def setting(design):
    return Setting(unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=FINAL_MODEL, rounds=1, design=design)


def test_scores_without_runs_are_a_run_each():
    sides = ScoresByRun.of([1.0, 2.0], [0.0])
    assert sides.runs == 3
    assert not sides.has_mixed_runs


def test_runs_with_both_sides_are_dealt_in_turn_and_others_stay():
    # Runs 1, 4 and 6 have both sides: 1 and 6 give their non-members, 4 its members; 2 and 3 have one side only.
    sides = ScoresByRun.of([0.1, 0.2, 0.4, 0.6], [1.1, 1.3, 1.4, 1.6], [1, 2, 4, 6], [1, 3, 4, 6])
    assert (sides.runs, sides.has_mixed_runs) == (5, True)
    assert sides.one_side_per_run.member.tolist() == [0.2, 0.4]
    assert sides.one_side_per_run.nonmember.tolist() == [1.1, 1.3, 1.6]
    assert not sides.one_side_per_run.has_mixed_runs


def test_one_run_of_both_sides_cannot_be_dealt():
    assert ScoresByRun.of([1.0], [0.0], [7], [7]).one_side_per_run is None


def test_every_run_weighs_one():
    assert run_weights(np.array([3, 1, 3, 3])).tolist() == [1 / 3, 1, 1 / 3, 1 / 3]


def test_evidence_is_grouped_by_its_design():
    scores = ([1.0, 2.0, 3.0], [0.0, 0.5])
    assert ScoresByRun.of_evidence(MembershipScores(*scores, setting(Design.INDEPENDENT))).runs == 5
    assert ScoresByRun.of_evidence(MembershipScores(*scores, setting(Design.CLUSTERED))).runs == 1
    assert ScoresByRun.of_evidence(MembershipScores(*scores, setting(Design.ONE_RUN))).runs == 1
    grouped = MembershipScores(*scores, setting(Design.CLUSTERED), np.array([0, 1, 1]), np.array([0, 2]))
    assert ScoresByRun.of_evidence(grouped).runs == 3


def test_the_runs_of_candidates_follow_them_to_their_side():
    given = CandidateScores([4.0, 1.0, 3.0], setting(Design.CLUSTERED), np.array([5, 6, 7]))
    sides = ScoresByRun.of_evidence(given.against(np.array([True, False, True])))
    assert (sides.member_runs.tolist(), sides.nonmember_runs.tolist()) == ([5, 7], [6])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (([], [1.0]), "member must not be empty"),
        (([1.0], []), "nonmember must not be empty"),
        (([1.0, np.nan], [1.0]), "member must be finite, got 1 of 2"),
        (([1.0], [np.inf]), "nonmember must be finite, got 1 of 1"),
        (([[1.0]], [1.0]), "member must have 1 dimension"),
        (([1.0], [0.0], [1], None), "both or not at all"),
        (([1.0], [0.0], [1, 2], [1]), r"member_runs must hold 1 whole numbers"),
        (([1.0], [0.0], [1], [0.5]), r"nonmember_runs must hold 1 whole numbers"),
    ],
)
def test_what_is_no_score_or_no_run_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        ScoresByRun.of(*given)


def test_independent_trials_cannot_share_a_run():
    with pytest.raises(ValueError, match="must come from its own run"):
        MembershipScores([1.0], [0.0], setting(Design.INDEPENDENT), np.array([3]), np.array([3]))
    with pytest.raises(ValueError, match="both or not at all"):
        MembershipScores([1.0], [0.0], setting(Design.CLUSTERED), np.array([3]))
