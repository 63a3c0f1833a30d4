"""Attacks on the gradients that a passive party receives: what they find without a defense, and which way round."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Undefined
from fedassay.attacks.vertical.gradient_direction import GradientDirection
from fedassay.attacks.vertical.gradient_norm import GradientNorm
from fedassay.attacks.vertical.gradient_sign import GradientSign
from fedassay.attacks.vertical.spectral import Spectral
from fedassay.fl.vertical.network import VerticalNetwork
from vertical_adversary import LINEAR, LOGISTIC, SPLIT, accuracy, auc, drawn_task, observed

RNG = np.random.default_rng(11)
RARE = (0.9, 0.1)


def undefended(network, people=600, known=20, **changes):
    task, plan = drawn_task(network, people, **({"shares": RARE, "learning_rate": 0.3} | changes))
    return observed(task, plan, known=known)


@pytest.mark.parametrize("shares", [RARE, RARE[::-1]])
def test_the_norm_finds_the_rarer_class_whichever_it_is(shares):
    """Li et al. report areas near 1 without a defense; the second class is the rarer or the more frequent one."""
    seen = undefended(SPLIT, shares=shares, epochs=4)
    found = GradientNorm().run(seen.view, seen.knowledge, RNG)
    assert auc(found, seen.task.people.labels) > 0.95
    assert accuracy(found, seen.task.people.labels) > 0.9


def test_the_norm_is_relative_to_its_step():
    seen = undefended(LOGISTIC)
    steps = [replace(step, gradients=step.gradients * (1 + 9 * (step.step % 2))) for step in seen.view.steps]
    scaled = replace(seen.view, steps=tuple(steps))
    one, other = (GradientNorm().run(view, seen.knowledge, RNG).scores for view in (seen.view, scaled))
    np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("attack", [GradientNorm(), Spectral()])
def test_more_than_two_classes_are_not_separated_by_one_number(attack):
    network = VerticalNetwork(widths=(5, 4), classes=3, embedding=3, summed=True)
    task, plan = drawn_task(network)
    seen = observed(task, plan)
    with pytest.raises(Undefined, match="two classes only"):
        attack.run(seen.view, seen.knowledge, RNG)


@pytest.mark.parametrize("attack", [GradientNorm(), Spectral()])
def test_equally_frequent_classes_have_no_rarer_one(attack):
    seen = undefended(LOGISTIC, known=0)
    equal = replace(seen.knowledge, prior=torch.tensor([0.5, 0.5]))
    with pytest.raises(Undefined, match="equally frequent"):
        attack.run(seen.view, equal, RNG)


@pytest.mark.parametrize("network", [LOGISTIC, LINEAR, SPLIT])
@pytest.mark.parametrize("attack", [GradientDirection(), GradientDirection(epochs=1), Spectral()])
def test_directions_separate_two_classes(network, attack):
    seen = undefended(network, shares=(0.5, 0.5))
    assert auc(attack.run(seen.view, seen.knowledge, RNG), seen.task.people.labels) > 0.99


@pytest.mark.parametrize("label", [0, 1])
def test_one_known_label_of_either_class_is_enough(label):
    seen = undefended(LOGISTIC, shares=(0.5, 0.5))
    person = torch.nonzero(seen.task.people.labels == label)[:1, 0]
    few = replace(seen.knowledge, known=person, known_labels=seen.task.people.labels[person])
    found = GradientDirection().run(seen.view, few, RNG)
    assert auc(found, seen.task.people.labels) > 0.99
    assert accuracy(found, seen.task.people.labels) > 0.99


def test_without_known_labels_no_direction_is_known():
    seen = undefended(LOGISTIC, known=0)
    with pytest.raises(Undefined, match="no label is known"):
        GradientDirection().run(seen.view, seen.knowledge, RNG)


@pytest.mark.parametrize("shares", [RARE, RARE[::-1]])
def test_the_longer_tail_orients_the_singular_vector_without_known_labels(shares):
    seen = undefended(SPLIT, shares=shares, known=0, epochs=4)
    assert auc(Spectral().run(seen.view, seen.knowledge, RNG), seen.task.people.labels) > 0.9


def test_embeddings_of_a_trained_model_separate_two_classes():
    seen = undefended(SPLIT, shares=(0.5, 0.5), epochs=4)
    assert auc(Spectral(of="embeddings").run(seen.view, seen.knowledge, RNG), seen.task.people.labels) > 0.9


@pytest.mark.parametrize("swapped", [False, True])
def test_known_labels_orient_the_singular_vector(swapped):
    """With known labels that are all wrong, the orientation is wrong as well: they decide it."""
    seen = undefended(LOGISTIC, shares=(0.5, 0.5))
    labels = 1 - seen.knowledge.known_labels if swapped else seen.knowledge.known_labels
    found = Spectral().run(seen.view, replace(seen.knowledge, known_labels=labels), RNG)
    assert (auc(found, seen.task.people.labels) > 0.5) is not swapped


@pytest.mark.parametrize("epochs", [1, 2, "all"])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_negative_coordinate_of_summed_logits_is_the_label(classes, epochs):
    network = VerticalNetwork(widths=(5, 4), classes=classes, embedding=classes, summed=True)
    task, plan = drawn_task(network, epochs=4)
    seen = observed(task, plan, known=0)
    found = GradientSign(epochs=epochs).run(seen.view, seen.knowledge, RNG)
    assert accuracy(found, task.people.labels) == 1


@pytest.mark.parametrize("network", [LINEAR, SPLIT])
def test_clusters_around_the_initial_directions_are_the_two_classes(network):
    seen = undefended(network, shares=(0.6, 0.4), known=0)
    assert accuracy(GradientSign().run(seen.view, seen.knowledge, RNG), seen.task.people.labels) > 0.95


@pytest.mark.parametrize("wrong", [0, 1.5, True, "none"])
def test_epochs_are_a_number_or_all(wrong):
    with pytest.raises(ValueError, match='epochs must be a whole number >= 1 or "all"'):
        GradientNorm(epochs=wrong)


def test_a_spectral_attack_on_something_else_is_refused():
    with pytest.raises(ValueError, match='"gradients" or "embeddings"'):
        Spectral(of="logits")
