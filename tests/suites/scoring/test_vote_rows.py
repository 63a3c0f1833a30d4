"""Rows of attacks on a teacher's votes: known answers by hand."""

import numpy as np
import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import Design, Setting, VoteScores
from fedassay.audit.observer import ANSWERS
from fedassay.suites.scoring.label_rows import hits, score_votes
from toy_cell import toy_cell

SETTING = Setting(
    unit=Unit.CLIENT, adjacency=Adjacency.REPLACE_ONE, observer=ANSWERS, rounds=1, design=Design.CLUSTERED
)


def rows(scores, votes):
    return {row.metric: row for row in score_votes(toy_cell(), [VoteScores(one, SETTING) for one in scores], votes)}


def test_of_equal_scores_each_vote_gets_its_part():
    scores = np.array([[1.0, 0, 0], [1, 1, 0], [1, 1, 1], [0, 0, 5]])
    assert hits(scores, np.array([0, 1, 2, 0])).tolist() == pytest.approx([1, 1 / 2, 1 / 3, 0])
    with pytest.raises(ValueError, match="a row per query and a column per class"):
        hits(scores, np.array([0, 1, 2, 3]))


def test_a_perfect_attack_scores_one_and_equal_scores_nought():
    votes = np.array([[0, 1, 2, 2], [1, 1, 0, 2]])
    perfect = rows(np.eye(3)[votes], votes)
    assert (perfect["label_over_chance"].value, perfect["label_accuracy"].value) == (1.0, 1.0)
    assert perfect["label_over_chance"].ci_low is None
    nothing = rows(np.zeros((2, 4, 3)), votes)
    assert nothing["label_over_chance"].value == pytest.approx(0.0)
    assert nothing["label_accuracy"].value == pytest.approx(1 / 3)


@pytest.mark.parametrize("classes", [2, 5])
def test_uniform_guesses_of_uniform_votes_are_covered_by_the_interval(classes):
    """Of 200 intervals at 95 %, fewer than 178 cover with probability 1e-4."""
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found = rows(rng.random((6, 40, classes)), rng.integers(classes, size=(6, 40)))["label_over_chance"]
        covered += found.ci_low <= 0 <= found.ci_high
    assert covered >= 178
