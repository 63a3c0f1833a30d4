"""Claims of other neighbours, or of fewer epochs than the training has, are held against what they cover alone."""

import math

import pytest
from fedassay.audit.check import CHANNEL, PERSON_MOVE, RELEASED
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.finding import judge
from fedassay.audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY
from fedassay.fl.laws import clip
from fedassay.fl.streams import normal
from fedassay.fl.vertical.protection import Noise, Noised, VerticalLaw, VerticalProtection
from fedassay.suites.vertical.audit import why_not
from fedassay.suites.vertical.case import VerticalCase
from fedassay.suites.vertical.checks.play_back import vertical_checks
from fedassay.suites.vertical.runs import measured_in_runs
from toy_vertical import SPLIT, toy_vertical

FROZEN, TRAINED = {"frozen": True, "learning_rate": 0.01}, {"learning_rate": 0.01}
MU = mu_from_epsilon(2.0, 1e-5)


class Embeddings(VerticalProtection):
    """Embeddings of norm 1 at most, with noise for two epochs in which each of them may move by its norm."""

    scale = math.sqrt(2) / MU

    def embeddings(self, values, party, context, rng):
        return clip(values, 1.0) + self.scale * normal(rng, tuple(values.shape))


class Residuals(VerticalProtection):
    """Noise for one epoch, in which a label moves its row by the root of 2."""

    scale = math.sqrt(2) / MU

    def residuals(self, values, context, rng):
        return values + self.scale * normal(rng, tuple(values.shape))


def columns_claim(adjacency, epsilon=2.0):
    return Claim.stated(epsilon, 1e-5, unit="sample", adjacency=adjacency, observer=ACTIVE_PARTY, rounds=2)


def checks(claim, protection, noised, plan):
    task, plan = toy_vertical(SPLIT, **plan)
    law = VerticalLaw(noised=noised, noise=Noise.GAUSSIAN, scale=protection.scale, releases=claim.rounds)
    case = VerticalCase(claim=claim, task=task, plan=plan, protection=protection, law=law)
    return {check.name: check for check in vertical_checks(case)}


def failed(found):
    return [check.words for check in found.values() if check.passed is False]


@pytest.mark.simulations
def test_a_zero_out_claim_is_held_against_a_row_or_zeros_alone():
    found = checks(columns_claim("zero_out"), Embeddings(), Noised.EMBEDDINGS, FROZEN)
    assert failed(found) == []
    assert found[PERSON_MOVE].measured == pytest.approx(2.0, rel=0.06)
    assert failed(checks(columns_claim("replace_one"), Embeddings(), Noised.EMBEDDINGS, FROZEN))
    assert failed(checks(columns_claim("zero_out", 1.5), Embeddings(), Noised.EMBEDDINGS, FROZEN))


@pytest.mark.parametrize(
    ("claim", "plan", "words"),
    [
        (columns_claim("add_remove"), FROZEN, "rows of the same people"),
        (columns_claim("zero_out"), TRAINED, "not zero"),
        (Claim.stated(2.0, unit="label", adjacency="zero_out", observer=PASSIVE_PARTY, rounds=2), FROZEN, "no label"),
    ],
)
def test_a_claim_of_neighbours_that_no_pair_has_is_skipped_with_the_reason(claim, plan, words):
    found = checks(claim, Embeddings(), Noised.EMBEDDINGS, plan)
    assert list(found) == [RELEASED]
    assert found[RELEASED].passed is None
    assert words in found[RELEASED].witness
    assert words in why_not(claim, "independent", frozen=bool(plan.get("frozen")))


@pytest.mark.simulations
@pytest.mark.parametrize(("epsilon", "verdict"), [(2.0, "NOT_REFUTED"), (0.02, "REFUTED")])
def test_runs_of_a_zero_out_claim_have_a_row_or_zeros(epsilon, verdict):
    claim = columns_claim("zero_out", epsilon)
    task, plan = toy_vertical(SPLIT, **FROZEN)
    case = VerticalCase(claim=claim, task=task, plan=plan, protection=Embeddings())
    measured = measured_in_runs(case, case.pairs, replicas=2000, pilot=500, alpha=0.01)
    assert "zeros" in measured.witness
    assert str(judge(claim, measured).verdict) == verdict


@pytest.mark.simulations
@pytest.mark.parametrize("observer", [PASSIVE_PARTY, FINAL_MODEL])
def test_a_claim_of_one_epoch_is_held_against_the_first_of_two(observer):
    one, two = (Claim.stated(2.0, 1e-5, unit="label", observer=observer, rounds=rounds) for rounds in (1, 2))
    found = checks(one, Residuals(), Noised.RESIDUALS, TRAINED)
    assert failed(found) == []
    assert found[PERSON_MOVE].measured == pytest.approx(2.0, rel=0.06)
    # The messages of a claim about the published model may show more than it: no failure there.
    assert bool(failed(checks(two, Residuals(), Noised.RESIDUALS, TRAINED))) == (observer == PASSIVE_PARTY)


class Redrawn(VerticalProtection):
    """Labels that are released anew in every epoch, as they are with a noise that hides little."""

    redraws = True
    scale = 1.0

    def targets(self, one_hot, context, rng):
        return one_hot + self.scale * normal(rng, tuple(one_hot.shape))


@pytest.mark.simulations
def test_released_labels_count_in_the_epochs_of_the_claim():
    found = {
        rounds: checks(
            Claim.stated(9.0, unit="label", observer=PASSIVE_PARTY, rounds=rounds), Redrawn(), Noised.TARGETS, TRAINED
        )[CHANNEL].measured
        for rounds in (1, 2)
    }
    assert found[2] == pytest.approx(2 * found[1], rel=0.2)


def test_runs_of_a_claim_of_one_epoch_are_evidence_of_one_epoch():
    claim = Claim.stated(2.0, 1e-5, unit="label", observer=PASSIVE_PARTY, rounds=1)
    task, plan = toy_vertical(SPLIT, **TRAINED)
    case = VerticalCase(claim=claim, task=task, plan=plan, protection=Residuals())
    measured = measured_in_runs(case, case.pairs, replicas=1000, pilot=300, alpha=0.01)
    assert measured.setting.rounds == 1
    assert str(judge(claim, measured).verdict) == "NOT_REFUTED"
