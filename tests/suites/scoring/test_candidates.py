"""Which answers count where every candidate is asked about at every client."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import CandidateScores, Design, Setting
from fedassay.audit.metrics import area, area_interval
from fedassay.audit.observer import UPLOADS
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.partitions import Dirichlet, Shards
from fedassay.fl.probe import CandidateProbe, Candidates, plant_candidates
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from fedassay.suites.scoring.membership_rows import CountedScores, counted_scores

SETTING = Setting(unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=UPLOADS, rounds=1, design=Design.CLUSTERED)
SHOWN = Candidates(images=torch.zeros(4, 1, 1, 1), labels=torch.zeros(4).long(), clients=(5, 7))
PROBE = CandidateProbe(shown=SHOWN, holder=np.array([5, -1, 7, -1]), sample=np.array([3, -1, 0, -1]))


def test_a_clients_own_samples_and_outsiders_at_every_client_count_and_no_others_samples():
    found = counted_scores(CandidateScores(np.arange(8.0), SETTING), PROBE)
    # Client 5's answers are 0..3, client 7's 4..7; candidate 2 at client 5 and 0 at client 7 are another's.
    assert found.scores.values.tolist() == [0, 1, 3, 5, 6, 7]
    assert found.member.tolist() == [True, False, False, False, True, False]
    assert found.candidate.tolist() == [0, 1, 3, 1, 2, 3]
    assert found.given_the_run.member.tolist() == [0, 6]
    assert found.given_the_run.nonmember.tolist() == [1, 3, 5, 7]
    assert found.given_the_run.nonmember_runs.tolist() == [1, 3, 1, 3]


def test_of_the_history_the_same_answers_count():
    setting = replace(SETTING, rounds=2)
    found = counted_scores(CandidateScores(np.arange(8.0), setting, history=((1, -np.arange(8.0)),)), PROBE)
    ((rounds, sides),) = found.round_by_round
    assert rounds == 1
    assert (sides.member.tolist(), sides.nonmember.tolist()) == ([0, -6], [-1, -3, -5, -7])


def test_of_one_score_a_candidate_all_count_once():
    found = counted_scores(CandidateScores(np.arange(4.0), SETTING), PROBE)
    assert found.member.tolist() == [True, False, True, False]
    assert found.candidate.tolist() == [0, 1, 2, 3]


def test_an_outsider_that_stands_for_one_client_counts_there_alone():
    found = counted_scores(
        CandidateScores(np.arange(8.0), SETTING), replace(PROBE, stands_for=np.array([-1, 7, -1, 5]))
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
    probe = plant_candidates(task, count=count, clients=clients, rng=Streams(0).generator("candidates"))
    often = np.stack([np.bincount(task.labels[task.parts[client]], minlength=10) for client in clients])
    scores = often[:, probe.shown.labels].astype(np.float64)
    tables = (scores.reshape(-1), scores.sum(0))
    return [area(counted_scores(CandidateScores(table, SETTING), probe).given_the_run) for table in tables]


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
        counted_scores(CandidateScores(np.arange(5.0), SETTING), PROBE)


def answered(member, nonmember, copies=1):
    """Each score ``copies`` times over, as one candidate's."""
    scores = np.repeat(np.r_[member, nonmember], copies)
    truth = np.repeat(np.r_[np.ones(len(member)), np.zeros(len(nonmember))], copies) == 1
    return CountedScores(
        scores=CandidateScores(scores, SETTING),
        member=truth,
        candidate=np.repeat(np.arange(len(scores) // copies), copies),
    )


def test_asking_the_same_thing_ten_times_does_not_narrow_the_interval():
    rng = np.random.default_rng(1)
    member, nonmember = rng.normal(0.5, 1, 12), rng.normal(0, 1, 15)
    once, tenfold = (area_interval(answered(member, nonmember, copies).given_the_run) for copies in (1, 10))
    assert (tenfold.low, tenfold.high) == pytest.approx((once.low, once.high), abs=1e-12)
