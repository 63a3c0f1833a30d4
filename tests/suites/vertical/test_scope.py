"""Claims of other neighbours, or of fewer epochs than the training has, are held against what they cover alone."""

import math
from dataclasses import replace

import pytest
from fedassay.audit.check import CHANNEL, DRAWN, PERSON_MOVE, RELEASED
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.finding import judge
from fedassay.audit.observer import FINAL_MODEL, PASSIVE_PARTY
from fedassay.fl.laws import clip
from fedassay.fl.streams import normal
from fedassay.fl.vertical.protection import Noise, Noised, VerticalLaw, VerticalProtection
from fedassay.suites.vertical.audit import why_not
from fedassay.suites.vertical.checks.play_back import vertical_checks
from fedassay.suites.vertical.runs import measured_in_runs
from toy_vertical import SPLIT, OnResiduals, label_case, row_case, toy_vertical

TRAINED = toy_vertical(SPLIT, learning_rate=0.01)
FROZEN = toy_vertical(SPLIT, learning_rate=0.01, frozen=True)
MU = mu_from_epsilon(2.0, 1e-5)


class Embeddings(VerticalProtection):
    """Embeddings of norm 1 at most, with noise for two epochs in which each of them may move by its norm."""

    scale = math.sqrt(2) / MU

    def embeddings(self, values, party, context, rng):
        return clip(values, 1.0) + self.scale * normal(rng, tuple(values.shape))


RESIDUALS = OnResiduals(lambda values, noise: values + noise, math.sqrt(2) / MU)
"""Noise for one epoch, in which a label moves its row by the root of 2."""


def of_rows(adjacency, epsilon=2.0, federation=FROZEN):
    return row_case(Embeddings(), epsilon=epsilon, delta=1e-5, adjacency=adjacency, federation=federation)


def of_labels(protection, **facts):
    return label_case(protection, **({"epsilon": 2.0, "delta": 1e-5, "federation": TRAINED} | facts))


def checks(case, noised):
    law = VerticalLaw(noised=noised, noise=Noise.GAUSSIAN, scale=case.protection.scale, releases=case.claim.rounds)
    return {check.name: check for check in vertical_checks(replace(case, law=law))}


def failed(found):
    return [check.words for check in found.values() if check.passed is False]


@pytest.mark.simulations
def test_a_zero_out_claim_is_held_against_a_row_or_zeros_alone():
    found = checks(of_rows("zero_out"), Noised.EMBEDDINGS)
    assert failed(found) == []
    assert found[PERSON_MOVE].measured == pytest.approx(2.0, rel=0.06)
    assert failed(checks(of_rows("replace_one"), Noised.EMBEDDINGS))
    assert failed(checks(of_rows("zero_out", 1.5), Noised.EMBEDDINGS))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (of_rows("add_remove"), "rows of the same people"),
        (of_rows("zero_out", federation=TRAINED), "other than zero"),
        (of_labels(Embeddings(), adjacency="zero_out", federation=FROZEN), "no label"),
    ],
)
def test_a_claim_of_neighbours_that_no_pair_has_is_skipped_with_the_reason(case, words):
    found = checks(case, Noised.EMBEDDINGS)
    assert list(found) == [RELEASED]
    assert found[RELEASED].passed is None
    assert words in found[RELEASED].witness
    assert words in why_not(case.claim, "independent", frozen=case.plan.frozen)


@pytest.mark.simulations
@pytest.mark.parametrize(("epsilon", "verdict"), [(2.0, "UNDERPOWERED"), (0.02, "REFUTED")])
def test_runs_of_a_zero_out_claim_have_a_row_or_zeros(epsilon, verdict):
    case = of_rows("zero_out", epsilon)
    measured = measured_in_runs(case, case.pairs, replicas=2000, pilot=500, alpha=0.01)
    assert "zeros" in measured.witness
    assert str(judge(case.claim, measured).verdict) == verdict


@pytest.mark.simulations
@pytest.mark.parametrize("observer", [PASSIVE_PARTY, FINAL_MODEL])
def test_a_claim_of_one_epoch_is_held_against_the_first_of_two(observer):
    one, two = (of_labels(RESIDUALS, observer=observer, rounds=rounds) for rounds in (1, 2))
    found = checks(one, Noised.RESIDUALS)
    assert failed(found) == []
    assert found[PERSON_MOVE].measured == pytest.approx(2.0, rel=0.06)
    # The messages of a claim about the published model may show more than it: no failure there.
    assert bool(failed(checks(two, Noised.RESIDUALS))) == (observer == PASSIVE_PARTY)


class Redrawn(VerticalProtection):
    """Labels that are released anew in every epoch, as they are with a noise that hides little."""

    redraws = True
    scale = 1.0

    def targets(self, one_hot, context, rng):
        return one_hot + self.scale * normal(rng, tuple(one_hot.shape))


@pytest.mark.simulations
def test_released_labels_count_in_the_epochs_of_the_claim():
    cases = [of_labels(Redrawn(), epsilon=9.0, delta=0.0, rounds=rounds) for rounds in (1, 2)]
    one, two = (checks(case, Noised.TARGETS)[CHANNEL].measured for case in cases)
    assert two == pytest.approx(2 * one, rel=0.2)


def test_runs_of_a_claim_of_one_epoch_are_evidence_of_one_epoch():
    case = of_labels(RESIDUALS, rounds=1)
    measured = measured_in_runs(case, case.pairs, replicas=1000, pilot=300, alpha=0.01)
    assert measured.setting.rounds == 1
    assert str(judge(case.claim, measured).verdict) != "REFUTED"


@pytest.mark.parametrize(("observer", "passed"), [(FINAL_MODEL, None), (PASSIVE_PARTY, False)])
def test_messages_that_exceed_a_claim_fail_it_only_where_the_adversary_receives_them(observer, passed):
    case = of_labels(RESIDUALS, observer=observer)
    more, less = (DRAWN.at_most(value, 1.0, unit="epsilon", witness="draws") for value in (2.0, 0.5))
    found = case.judged(more, "released labels")
    assert (found.name, found.passed, found.detects) == (DRAWN, passed, None)
    assert ("released labels exceed the claim" in found.witness) is (passed is None)
    assert case.judged(less, "released labels") is less
