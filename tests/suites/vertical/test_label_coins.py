"""Audits of labels in one run, by a coin for each label."""

import pytest
import torch
from fedassay.audit.finding import Verdict, judge
from fedassay.fl.streams import normal
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.suites.vertical.label_coins import measured_in_one_run, most_in_one_run
from toy_vertical import SPLIT, label_case, toy_vertical

FEDERATION = toy_vertical(SPLIT, n=400, batch=50)


def by_coins(case):
    return measured_in_one_run(case, (0, 1), alpha=0.05)


def verdict(protection, *, rounds=2, seed=0):
    """The verdict on a claim of epsilon 1 about the first ``rounds`` epochs, and the measurement."""
    case = label_case(protection, rounds=rounds, seed=seed, federation=FEDERATION)
    found = by_coins(case)
    return judge(case.claim, found).verdict, found


class AtOne(VerticalProtection):
    """Sends gradients as they are to one party, and noise to others."""

    def __init__(self, party=-1, since=0):
        self.party, self.since = party, since

    def gradients(self, values, party, context, rng):
        clear = party == self.party and context.epoch >= self.since
        return values if clear else normal(rng, tuple(values.shape))


@pytest.mark.parametrize("party", [0, 1])
def test_labels_that_one_party_is_sent_are_found_whichever_it_is(party):
    found, measurement = verdict(AtOne(party))
    assert (found, measurement.alpha) == (Verdict.REFUTED, 0.05)
    assert f"at passive party {party + 1}" in measurement.witness


@pytest.mark.simulations
def test_noise_alone_is_refuted_no_oftener_than_alpha():
    """Of 40 runs 5 % may be refuted: 9 or more are a chance of 1e-4."""
    assert sum(verdict(AtOne(), seed=seed)[0] is Verdict.REFUTED for seed in range(40)) < 9


def test_a_claim_about_the_first_epoch_is_held_against_that_epoch_alone():
    assert verdict(AtOne(0), rounds=1)[0] is Verdict.REFUTED
    assert verdict(AtOne(0, since=1), rounds=1)[0] is not Verdict.REFUTED
    assert verdict(AtOne(0, since=1))[0] is Verdict.REFUTED


class Kept(VerticalProtection):
    """Labels are replaced by random ones once, and used in all epochs: more epochs are no further releases."""

    def targets(self, one_hot, context, rng):
        drawn = torch.from_numpy(rng.integers(3, size=tuple(one_hot.shape[:2])))
        return torch.nn.functional.one_hot(drawn, 3).to(one_hot)


def test_labels_that_are_released_once_are_within_a_claim_about_all_epochs_or_the_first():
    for rounds in (1, 2):
        assert verdict(Kept(), rounds=rounds)[0] is not Verdict.REFUTED


def test_all_guesses_right_are_the_most_that_one_run_certifies():
    case = label_case(AtOne(0), federation=FEDERATION)
    assert by_coins(case).epsilon_low == pytest.approx(most_in_one_run(case.claim, 400, 2, alpha=0.05))
