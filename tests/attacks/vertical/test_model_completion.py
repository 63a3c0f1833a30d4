"""A passive party's own bottom model, completed with few known labels, against learning from them alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Undefined
from fedassay.attacks.vertical.active_completion import ActiveCompletion
from fedassay.attacks.vertical.drawn_labels import DrawnLabels
from fedassay.attacks.vertical.imputed_labels import ImputedLabels
from fedassay.attacks.vertical.majority_label import MajorityLabel
from fedassay.attacks.vertical.model_completion import ModelCompletion
from fedassay.fl.vertical.network import VerticalNetwork
from vertical_adversary import LINEAR, LOGISTIC, accuracy, auc, drawn_task, observed

RNG = np.random.default_rng(11)
WIDE = VerticalNetwork(widths=(40, 4), classes=2, embedding=2, summed=True)


def wide(learning_rate=0.1, **changes):
    """Many columns and few known labels: a federation learns the direction, and ten people alone do not."""
    task, plan = drawn_task(WIDE, 1000, signal=0.2, epochs=5, learning_rate=learning_rate)
    return observed(task, plan, known=10, **changes)


def test_the_trained_model_adds_to_the_known_labels():
    seen = wide()
    completed, alone = (
        auc(attack.run(seen.view, seen.knowledge, RNG), seen.task.people.labels)
        for attack in (ModelCompletion(), ImputedLabels())
    )
    assert completed > alone + 0.05


def test_a_faster_party_infers_more_from_a_short_training():
    """.87 and .94 here; after a long training the party's own speed makes no difference."""
    attack = ActiveCompletion(speed=5.0)
    plain, fast = (
        auc(attack.run(seen.view, seen.knowledge, RNG), seen.task.people.labels)
        for seen in (wide(0.01), wide(0.01, speeds=dict(attack.speeds(0))))
    )
    assert fast > plain + 0.03


def test_a_frozen_model_cannot_be_trained_faster():
    task, plan = drawn_task(LINEAR, frozen=True)
    seen = observed(task, plan)
    with pytest.raises(Undefined, match="not trained"):
        ActiveCompletion().run(seen.view, seen.knowledge, RNG)
    with pytest.raises(ValueError, match="speed must be a number > 0"):
        ActiveCompletion(speed=0.0)


def test_a_class_without_known_people_is_the_least_likely():
    network = VerticalNetwork(widths=(5, 4), classes=3, embedding=3, summed=True)
    task, plan = drawn_task(network)
    seen = observed(task, plan)
    two = torch.nonzero(task.people.labels < 2)[:20, 0]
    few = replace(seen.knowledge, known=two, known_labels=task.people.labels[two])
    scores = ModelCompletion().run(seen.view, few, RNG).scores
    assert (scores.argmin(1) == 2).all()


@pytest.mark.parametrize("attack", [ModelCompletion(), ImputedLabels(), ActiveCompletion()])
def test_known_people_of_one_class_teach_nothing(attack):
    task, plan = drawn_task(LOGISTIC)
    seen = observed(task, plan)
    one = torch.nonzero(task.people.labels == 1)[:5, 0]
    few = replace(seen.knowledge, known=one, known_labels=task.people.labels[one])
    with pytest.raises(Undefined, match="at least two classes, got 1"):
        attack.run(seen.view, few, RNG)


def test_drawn_labels_follow_the_prior_and_the_majority_is_its_largest_class():
    """2,000 draws: the share of class 1 is within 4 standard errors, .04, of .3."""
    task, plan = drawn_task(LOGISTIC, 2000, epochs=1)
    seen = observed(task, plan, known=0, prior=torch.tensor([0.7, 0.3]))
    drawn = DrawnLabels().run(seen.view, seen.knowledge, RNG)
    assert drawn.scores[:, 1].mean() == pytest.approx(0.3, abs=0.04)
    assert (drawn.scores.sum(1) == 1).all()
    found = MajorityLabel().run(seen.view, seen.knowledge, RNG)
    assert accuracy(found, task.people.labels) == float((task.people.labels == 0).double().mean())
    assert auc(found, task.people.labels) == 0.5
