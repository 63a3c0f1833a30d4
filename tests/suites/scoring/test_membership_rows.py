"""Scores of membership guesses against scikit-learn, by hand, and against what may not be printed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import CandidateScores, Design, MembershipScores, Setting
from fedassay.audit.metrics import ScoresByRun, area, area_interval, joint_statement, tpr_at
from fedassay.audit.observer import FINAL_MODEL, UPLOADS
from fedassay.fl.candidates import Candidates, PlantedCandidates, plant_candidates
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.partitions import Dirichlet, Shards
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from fedassay.suites.results.cell import Cell
from fedassay.suites.results.store import Store
from fedassay.suites.scoring.membership_rows import (
    CountedScores,
    all_scores,
    auc,
    balanced_accuracy,
    counted_scores,
    score_membership,
)
from hypothesis import given
from hypothesis import strategies as st
from row_facts import FACTS
from sklearn.metrics import roc_auc_score, roc_curve

SETTING = Setting(
    unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=FINAL_MODEL, rounds=1, design=Design.CLUSTERED
)
any_scores = st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=30)


def scores(member, nonmember):
    return MembershipScores(member, nonmember, SETTING)


def truth_and_values(given):
    truth = np.concatenate([np.ones(len(given.member)), np.zeros(len(given.nonmember))])
    return truth, np.concatenate([given.member, given.nonmember])


@given(any_scores, any_scores)
def test_the_area_is_scikit_learns_at_any_scale(member, nonmember):
    given = scores(member, nonmember)
    assert auc(given) == pytest.approx(roc_auc_score(*truth_and_values(given)), abs=1e-12)


@pytest.mark.parametrize(
    ("member", "nonmember", "area", "accuracy"),
    [
        ([3, 4], [1, 2], 1.0, 1.0),
        ([1, 2], [3, 4], 0.0, 0.0),
        ([1, 1], [1, 1], 0.5, 0.5),
        ([2, 3, 4], [1, 2, 3], 7 / 9, 2 / 3),  # Cut 2.5: two of three on both sides.
        ([5, 1], [2, 3], 0.5, 0.5),  # Cut 2.5: one of two on both sides.
        ([4, 4, 4], [1], 1.0, 0.75),  # Cut 4: members tie with it, half each; the non-member lies below.
        ([2, 2], [1, 2], 0.75, 0.625),  # Cut 2: (1/2 + (1 + 1/2) / 2) / 2.
    ],
)
def test_area_and_balanced_accuracy_by_hand(member, nonmember, area, accuracy):
    given = scores(member, nonmember)
    assert auc(given) == pytest.approx(area)
    assert balanced_accuracy(given) == pytest.approx(accuracy)


@pytest.mark.parametrize("nonmembers", [1000, 1099, 2900, 5700])
def test_the_threshold_is_the_lowest_that_lets_one_non_member_in_a_hundred_through(nonmembers):
    outside = np.arange(nonmembers, dtype=float)
    allowed = nonmembers // 100
    just_above, just_at = nonmembers - 1 - allowed + 0.5, nonmembers - 1 - allowed
    assert tpr_at(np.array([just_above]), outside, 0.01) == 1.0
    assert tpr_at(np.array([float(just_at)]), outside, 0.01) == 0.0


def test_the_rate_at_low_false_alarms_is_on_scikit_learns_curve():
    rng = np.random.default_rng(0)
    given = scores(rng.normal(1, 1, 700).round(1), rng.normal(0, 1, 1500).round(1))
    fpr, tpr, _ = roc_curve(*truth_and_values(given), drop_intermediate=False)
    assert tpr_at(given.member, given.nonmember, 0.01) == pytest.approx(tpr[fpr <= 0.01].max())


@pytest.fixture
def cell():
    return Cell(cell_id="c", facts=FACTS | {"seed": 0})


@pytest.mark.parametrize(
    ("count", "estimated"),
    [
        (999, []),
        (1000, ["tpr_at_fpr_0.01_estimate"]),
        (10_000, ["tpr_at_fpr_0.01_estimate", "tpr_at_fpr_0.001_estimate"]),
    ],
)
def test_of_one_run_rates_at_low_false_alarms_are_point_estimates(tmp_path, cell, count, estimated):
    member = np.arange(2 * count) % 2 == 0
    rows = score_membership(cell, all_scores(CandidateScores(np.arange(2.0 * count), SETTING), member), Store(tmp_path))
    assert [row.metric for row in rows] == ["auc", "balanced_accuracy", *estimated]
    assert {row.n for row in rows} == {2 * count}
    assert {row.direction for row in rows} == {"higher_leaks"}
    for row in rows[2:]:
        assert row.unit == "probability, point estimate"
        assert row.reason.startswith("point estimate: there are 0 independent runs")
        assert (row.ci_low, row.ci_level) == (None, None)


def test_the_interval_of_one_run_states_that_it_is_of_this_run(tmp_path, cell):
    rng = np.random.default_rng(0)
    member = np.arange(200) % 2 == 0
    given = CandidateScores(rng.normal(member, 1), SETTING)
    area = score_membership(cell, all_scores(given, member), Store(tmp_path))[0]
    alone = area_interval(ScoresByRun.of(given.values[member], given.values[~member]))
    assert (area.ci_low, area.ci_high, area.ci_level) == (alone.low, alone.high, 0.95)
    assert "holds for this run alone" in area.ci_method


def runs_of_two(count, shift, seed=0):
    """Every run has a member and a non-member among its candidates."""
    rng, member = np.random.default_rng(seed), np.arange(2 * count) % 2 == 0
    return CandidateScores(rng.normal(shift * member, 1), SETTING, np.arange(2 * count) // 2), member


def test_scores_of_several_runs_are_stated_by_their_number(tmp_path, cell):
    given, member = runs_of_two(200, 3.0)
    rows = {row.metric: row for row in score_membership(cell, all_scores(given, member), Store(tmp_path))}
    assert list(rows) == ["auc", "balanced_accuracy", "tpr_at_fpr_0.1"]
    assert rows["auc"].ci_method == "DeLong interval over runs, on the logit scale"
    said = joint_statement(ScoresByRun.of_evidence(given.against(member)), 0.1)
    row = rows["tpr_at_fpr_0.1"]
    assert (row.ci_low, row.ci_high, row.ci_level) == (said.tpr_low, 1.0, 0.95)
    assert row.reason.endswith("from 100 + 100 independent runs")
    assert row.unit == "probability"


@pytest.mark.parametrize(
    ("pairs", "stated", "estimated"),
    [
        (19, [], []),
        (1000, ["tpr_at_fpr_0.02"], ["tpr_at_fpr_0.01_estimate"]),
        (2000, ["tpr_at_fpr_0.01"], []),
        (4000, ["tpr_at_fpr_0.01", "tpr_at_fpr_0.005"], []),
    ],
)
def test_which_rates_so_many_runs_allow(tmp_path, cell, pairs, stated, estimated):
    given, member = runs_of_two(pairs, 1.0)
    rows = [row.metric for row in score_membership(cell, all_scores(given, member), Store(tmp_path))]
    assert rows == ["auc", "balanced_accuracy", *stated, *estimated]


def test_the_runs_are_kept_beside_the_scores(tmp_path, cell):
    given, member = runs_of_two(3, 0.0)
    store = Store(tmp_path)
    kept = store.load_arrays(score_membership(cell, all_scores(given, member), store)[0].artifact)
    assert kept["member_runs"].tolist() == kept["nonmember_runs"].tolist() == [0, 1, 2]


def test_constant_scores_find_no_member_and_have_no_interval(tmp_path, cell):
    member = np.arange(4000) % 2 == 0
    rows = score_membership(cell, all_scores(CandidateScores(np.zeros(4000), SETTING), member), Store(tmp_path))
    assert {row.metric: row.value for row in rows} == {
        "auc": 0.5,
        "balanced_accuracy": 0.5,
        "tpr_at_fpr_0.01_estimate": 0.0,
    }
    assert rows[0].ci_low is None


@pytest.mark.parametrize("everybody", [True, False])
def test_one_class_absent_is_an_error(tmp_path, cell, everybody):
    with pytest.raises(ValueError, match="member must not be empty"):
        score_membership(cell, all_scores(CandidateScores([1.0, 2.0], SETTING), np.full(2, everybody)), Store(tmp_path))


def test_the_scores_are_kept_by_side(tmp_path, cell):
    member = np.array([True, False, False, True])
    store = Store(tmp_path)
    rows = score_membership(cell, all_scores(CandidateScores([4.0, 1.0, 3.0, 2.0], SETTING), member), store)
    kept = store.load_arrays(rows[0].artifact)
    assert kept["member"].tolist() == [4.0, 2.0]
    assert kept["nonmember"].tolist() == [1.0, 3.0]
    assert [row.value for row in rows] == [0.75, 0.5]


def test_what_was_known_after_each_round_is_kept_beside_the_rows(tmp_path, cell):
    """After one round the member stands last, after two it is level with one of two, after three above both."""
    setting = replace(SETTING, rounds=3)
    history = ((1, [0.0, 1.0, 2.0]), (2, [1.0, 1.0, 0.0]), (3, [5.0, 1.0, 0.0]))
    evidence = CandidateScores([5.0, 1.0, 0.0], setting, history=history)
    found = all_scores(evidence, np.array([True, False, False]))
    score_membership(cell, found, Store(tmp_path))
    lines = (tmp_path / "cells" / "c" / "rounds.csv").read_text().splitlines()
    assert lines[0] == "round,auc,auc_low,auc_high"
    assert [line.split(",")[:2] for line in lines[1:]] == [["1", "0.0"], ["2", "0.75"], ["3", "1.0"]]


CANDIDATE_SETTING = Setting(
    unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=UPLOADS, rounds=1, design=Design.CLUSTERED
)
SHOWN = Candidates(images=torch.zeros(4, 1, 1, 1), labels=torch.zeros(4).long(), clients=(5, 7))
PROBE = PlantedCandidates(shown=SHOWN, holder=np.array([5, -1, 7, -1]), sample=np.array([3, -1, 0, -1]))


def test_a_clients_own_samples_and_outsiders_at_every_client_count_and_no_others_samples():
    found = counted_scores(CandidateScores(np.arange(8.0), CANDIDATE_SETTING), PROBE)
    # Client 5's answers are 0..3, client 7's 4..7; candidate 2 at client 5 and 0 at client 7 are another's.
    assert found.scores.values.tolist() == [0, 1, 3, 5, 6, 7]
    assert found.member.tolist() == [True, False, False, False, True, False]
    assert found.candidate.tolist() == [0, 1, 3, 1, 2, 3]
    assert found.given_the_run.member.tolist() == [0, 6]
    assert found.given_the_run.nonmember.tolist() == [1, 3, 5, 7]
    assert found.given_the_run.nonmember_runs.tolist() == [1, 3, 1, 3]


def test_of_the_history_the_same_answers_count():
    setting = replace(CANDIDATE_SETTING, rounds=2)
    found = counted_scores(CandidateScores(np.arange(8.0), setting, history=((1, -np.arange(8.0)),)), PROBE)
    ((rounds, sides),) = found.round_by_round
    assert rounds == 1
    assert (sides.member.tolist(), sides.nonmember.tolist()) == ([0, -6], [-1, -3, -5, -7])


def test_of_one_score_a_candidate_all_count_once():
    found = counted_scores(CandidateScores(np.arange(4.0), CANDIDATE_SETTING), PROBE)
    assert found.member.tolist() == [True, False, True, False]
    assert found.candidate.tolist() == [0, 1, 2, 3]


def test_an_outsider_that_stands_for_one_client_counts_there_alone():
    found = counted_scores(
        CandidateScores(np.arange(8.0), CANDIDATE_SETTING), replace(PROBE, stands_for=np.array([-1, 7, -1, 5]))
    )
    # Client 5's answers are 0..3, client 7's 4..7; candidate 3 stands for the one, candidate 1 for the other.
    assert found.scores.values.tolist() == [0, 3, 5, 6]
    assert found.member.tolist() == [True, False, False, True]
    assert found.candidate.tolist() == [0, 3, 1, 2]


SKEWED = [Shards(per_client=2), Dirichlet(alpha=0.3)]


@pytest.fixture(scope="module")
def dealt():
    """(partition) -> 1,800 samples of ten labels with five clients, and 200 outsiders."""
    labels = torch.arange(2000) % 10
    data = Dataset(
        name="labels",
        train_images=torch.zeros(2000, 1, 1, 1),
        train_labels=labels,
        test_images=torch.zeros(10, 1, 1, 1),
        test_labels=labels[:10],
        classes=10,
    )
    return lambda partition: build_task(data, model="logistic", partition=partition, clients=5, streams=Streams(0))


def by_label(task, clients, *, count=12):
    """AUC of who looks at nothing but how often a label occurs with a client; of the sum over clients as well."""
    planted = plant_candidates(task, count=count, clients=clients, rng=Streams(0).generator("candidates"))
    often = np.stack([np.bincount(task.labels[task.parts[client]], minlength=10) for client in clients])
    scores = often[:, planted.shown.labels].astype(np.float64)
    tables = (scores.reshape(-1), scores.sum(0))
    return [area(counted_scores(CandidateScores(table, CANDIDATE_SETTING), planted).given_the_run) for table in tables]


@pytest.mark.parametrize("partition", SKEWED)
@pytest.mark.parametrize("clients", [[3], range(5)])
def test_a_label_alone_reveals_nothing_of_membership_under_label_skew(partition, clients, dealt):
    assert by_label(dealt(partition), clients) == pytest.approx([0.5, 0.5], abs=1e-12)


@pytest.mark.parametrize("partition", SKEWED)
def test_against_outsiders_of_any_label_it_revealed_much(partition, dealt):
    """The planted bug: what the client's labels are was read as who its members are."""
    assert by_label(replace(dealt(partition), exchangeable="all"), range(5))[0] > 0.75


def test_any_other_number_of_scores_is_refused():
    with pytest.raises(
        ValueError, match="must return 4 scores, one per candidate, or 8, one per client and candidate, got 5"
    ):
        counted_scores(CandidateScores(np.arange(5.0), CANDIDATE_SETTING), PROBE)


def answered(member, nonmember, copies=1):
    """Each score ``copies`` times over, as one candidate's."""
    scores = np.repeat(np.r_[member, nonmember], copies)
    truth = np.repeat(np.r_[np.ones(len(member)), np.zeros(len(nonmember))], copies) == 1
    return CountedScores(
        scores=CandidateScores(scores, CANDIDATE_SETTING),
        member=truth,
        candidate=np.repeat(np.arange(len(scores) // copies), copies),
    )


def test_asking_the_same_thing_ten_times_does_not_narrow_the_interval():
    rng = np.random.default_rng(1)
    member, nonmember = rng.normal(0.5, 1, 12), rng.normal(0, 1, 15)
    once, tenfold = (area_interval(answered(member, nonmember, copies).given_the_run) for copies in (1, 10))
    assert (tenfold.low, tenfold.high) == pytest.approx((once.low, once.high), abs=1e-12)
