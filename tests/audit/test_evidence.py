"""One score of each run is a trial; several of one run are not."""

from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.evidence import (
    CandidateScores,
    Design,
    LabelCounts,
    MembershipScores,
    Reconstructions,
    Setting,
    VoteScores,
)
from fedassay.audit.observer import UPLOADS
from fedassay.audit.threshold import FixedThreshold


def test_candidates_split_by_the_truth(setting_of):
    scores = CandidateScores(np.array([3.0, 1.0, 2.0]), setting_of()).against(np.array([True, False, True]))
    np.testing.assert_array_equal(scores.member, [3.0, 2.0])
    np.testing.assert_array_equal(scores.nonmember, [1.0])
    assert scores.setting == setting_of()


def test_evidence_is_a_copy_that_cannot_be_changed(setting_of):
    given = np.array([1.0, 2.0], dtype=np.float32)
    scores = MembershipScores(given, [0.0], setting_of())
    given[0] = 9
    assert scores.member[0] == 1
    assert scores.member.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        scores.member[0] = 9


@pytest.mark.parametrize(
    ("member", "says"),
    [
        ([np.nan, 1.0], "member must be finite, got 1 of 2"),
        ([np.inf], "member must be finite, got 1 of 1"),
        ([], r"member must not be empty, got shape \(0,\)"),
        ([[1.0]], r"member must have 1 dimension\(s\), got shape \(1, 1\)"),
        ([2**60 + 1, 0], r"whole numbers up to 2\^53\), got 1152921504606846977"),
        (np.array([2**53 + 1]), r"whole numbers up to 2\^53\), got 9007199254740993"),
        ([0.5, 2**60 + 1], r"whole numbers up to 2\^53\), got 1152921504606846977"),
        ([10**400, 0], r"whole numbers up to 2\^53\), got 1000"),
        (1.0, r"member must have 1 dimension\(s\), got shape \(\)"),
    ],
)
def test_scores_that_cannot_be_counted_are_refused(setting_of, member, says):
    with pytest.raises(ValueError, match=says):
        MembershipScores(member, [0.0], setting_of())


def test_a_truth_that_does_not_fit_is_refused(setting_of):
    candidates = CandidateScores([1.0, 2.0], setting_of())
    with pytest.raises(ValueError, match=r"member .*must be booleans of shape .*, got .* of int64"):
        candidates.against(np.array([0, 1]))
    with pytest.raises(ValueError, match=r"member .*must be booleans"):
        candidates.against(np.array([True]))
    with pytest.raises(ValueError, match="nonmember must not be empty"):
        candidates.against(np.array([True, True]))


def test_images_lie_between_zero_and_one(setting_of):
    kept = Reconstructions(np.ones((2, 3, 4, 4)), np.array([1, 2]), setting_of())
    assert kept.labels.dtype == np.int64
    for images in (np.full((1, 1, 2, 2), 1.1), np.full((1, 1, 2, 2), -0.1)):
        with pytest.raises(ValueError, match=r"images must lie in \[0, 1\]"):
            Reconstructions(images, None, setting_of())
    with pytest.raises(ValueError, match="images must have 4"):
        Reconstructions(np.ones((3, 4, 4)), None, setting_of())
    with pytest.raises(ValueError, match=r"labels must hold 2 whole numbers"):
        Reconstructions(np.ones((2, 3, 4, 4)), np.array([1.0, 2.0]), setting_of())


def test_label_counts_are_not_negative(setting_of):
    assert LabelCounts([[1, 0, 2.5]], setting_of()).counts.shape == (1, 3)
    with pytest.raises(ValueError, match="counts must be >= 0, got -1"):
        LabelCounts([[1, -1]], setting_of())
    with pytest.raises(ValueError, match="counts must have 2"):
        LabelCounts([1, 1], setting_of())


def test_a_setting_takes_names_and_refuses_unknown_ones(setting_of):
    assert setting_of(unit="client", adjacency="add_remove", design="independent") == setting_of()
    assert setting_of().to_dict() == {
        "unit": "client",
        "adjacency": "add_remove",
        "observer": "global_models",
        "rounds": 20,
        "design": "independent",
    }
    with pytest.raises(ValueError, match=r"design must be independent, .*, got 'independant'"):
        setting_of(design="independant")
    with pytest.raises(ValueError, match="rounds must be a whole number >= 1, got 0"):
        setting_of(rounds=0)


@pytest.mark.parametrize(
    ("history", "says"),
    [
        (((1, [1.0]),), r"must hold arrays of shape \(2,\) after 1 to 20 rounds, got shape \(1,\) after 1"),
        (((21, [1.0, 2.0]),), "after 1 to 20 rounds, got .* after 21"),
        (((2, [1.0, 2.0]), (2, [1.0, 2.0])), r"in ascending order of rounds, got \[2, 2\]"),
        (((1, [np.nan, 2.0]),), "history after 1 rounds must be finite"),
    ],
)
def test_a_history_is_of_the_same_candidates_in_the_order_of_the_rounds(setting_of, history, says):
    with pytest.raises(ValueError, match=says):
        CandidateScores([1.0, 2.0], setting_of(rounds=20), history=history)


def test_scores_of_votes_are_finite_and_one_per_query_and_class(setting_of):
    scores = VoteScores(np.array([[0, 1], [2, 0]]), setting_of())
    assert scores.values.dtype == np.float64
    with pytest.raises(ValueError, match="values must be finite"):
        VoteScores(np.array([[0.0, -np.inf]]), setting_of())
    with pytest.raises(ValueError, match=r"2 dimension\(s\)"):
        VoteScores(np.zeros(3), setting_of())


SETTING = replace(Setting.claimed(Claim.stated(1.0, observer="final_model", rounds=3)), design=Design.CLUSTERED)


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
