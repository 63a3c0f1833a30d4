"""Attacks on one teacher's votes: as good as the law allows, no better than a claim allows, and null at a coin."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Level, Undefined
from fedassay.attacks.transfer.answer_likelihood import AnswerLikelihood
from fedassay.attacks.transfer.released_label import ReleasedLabel
from fedassay.attacks.transfer.vote_attack import VoteKnowledge
from fedassay.attacks.transfer.vote_likelihood import VoteLikelihood
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import Design
from fedassay.audit.observer import ANSWERS, FINAL_MODEL, UPLOADS
from fedassay.defenses.transfer.confident_gnmax import ConfidentGNMax, ConfidentVotes
from fedassay.defenses.transfer.gaussian_logits import GaussianLogits
from fedassay.defenses.transfer.gnmax import GNMax
from fedassay.defenses.transfer.grr_votes import GRRVotes
from fedassay.defenses.transfer.lnmax import LNMax
from fedassay.defenses.transfer.plain_votes import PlainVotes
from fedassay.defenses.transfer.unary_votes import UnaryVotes
from fedassay.fl.streams import Streams
from fedassay.fl.transfer.engine import answered
from fedassay.fl.transfer.recorder import TransferView
from toy_transfer import logits_of, votes_plan

QUERIES, TEACHERS, CLASSES = 20_000, 7, 3
PLAN = votes_plan(teachers=TEACHERS, queries=QUERIES, classes=CLASSES)
ONE = votes_plan(teachers=TEACHERS, queries=1, classes=CLASSES)
SURE = 5 * 0.5 / math.sqrt(QUERIES)
"""Five standard errors of a share of all queries."""


def one_query_of(defense):
    """The protection at the noise of one query; where labels are limited, to as many as there are queries."""
    protection = defense.prepare(ONE).protection
    return replace(protection, labels=QUERIES) if isinstance(protection, ConfidentVotes) else protection


def attacked(attack, defense, observer, *, known=True):
    """Share of queries on which the vote of the first teacher is guessed. Votes are uniform, and the noise that of one
    query, so that there is something to see.
    """
    protection = one_query_of(defense)
    votes = torch.from_numpy(np.random.default_rng(0).integers(CLASSES, size=(TEACHERS, QUERIES)))
    logits = logits_of(votes, CLASSES).unsqueeze(0)
    answers, released = answered(logits, PLAN, protection, Streams(0).generator)
    view = TransferView(
        observer=observer,
        plan=PLAN,
        public_images=torch.zeros(QUERIES, 1, 1, 1),
        answers=answers if observer == UPLOADS else None,
        released=None if observer == FINAL_MODEL else released,
        final_model=torch.zeros(1, 1),
    )
    others = logits_of(votes[1:], CLASSES).sum(0).double().numpy()
    knowledge = VoteKnowledge.of(PLAN, protection, others=others if known else None)
    found = attack.run(view, knowledge, np.random.default_rng(1))
    assert (found.setting.unit, found.setting.adjacency) == (Unit.CLIENT, Adjacency.REPLACE_ONE)
    assert (found.setting.observer, found.setting.design) == (observer, Design.CLUSTERED)
    assert found.values.shape == (QUERIES, CLASSES)
    return float((found.values.argmax(-1) == votes[0].numpy()).mean()), others


@pytest.mark.parametrize(
    "defense", [GNMax(epsilon=4.0), LNMax(epsilon=4.0, delta=0.0), ConfidentGNMax(epsilon=8.0), PlainVotes()]
)
def test_from_labels_the_guess_is_right_as_often_as_the_best_one_can_be(defense):
    """Bayes: of equally likely votes, the sum over outputs of the likeliest vote's probability, over the votes."""
    right, others = attacked(VoteLikelihood(), defense, ANSWERS)
    law = one_query_of(defense).label_law(PLAN)
    kinds, number = np.unique(others, axis=0, return_counts=True)
    chances = np.exp(law.log_probabilities(kinds[:, np.newaxis, :] + np.eye(CLASSES)))
    best = float((chances.max(1).sum(-1) / CLASSES) @ number) / QUERIES
    assert right == pytest.approx(best, abs=SURE)
    assert right > 1 / CLASSES + 2 * SURE


def test_without_noise_a_vote_is_read_off_wherever_it_decides():
    """Where two of three teachers vote 0 and 1, label 1 shows the third vote, and label 0 leaves two votes possible."""
    law = PlainVotes().prepare(ONE).protection.label_law(ONE)
    chances = np.exp(law.log_probabilities(np.array([1.0, 1.0, 0.0]) + np.eye(3)))
    assert chances.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [1, 0, 0, 0]]
    plain, _ = attacked(VoteLikelihood(), PlainVotes(), ANSWERS)
    noised, _ = attacked(VoteLikelihood(), GNMax(epsilon=4.0), ANSWERS)
    assert plain > noised + 2 * SURE


def test_no_guess_beats_what_a_pure_claim_allows():
    """Of k equally likely votes at most e^epsilon / (e^epsilon + k - 1)."""
    for epsilon in (0.5, 2.0):
        allowed = math.exp(epsilon) / (math.exp(epsilon) + CLASSES - 1)
        right, _ = attacked(VoteLikelihood(), LNMax(epsilon=epsilon, delta=0.0), ANSWERS)
        assert right < allowed + SURE
        # Randomised response attains it: the answer itself is the guess.
        right, _ = attacked(AnswerLikelihood(), GRRVotes(epsilon=epsilon), UPLOADS, known=False)
        assert right == pytest.approx(allowed, abs=SURE)


@pytest.mark.parametrize("encoding", ["symmetric", "optimised"])
def test_from_bits_the_guess_is_right_as_often_as_their_law_says(encoding):
    defense = UnaryVotes(epsilon=2.0, encoding=encoding)
    right, _ = attacked(AnswerLikelihood(), defense, UPLOADS, known=False)
    randomiser = defense.prepare(ONE).protection.randomiser
    reports = randomiser.outputs().reports
    chances = np.exp([randomiser.log_density(reports, vote) for vote in range(CLASSES)])
    assert right == pytest.approx(chances.max(0).sum() / CLASSES, abs=SURE)


def test_the_server_sees_every_vote_that_is_sent_as_it_is_and_less_of_noisy_logits():
    right, _ = attacked(AnswerLikelihood(), GNMax(), UPLOADS, known=False)
    assert right == 1.0
    shares = [
        attacked(AnswerLikelihood(), GaussianLogits(epsilon=e), UPLOADS, known=False)[0] for e in (0.5, 4.0, 16.0)
    ]
    assert shares == sorted(shares)
    assert 1 / CLASSES - SURE < shares[0] < 0.5 < shares[2]


def test_abstentions_are_used_as_what_they_are():
    """The released label shows nothing where there is none; its absence shows something to who knows the others."""
    few = ConfidentGNMax(epsilon=8.0, threshold=0.7)
    label, _ = attacked(ReleasedLabel(), few, ANSWERS, known=False)
    likelihood, _ = attacked(VoteLikelihood(), few, ANSWERS)
    assert 1 / CLASSES - SURE < label < likelihood


def test_an_attack_without_a_law_or_a_view_says_so():
    assert (VoteLikelihood().level, ReleasedLabel().level) == (Level.WORST_CASE, Level.REALISTIC)
    with pytest.raises(Undefined, match="publishes no distribution"):
        attacked(VoteLikelihood(), GaussianLogits(), ANSWERS)
    with pytest.raises(ValueError, match="votes of all other teachers"):
        attacked(VoteLikelihood(), GNMax(), ANSWERS, known=False)
    with pytest.raises(ValueError, match="final_model does not observe"):
        attacked(VoteLikelihood(), GNMax(), FINAL_MODEL)
    with pytest.raises(ValueError, match="answers does not observe"):
        attacked(AnswerLikelihood(), GNMax(), ANSWERS)
    assert VoteLikelihood(teacher=2).fields() == {"teacher": 2}
