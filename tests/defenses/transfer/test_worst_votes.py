"""Audits of votes as a mechanism: every broken version is refuted on neighbouring votes, and no correct one is."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from fedassay import audit_mechanism
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.defenses.controls.fault import correct_version
from fedassay.defenses.controls.transfer import (
    ControlVotesBitsEach,
    ControlVotesBudgetEach,
    ControlVotesCheckUnpaid,
    ControlVotesEpsilonPublished,
    ControlVotesExactLabel,
    ControlVotesNoClip,
    ControlVotesNoiseOnce,
    ControlVotesNoiseReused,
    ControlVotesScaleHalved,
    ControlVotesSensitivity,
    ControlVotesTopTwo,
)
from fedassay.defenses.transfer.confident_gnmax import ConfidentGNMax
from fedassay.defenses.transfer.defense import NoisyVotes
from fedassay.defenses.transfer.gnmax import GNMax
from fedassay.defenses.transfer.grr_votes import GRRVotes
from fedassay.defenses.transfer.lnmax import LNMax
from fedassay.defenses.transfer.plain_votes import PlainVotes
from fedassay.defenses.transfer.worst_votes import (
    answer_mechanism,
    label_mechanism,
    mechanism_of,
    neighbouring_counts,
    neighbouring_logits,
    neighbours_of,
    one_teacher_apart,
    sums_votes,
    teachers_logits,
    teachers_mechanism,
)
from fedassay.fl.transfer.protection import ReleasedLabels, TransferProtection, counts_of, votes_of
from scipy.special import ndtr
from toy_transfer import votes_plan

SLOW = pytest.mark.simulations
# Control, its plan, and trials on each input that are enough.
CASES = [
    pytest.param(ControlVotesNoiseOnce(epsilon=1.0), votes_plan(queries=10), 4000, id="noise once"),
    pytest.param(ControlVotesNoiseReused(epsilon=1.0), votes_plan(queries=10), 4000, id="noise reused"),
    pytest.param(ControlVotesSensitivity(epsilon=2.0), votes_plan(queries=1), 20_000, id="sensitivity"),
    pytest.param(ControlVotesSensitivity(epsilon=2.0), votes_plan(queries=10), 40_000, id="sensitivity 10", marks=SLOW),
    pytest.param(ControlVotesScaleHalved(delta=0.0, epsilon=1.0), votes_plan(queries=1), 10_000, id="scale halved"),
    pytest.param(ControlVotesScaleHalved(epsilon=1.0), votes_plan(queries=10), 40_000, id="halved 10", marks=SLOW),
    pytest.param(ControlVotesCheckUnpaid(epsilon=1.0), votes_plan(queries=10), 4000, id="check unpaid"),
    pytest.param(
        ControlVotesEpsilonPublished(), votes_plan(1000, queries=2), 20_000, id="epsilon published", marks=SLOW
    ),
    pytest.param(ControlVotesBudgetEach(epsilon=2.0), votes_plan(queries=4), 10_000, id="budget each"),
    pytest.param(ControlVotesBitsEach(epsilon=2.0), votes_plan(queries=4), 20_000, id="bits each"),
    pytest.param(ControlVotesTopTwo(epsilon=1.0), votes_plan(queries=4), 4000, id="top two"),
    pytest.param(ControlVotesExactLabel(epsilon=1.0), votes_plan(queries=4), 4000, id="exact label"),
    pytest.param(ControlVotesNoClip(epsilon=2.0), votes_plan(queries=4), 4000, id="no clip"),
]


def audited(defense, plan, trials, seed=0):
    prepared = defense.prepare(plan)
    claim = prepared.claims[0]
    if claim.dp_model == "local":
        mechanism, pairs = answer_mechanism(prepared.protection, plan), neighbouring_logits(plan)
    else:
        threshold = claim.parameters.get("threshold")
        mechanism = label_mechanism(prepared.protection, plan)
        pairs = neighbouring_counts(plan, threshold=threshold)
    return audit_mechanism(mechanism, claim, pairs=pairs, trials=trials, batched=True, seed=seed)


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize(("control", "plan", "trials"), CASES)
def test_the_broken_version_is_refuted_and_the_correct_one_is_not(control, plan, trials):
    assert audited(control, plan, trials).verdict is Verdict.REFUTED
    assert audited(correct_version(control), plan, trials).verdict is not Verdict.REFUTED


@pytest.mark.long
@pytest.mark.parametrize(
    "defense", [GNMax(epsilon=2.0), LNMax(epsilon=2.0, delta=0.0), LNMax(epsilon=2.0), ConfidentGNMax(epsilon=2.0)]
)
def test_correct_versions_are_refuted_no_oftener_than_alpha(defense):
    """Of 60 audits at error 0.05; more than 10 happen with probability 2e-4, and the claims are nearly met."""
    refuted = [
        audited(defense, votes_plan(queries=1), 2000, seed=seed).verdict is Verdict.REFUTED for seed in range(60)
    ]
    assert sum(refuted) <= 10


@pytest.mark.parametrize("threshold", [None, 30.0, 29.5])
@pytest.mark.parametrize(("teachers", "classes"), [(50, 3), (51, 3), (7, 2)])
def test_the_pairs_are_votes_of_all_teachers_that_differ_in_one_per_query(teachers, classes, threshold):
    plan = votes_plan(teachers, queries=6, classes=classes)
    if threshold is not None:
        threshold *= teachers / 50
    pairs = neighbouring_counts(plan, threshold=threshold)
    for one, other in pairs:
        for counts in (one, other):
            assert (counts >= 0).all()
            assert (counts.sum(1) == teachers).all()
            assert (counts == np.rint(counts)).all()
        apart = np.abs(one - other).sum(1)
        assert set(apart) <= {0.0, 2.0}
        assert apart.any()
    # A tie, a lead that a vote takes away, votes that every second query keeps.
    leads = {tuple(sorted(one[0] - one[0].max()))[-2] for one, _ in pairs}
    assert 0.0 in leads or teachers % 2
    assert any(len(set(np.abs(one - other).sum(1))) == 2 for one, other in pairs)
    if threshold is not None:
        most = [sorted(counts.max(1)[0] for counts in pair) for pair in pairs]
        assert any(low < threshold <= high and high == low + 1 for low, high in most)


@pytest.mark.parametrize(("teachers", "classes", "threshold"), [(50, 3, 30.0), (51, 3, None), (7, 2, None)])
def test_a_removed_teacher_takes_one_vote_from_every_query(teachers, classes, threshold):
    plan = votes_plan(teachers, queries=6, classes=classes)
    pairs = neighbouring_counts(plan, threshold=threshold, removed=True)
    assert len(pairs) == len(neighbouring_counts(plan, threshold=threshold))
    for fewer, counts in pairs:
        assert (fewer >= 0).all()
        assert (counts.sum(1) == teachers).all()
        assert set((counts - fewer).flat) == {0.0, 1.0}
        assert ((counts - fewer).sum(1) == 1).all()
    assert any(len({int(row.argmax()) for row in counts - fewer}) == 2 for fewer, counts in pairs)


@pytest.mark.parametrize("threshold", [30, 30.0])
def test_a_threshold_may_be_any_number_and_others_have_no_pair(threshold):
    plan = votes_plan(queries=2)
    stated = {"epsilon": 1.0, "delta": 1e-5, "unit": "client", "adjacency": "replace_one", "observer": "answers"}

    def pairs(value):
        claim = replace(Claim.stated(**stated), parameters={"threshold": value})
        return mechanism_of(claim, PlainVotes().prepare(plan).protection, plan)[1]

    assert len(pairs(threshold)) == len(pairs(True)) + 1
    assert len({len(pairs(other)) for other in (True, "thirty", 51, 0, -1.5)}) == 1


def test_one_label_of_two_lies_on_the_stated_curve():
    """The audit cannot be improved by other scores: a lead g makes the point Phi(-g / s), Phi((g - 2) / s) with s the
    deviation of a difference, which is the point of the Gaussian curve with mu = sqrt 2 / sigma.
    """
    plan = votes_plan(queries=1, classes=2)
    prepared = GNMax(epsilon=2.0).prepare(plan)
    curve, spread = prepared.claims[0].curve, math.sqrt(2) * prepared.protection.noise.scale
    law = prepared.protection.label_law(plan)
    for lead in (2.0, 8.0, 20.0):
        ahead, behind = (law.log_probabilities(np.array([25 + half, 25 - half])) for half in (lead / 2, lead / 2 - 1))
        # Member: the vote is for the first label, and the first label is released.
        fnr, fpr = 1 - math.exp(ahead[0]), math.exp(behind[0])
        assert fpr == pytest.approx(ndtr((lead - 2) / spread), rel=1e-6)
        assert fnr == pytest.approx(float(curve.fnr(fpr)), rel=1e-5)


def test_votes_without_noise_are_refuted_at_once():
    plan = votes_plan(queries=2)
    claim = Claim.stated(epsilon=4.0, delta=1e-5, unit="client", adjacency="replace_one", observer="answers")
    protection = PlainVotes().prepare(plan).protection
    found = audit_mechanism(
        label_mechanism(protection, plan), claim, pairs=neighbouring_counts(plan), trials=1000, batched=True
    )
    assert found.verdict is Verdict.REFUTED


@dataclass(frozen=True, kw_only=True)
class NoisyCounts(TransferProtection):
    """Votes with Laplace noise for all queries; without it where all teachers agree, if ``exact`` says so."""

    scale: float
    exact: bool

    def aggregate_votes(self, answers, context, state, rng):
        counts = counts_of(answers).double()
        noise = torch.from_numpy(rng.laplace(scale=self.scale, size=tuple(counts.shape)))
        agree = counts.amax(-1, keepdim=True) == answers.shape[1]
        return ReleasedLabels(labels=(counts + torch.where(agree & self.exact, 0.0, noise)).argmax(-1)), state


@pytest.mark.simulations
@pytest.mark.parametrize(("exact", "verdict"), [(True, Verdict.REFUTED), (False, Verdict.NOT_REFUTED)])
def test_labels_without_noise_where_all_teachers_agree_are_refuted(exact, verdict):
    plan = votes_plan(20, queries=4, classes=3)
    claim = Claim.stated(epsilon=2.0, unit="client", adjacency="replace_one", observer="answers")
    own = NoisyCounts(scale=2 * plan.queries / claim.epsilon, exact=exact)
    mechanism, pairs = mechanism_of(claim, own, plan)
    assert audit_mechanism(mechanism, claim, pairs=pairs, trials=4000, batched=True).verdict is verdict


def test_real_votes_give_neighbours_of_the_closest_queries():
    """Three queries with leads of 3, 1 and 2; the first teacher that voted for the closest query's label moves."""
    votes = np.eye(3)[np.array([[0, 1, 2], [0, 0, 2], [0, 0, 2], [1, 1, 2], [0, 0, 0], [2, 2, 0]])]
    one, other = neighbours_of(votes, 2)
    assert other.tolist() == [[3, 2, 1], [2, 0, 4]]
    assert one.tolist() == [[2, 3, 1], [3, 0, 3]]
    # The first teacher's votes are for the labels 0, 1, 2.
    assert neighbours_of(votes, 2, removed=True)[0].tolist() == [[2, 2, 1], [2, 0, 3]]
    (least, most) = neighbours_of(votes, 1)
    assert (least.tolist(), most.tolist()) == ([[2, 3, 1]], [[3, 2, 1]])


@pytest.mark.parametrize(("teachers", "classes"), [(50, 3), (7, 2), (5, 10)])
def test_all_teachers_of_a_pair_have_its_counts_and_only_the_first_differs(teachers, classes):
    plan = votes_plan(teachers, queries=6, classes=classes)
    for pair in neighbouring_counts(plan):
        apart = one_teacher_apart(pair)
        one, other = (teachers_logits(inputs[np.newaxis], teachers) for inputs in apart)
        assert one.shape == (1, teachers, 6, classes)
        for logits, counts in ((one, pair[0]), (other, pair[1])):
            assert counts_of(votes_of(logits))[0].tolist() == counts.tolist()
        assert (one[:, 1:] == other[:, 1:]).all()
        moved = (pair[0] != pair[1]).any(-1)
        assert (one[0, 0] != other[0, 0]).any(-1).tolist() == moved.tolist()
        # Opposite directions are the farthest apart under any bound of the norm.
        assert (one[0, 0][moved] == -other[0, 0][moved]).all()


def test_all_teachers_and_their_counts_alone_give_the_same_labels_of_bundled_defenses():
    """In calls of any size, the last of which is shorter."""
    plan = votes_plan(teachers=2000, queries=10, classes=10)
    protection, counts = GNMax(epsilon=2.0).prepare(plan).protection, neighbouring_counts(plan)[3]
    inputs = one_teacher_apart(counts)[0]
    shares = []
    for mechanism, given in ((label_mechanism, counts[0]), (teachers_mechanism, inputs)):
        labels = mechanism(protection, plan)(np.broadcast_to(given, (150, *given.shape)), np.random.default_rng(0))
        assert labels.shape == (150, 10)
        shares.append(labels.tolist())
    # The generator is one, so that calls in a row draw what a single one draws.
    assert shares[0] == shares[1]


def test_protections_are_known_to_sum_plain_votes_where_both_hooks_are_bundled_ones():
    plan = votes_plan()
    aggregating = type("Aggregating", (NoisyVotes,), {"aggregate_votes": lambda self, *given: None})
    noise = GNMax().prepare(plan).protection.noise
    assert sums_votes(GNMax().prepare(plan).protection)
    assert sums_votes(ControlVotesExactLabel().prepare(plan).protection)
    assert not sums_votes(aggregating(noise=noise))
    assert not sums_votes(GRRVotes().prepare(plan).protection)
