"""The audit that plants nothing: labels of a known law, correct and weak randomisers, and labels that columns show."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict, judge
from fedassay.audit.observer import PASSIVE_PARTY
from fedassay.defenses.controls.vertical import ControlLabelFlipsHalved
from fedassay.defenses.vertical.labels.label_randomised_response import LabelRandomisedResponse
from fedassay.fl.streams import Streams
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.fl.vertical.task import People
from fedassay.suites.vertical.case import VerticalCase
from fedassay.suites.vertical.label_coins import measured_by_labels, raised
from toy_vertical import LOGISTIC, SPLIT, toy_vertical

CORRECT, HALVED = LabelRandomisedResponse(epsilon=1.0), ControlLabelFlipsHalved(epsilon=1.0)
PRIOR = (0.6, 0.3, 0.1)
CLAIM = Claim.stated(1.0, unit="label", observer=PASSIVE_PARTY, rounds=2)


def finding(defense, seed, *, n=400, prior=PRIOR, drawn=True, alpha=0.05):
    """The verdict on a claim of epsilon 1, about a defense; labels are ``drawn`` from the prior,
    or are those that the columns show.
    """
    task, plan = toy_vertical(LOGISTIC, n=n, batch=50)
    if drawn:
        rng = np.random.default_rng([seed, 1])
        labels = torch.from_numpy(rng.choice(3, size=n, p=PRIOR))
        task = replace(task, people=People(columns=task.people.columns, labels=labels))
    protection = defense.prepare(plan).protection
    case = VerticalCase(claim=CLAIM, task=task, plan=plan, protection=protection, streams=Streams(seed))
    return judge(CLAIM, measured_by_labels(case, prior, alpha=alpha))


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
    assert "columns alone may show labels" in found.measurement.witness
    assert (found.measurement.epsilon_low, found.measurement.ceiling) == (0, 0)


class AtOne(VerticalProtection):
    """Sends gradients as they are to one party, and nothing to others."""

    def __init__(self, party):
        self.party = party

    def gradients(self, values, party, context, rng):
        return values if party == self.party else torch.zeros_like(values)


@pytest.mark.parametrize("prior", [(1 / 3,) * 3, None])
@pytest.mark.parametrize("party", [0, 1])
def test_labels_that_one_party_is_sent_are_found_whichever_it_is(party, prior):
    task, plan = toy_vertical(SPLIT, n=400, batch=50)
    case = VerticalCase(claim=CLAIM, task=task, plan=plan, protection=AtOne(party))
    measured = measured_by_labels(case, prior, alpha=0.05)
    assert f"at passive party {party + 1}" in measured.witness
    assert measured.alpha == (0.05 if prior else 1.0)
    assert judge(CLAIM, measured).verdict is (Verdict.REFUTED if prior else Verdict.UNDERPOWERED)


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
