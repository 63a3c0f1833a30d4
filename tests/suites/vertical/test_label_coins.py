"""One run with a coin for each label: it looks at every passive party, in the epochs that the claim covers."""

from dataclasses import replace

import pytest
import torch
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict, judge
from fedassay.audit.observer import PASSIVE_PARTY
from fedassay.fl.streams import Streams, normal
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.suites.vertical.case import VerticalCase
from fedassay.suites.vertical.label_coins import measured_by_labels, measured_in_one_run, most_in_one_run
from toy_vertical import SPLIT, toy_vertical

CLAIM = Claim.stated(1.0, unit="label", observer=PASSIVE_PARTY, rounds=2)
TASK, PLAN = toy_vertical(SPLIT, n=400, batch=50)


def case_of(claim, protection, seed):
    return VerticalCase(claim=claim, task=TASK, plan=PLAN, protection=protection, streams=Streams(seed))


def by_coins(claim, protection, seed=0):
    return measured_in_one_run(case_of(claim, protection, seed), (0, 1), alpha=0.05)


def by_own_labels(claim, protection, seed=0):
    return measured_by_labels(case_of(claim, protection, seed), (1 / 3,) * 3, alpha=0.05)


class AtOne(VerticalProtection):
    """Sends gradients as they are to one party, and noise to others."""

    def __init__(self, party=-1, since=0):
        self.party, self.since = party, since

    def gradients(self, values, party, context, rng):
        clear = party == self.party and context.epoch >= self.since
        return values if clear else normal(rng, tuple(values.shape))


@pytest.mark.parametrize("party", [0, 1])
def test_labels_that_one_party_is_sent_are_found_whichever_it_is(party):
    found = by_coins(CLAIM, AtOne(party))
    assert judge(CLAIM, found).verdict is Verdict.REFUTED
    assert f"at passive party {party + 1}" in found.witness
    assert found.alpha == 0.05


@pytest.mark.simulations
def test_noise_alone_is_refuted_no_oftener_than_alpha():
    """Of 40 runs 5 % may be refuted: 9 or more are a chance of 1e-4."""
    assert sum(judge(CLAIM, by_coins(CLAIM, AtOne(), seed)).verdict is Verdict.REFUTED for seed in range(40)) < 9


@pytest.mark.parametrize("measured", [by_coins, by_own_labels])
def test_a_claim_about_the_first_epoch_is_held_against_that_epoch_alone(measured):
    first = replace(CLAIM, rounds=1)
    assert judge(first, measured(first, AtOne(0))).verdict is Verdict.REFUTED
    later = AtOne(0, since=1)
    assert judge(first, measured(first, later)).verdict is Verdict.NOT_REFUTED
    assert judge(CLAIM, measured(CLAIM, later)).verdict is Verdict.REFUTED


class Kept(VerticalProtection):
    """Labels are replaced by random ones once, and used in all epochs: more epochs are no further releases."""

    def targets(self, one_hot, context, rng):
        drawn = torch.from_numpy(rng.integers(3, size=tuple(one_hot.shape[:2])))
        return torch.nn.functional.one_hot(drawn, 3).to(one_hot)


@pytest.mark.parametrize("measured", [by_coins, by_own_labels])
def test_labels_that_are_released_once_are_within_a_claim_about_all_epochs_or_the_first(measured):
    for rounds in (1, 2):
        claim = replace(CLAIM, rounds=rounds)
        assert judge(claim, measured(claim, Kept())).verdict is Verdict.NOT_REFUTED


def test_all_guesses_right_are_the_most_that_one_run_certifies():
    found = by_coins(CLAIM, AtOne(0))
    assert found.epsilon_low == pytest.approx(most_in_one_run(CLAIM, 400, 2, alpha=0.05))
