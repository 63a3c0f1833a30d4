"""Audits of labels in one run: by a coin for each label, or with the labels as they are and a known law of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.audit.finding import Verdict, judge
from fedassay.defenses.controls.vertical import ControlLabelFlipsHalved
from fedassay.defenses.vertical.labels.label_randomised_response import LabelRandomisedResponse
from fedassay.fl.streams import normal
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.fl.vertical.task import People
from fedassay.suites.vertical.label_coins import measured_by_labels, measured_in_one_run, most_in_one_run, raised
from toy_vertical import LOGISTIC, SPLIT, label_case, toy_vertical

FEDERATION = toy_vertical(SPLIT, n=400, batch=50)
EVEN = (1 / 3,) * 3


def by_coins(case):
    return measured_in_one_run(case, (0, 1), alpha=0.05)


def by_own_labels(case, prior=EVEN):
    return measured_by_labels(case, prior, alpha=0.05)


def verdict(measured, protection, *, rounds=2, seed=0):
    """The verdict on a claim of epsilon 1 about the first ``rounds`` epochs, and the measurement."""
    case = label_case(protection, rounds=rounds, seed=seed, federation=FEDERATION)
    found = measured(case)
    return judge(case.claim, found).verdict, found


class AtOne(VerticalProtection):
    """Sends gradients as they are to one party, and noise to others."""

    def __init__(self, party=-1, since=0):
        self.party, self.since = party, since

    def gradients(self, values, party, context, rng):
        clear = party == self.party and context.epoch >= self.since
        return values if clear else normal(rng, tuple(values.shape))


@pytest.mark.parametrize("party", [0, 1])
@pytest.mark.parametrize(
    ("measured", "wanted", "alpha"),
    [
        (by_coins, "REFUTED", 0.05),
        (by_own_labels, "REFUTED", 0.05),
        (lambda case: by_own_labels(case, None), "UNDERPOWERED", 1.0),
    ],
)
def test_labels_that_one_party_is_sent_are_found_whichever_it_is(party, measured, wanted, alpha):
    found, measurement = verdict(measured, AtOne(party))
    assert (str(found), measurement.alpha) == (wanted, alpha)
    assert f"at passive party {party + 1}" in measurement.witness


@pytest.mark.simulations
def test_noise_alone_is_refuted_no_oftener_than_alpha():
    """Of 40 runs 5 % may be refuted: 9 or more are a chance of 1e-4."""
    assert sum(verdict(by_coins, AtOne(), seed=seed)[0] is Verdict.REFUTED for seed in range(40)) < 9


@pytest.mark.parametrize("measured", [by_coins, by_own_labels])
def test_a_claim_about_the_first_epoch_is_held_against_that_epoch_alone(measured):
    assert verdict(measured, AtOne(0), rounds=1)[0] is Verdict.REFUTED
    assert verdict(measured, AtOne(0, since=1), rounds=1)[0] is not Verdict.REFUTED
    assert verdict(measured, AtOne(0, since=1))[0] is Verdict.REFUTED


class Kept(VerticalProtection):
    """Labels are replaced by random ones once, and used in all epochs: more epochs are no further releases."""

    def targets(self, one_hot, context, rng):
        drawn = torch.from_numpy(rng.integers(3, size=tuple(one_hot.shape[:2])))
        return torch.nn.functional.one_hot(drawn, 3).to(one_hot)


@pytest.mark.parametrize("measured", [by_coins, by_own_labels])
def test_labels_that_are_released_once_are_within_a_claim_about_all_epochs_or_the_first(measured):
    for rounds in (1, 2):
        assert verdict(measured, Kept(), rounds=rounds)[0] is not Verdict.REFUTED


def test_all_guesses_right_are_the_most_that_one_run_certifies():
    case = label_case(AtOne(0), federation=FEDERATION)
    assert by_coins(case).epsilon_low == pytest.approx(most_in_one_run(case.claim, 400, 2, alpha=0.05))


CORRECT, HALVED = LabelRandomisedResponse(epsilon=1.0), ControlLabelFlipsHalved(epsilon=1.0)
PRIOR = (0.6, 0.3, 0.1)


def finding(defense, seed, *, n=400, prior=PRIOR, drawn=True):
    """The verdict on a claim of epsilon 1, about a defense; labels are ``drawn`` from the prior,
    or are those that the columns show.
    """
    task, plan = toy_vertical(LOGISTIC, n=n, batch=50)
    if drawn:
        rng = np.random.default_rng([seed, 1])
        labels = torch.from_numpy(rng.choice(3, size=n, p=PRIOR))
        task = replace(task, people=People(columns=task.people.columns, labels=labels))
    case = label_case(defense.prepare(plan).protection, seed=seed, federation=(task, plan))
    return judge(case.claim, by_own_labels(case, prior))


@pytest.mark.long
@pytest.mark.simulations
def test_a_correct_randomiser_is_refuted_no_oftener_than_alpha():
    """Of 400 runs 5 % may be refuted: 37 or more are a chance of 1e-4."""
    assert sum(finding(CORRECT, seed).verdict is Verdict.REFUTED for seed in range(400)) < 37


@pytest.mark.simulations
def test_a_correct_randomiser_is_rarely_refuted_and_one_that_flips_half_as_often_almost_always():
    assert sum(finding(CORRECT, seed).verdict is Verdict.REFUTED for seed in range(40)) <= 8
    assert sum(finding(HALVED, seed, n=2000).verdict is Verdict.REFUTED for seed in range(10)) >= 9


def test_labels_that_columns_show_refute_nothing_without_a_prior():
    found = finding(CORRECT, 0, drawn=False, prior=None)
    assert found.verdict is Verdict.UNDERPOWERED
    assert "columns alone may reveal labels" in found.measurement.witness
    assert (found.measurement.epsilon_low, found.measurement.ceiling) == (0, 0)


def test_each_label_is_raised_by_the_rows_of_its_own():
    rng = np.random.default_rng(1)
    labels = rng.integers(3, size=600)
    rows = rng.standard_normal((600, 4))
    rows[:, :3] += 3 * np.eye(3)[labels]
    found = raised(rows, labels[:400], 4)
    assert (found.argmax(1) == labels[400:]).mean() > 0.85
    # The last label is unknown to the adversary: no person with a known label has it.
    assert not np.isfinite(found[:, 3]).any()
    assert (raised(rows, np.zeros(400, dtype=np.int64), 4) == 0).all()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("size", [1.0, 1e-6])
def test_rows_that_are_the_labels_themselves_are_always_guessed(classes, size):
    labels = np.random.default_rng(0).integers(classes, size=400)
    found = raised(size * np.eye(classes)[labels], labels[:200], classes)
    assert (found.argmax(1) == labels[200:]).all()
    assert np.isfinite(found).all()
    assert found.max() > 100


def test_rows_that_are_all_alike_raise_no_label():
    labels = np.random.default_rng(0).integers(2, size=400)
    assert (raised(np.ones((400, 3)), labels[:200], 2) == 0).all()
