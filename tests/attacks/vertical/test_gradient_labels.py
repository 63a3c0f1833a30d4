"""Attacks on the gradients that a passive party receives: what they find without a defense, and which way round.

The posterior of labels under published laws, against formulas and against predictions that are recorded.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Undefined
from fedassay.attacks.vertical.attack import replay
from fedassay.attacks.vertical.gradient_direction import GradientDirection
from fedassay.attacks.vertical.gradient_likelihood import GradientLikelihood
from fedassay.attacks.vertical.gradient_norm import GradientNorm
from fedassay.attacks.vertical.gradient_sign import GradientSign
from fedassay.attacks.vertical.majority_label import MajorityLabel
from fedassay.attacks.vertical.spectral import Spectral
from fedassay.fl.streams import normal
from fedassay.fl.vertical.network import VerticalNetwork
from fedassay.fl.vertical.protection import Noise, Noised, VerticalLaw, VerticalProtection
from scipy.stats import norm
from torch.nn.functional import one_hot
from vertical_adversary import LINEAR, LOGISTIC, SPLIT, accuracy, auc, auc_deviations, drawn_task, observed

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


WORST = GradientLikelihood(knows="columns")
EPOCHS = 4


class Residuals(VerticalProtection):
    """Noise on residuals; keeps what the active party predicted."""

    def __init__(self, scale: float, noise: Noise = Noise.GAUSSIAN) -> None:
        self.scale, self.noise, self.seen = scale, noise, []

    def residuals(self, values, context, rng):
        self.seen.append((context.epoch, context.people, values[0] + context.targets[0]))
        if self.noise is Noise.LAPLACE:
            return values + torch.from_numpy(rng.laplace(scale=self.scale, size=tuple(values.shape))).float()
        return values + self.scale * normal(rng, tuple(values.shape))

    def law(self, releases: int = EPOCHS) -> VerticalLaw:
        return VerticalLaw(noised=Noised.RESIDUALS, noise=self.noise, scale=self.scale, releases=releases)


class Gradients(VerticalProtection):
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def gradients(self, values, party, context, rng):
        return values + self.scale * normal(rng, tuple(values.shape))


class Response(VerticalProtection):
    """A label is kept with probability ``kept`` and else drawn among all classes."""

    def __init__(self, kept: float, redraws: bool = False) -> None:
        self.kept, self.redraws, self.drawn = kept, redraws, []

    def targets(self, one_hot_labels, context, rng):
        labels, classes = one_hot_labels.argmax(-1), one_hot_labels.shape[-1]
        other = torch.from_numpy(rng.integers(classes, size=tuple(labels.shape)))
        labels = torch.where(torch.from_numpy(rng.random(tuple(labels.shape)) < self.kept), labels, other)
        self.drawn.append(labels[0])
        return one_hot(labels, classes).to(one_hot_labels)

    def law(self, classes: int, releases: int = 1) -> VerticalLaw:
        channel = self.kept * torch.eye(classes) + (1 - self.kept) / classes
        return VerticalLaw(noised=Noised.TARGETS, channel=channel, releases=releases)


class Posterior(VerticalProtection):
    """Trains on the posterior of the label, given its noised one-hot encoding and the prediction."""

    scale = 1.0

    def targets(self, one_hot_labels, context, rng):
        noise = torch.from_numpy(rng.laplace(scale=self.scale, size=tuple(one_hot_labels.shape))).float()
        self.noised = one_hot_labels + noise
        return self.noised

    def residuals(self, values, context, rng):
        predicted = values + context.targets
        return predicted - torch.softmax(predicted.log() + self.likelihood(context.targets), dim=-1)

    def likelihood(self, noised):
        """By hand: the log density of the noise for each label."""
        each = torch.eye(noised.shape[-1])
        return -(noised.unsqueeze(-2) - each).abs().sum(-1) / self.scale


def noised(protection, network=LOGISTIC, people=1000, signal=0.5, **changes):
    task, plan = drawn_task(network, people, signal=signal, epochs=EPOCHS, **changes)
    return task, observed(task, plan, protection, known=0, law=protection.law(), columns=task.people.columns)


@pytest.mark.parametrize("network", [LOGISTIC, LINEAR])
def test_an_adversary_that_knows_the_columns_computes_all_predictions_again(network):
    """Against the recorded predictions; the top model of the second one is not public after the first step."""
    protection = Residuals(0.5)
    _, seen = noised(protection, network, people=200)
    found = replay(seen.view, seen.knowledge)
    for epoch, people, predictions in protection.seen:
        torch.testing.assert_close(found.probabilities[epoch, people].float(), predictions, atol=1e-4, rtol=0)


@pytest.mark.parametrize("signal", [0.0, 1.0])
@pytest.mark.parametrize("network", [LOGISTIC, LINEAR])
def test_known_predictions_give_the_optimal_test(network, signal):
    """Two labels are sqrt 2 apart in each of 4 releases with noise 2: the area is Phi(sqrt 4 / 2) = .841, whether or
    not the model predicts well. Within 4 standard errors (at most .5 / sqrt 500 each).
    """
    task, seen = noised(Residuals(2.0), network, signal=signal)
    assert auc(WORST.run(seen.view, seen.knowledge, RNG), task.people.labels) == pytest.approx(norm.cdf(1.0), abs=0.09)


@pytest.mark.parametrize("noise", list(Noise))
def test_known_predictions_give_the_noises_density_by_hand(noise):
    protection = Residuals(1.5, noise)
    _, seen = noised(protection, people=60)
    found = WORST.run(seen.view, seen.knowledge, RNG).scores
    gradients = {step.step: step.gradients[0] for step in seen.view.steps}
    wanted = seen.knowledge.prior.log().expand(60, 2).clone()
    for step, (_, people, predictions) in enumerate(protection.seen):
        for label in (0, 1):
            away = gradients[step] - predictions + one_hot(torch.tensor(label), 2)
            size = away.abs() / 1.5 if noise is Noise.LAPLACE else away.square() / (2 * 1.5**2)
            wanted[people, label] -= size.sum(1).double()
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-3)


def test_without_the_predictions_no_more_is_found_than_with_them():
    """With independent columns predictions are close to 1/2 and little is lost; where the model predicts, much is."""
    areas = {}
    for signal in (0.0, 1.0):
        task, seen = noised(Residuals(2.0), signal=signal, learning_rate=0.3)
        for attack in (GradientLikelihood(), WORST):
            areas[signal, attack.knows] = auc(attack.run(seen.view, seen.knowledge, RNG), task.people.labels)
    assert areas[0.0, "gradients"] == pytest.approx(areas[0.0, "columns"], abs=0.03)
    assert areas[1.0, "gradients"] < areas[1.0, "columns"] - 0.1


@pytest.mark.parametrize("clip", [None, 0.5])
def test_noise_on_gradients_of_summed_logits_is_noise_on_residuals(clip):
    """With little noise every label is found; a clip keeps the direction, which is all that the attack needs."""

    class Clipped(Gradients):
        def gradients(self, values, party, context, rng):
            if clip is not None:
                values = values * (clip / values.norm(dim=-1, keepdim=True)).clamp(max=1)
            return super().gradients(values, party, context, rng)

    law = VerticalLaw(noised=Noised.GRADIENTS, noise=Noise.GAUSSIAN, scale=0.05, clip=clip, releases=EPOCHS)
    task, plan = drawn_task(LOGISTIC, 400, epochs=EPOCHS, signal=0.0)
    seen = observed(task, plan, Clipped(0.05), law=law)
    assert accuracy(GradientLikelihood().run(seen.view, seen.knowledge, RNG), task.people.labels) == 1


@pytest.mark.parametrize("protection", [Residuals(1e4), Residuals(1e4, Noise.LAPLACE)])
@pytest.mark.parametrize("attack", [GradientLikelihood(), WORST])
def test_under_vast_noise_the_posterior_is_the_prior(protection, attack):
    """The scores are those of the null attack up to a constant of the person; the AUC is within 4 standard deviations
    of 1/2 (false alarm 6e-5).
    """
    task, seen = noised(protection, people=300, learning_rate=1e-6)
    found = attack.run(seen.view, seen.knowledge, RNG)
    null = MajorityLabel().run(seen.view, seen.knowledge, RNG).scores
    posterior = np.exp(found.scores - np.logaddexp.reduce(found.scores, axis=1, keepdims=True))
    np.testing.assert_allclose(posterior, null, atol=0.01)
    assert abs(auc_deviations(found, task.people.labels)) < 4


@pytest.mark.parametrize("attack", [GradientLikelihood(), WORST])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_released_label_is_read_and_its_posterior_is_the_channels(classes, attack):
    network = VerticalNetwork(widths=(5, 4), classes=classes, embedding=classes, summed=True)
    protection = Response(0.5)
    task, plan = drawn_task(network, 300, epochs=2)
    law = protection.law(classes)
    seen = observed(task, plan, protection, known=0, law=law, columns=task.people.columns)
    wanted = law.channel[:, protection.drawn[0]].T * seen.knowledge.prior
    np.testing.assert_allclose(attack.run(seen.view, seen.knowledge, RNG).scores, wanted.log().numpy(), atol=1e-5)


def test_labels_that_are_drawn_again_are_counted_once_per_epoch():
    protection = Response(0.5, redraws=True)
    task, plan = drawn_task(LOGISTIC, 300, epochs=3)
    law = protection.law(2, releases=3)
    seen = observed(task, plan, protection, known=0, law=law)
    wanted = seen.knowledge.prior.log() + sum(law.channel[:, drawn].T.log() for drawn in protection.drawn)
    found = GradientLikelihood().run(seen.view, seen.knowledge, RNG)
    np.testing.assert_allclose(found.scores, wanted.numpy(), atol=1e-5)


@pytest.mark.parametrize("network", [LOGISTIC, LINEAR])
def test_a_posterior_shows_the_noised_target_to_those_who_know_the_predictions(network):
    """The difference of two labels' log likelihoods, from the noised targets by hand."""
    protection = Posterior()
    law = VerticalLaw(noised=Noised.TARGETS, noise=Noise.LAPLACE, scale=1.0, releases=1)
    task, plan = drawn_task(network, 300)
    seen = observed(task, plan, protection, known=0, law=law, columns=task.people.columns)
    by_hand = protection.likelihood(protection.noised)[0] + seen.knowledge.prior.log()
    scores = WORST.run(seen.view, seen.knowledge, RNG).scores
    np.testing.assert_allclose(scores[:, 1] - scores[:, 0], (by_hand[:, 1] - by_hand[:, 0]).numpy(), atol=0.02)


def law_of(noised_message):
    return VerticalLaw(noised=noised_message, noise=Noise.GAUSSIAN, scale=1.0, releases=2)


@pytest.mark.parametrize(
    ("attack", "network", "law", "words"),
    [
        (GradientLikelihood(), LOGISTIC, None, "no noise distribution"),
        (GradientLikelihood(), LOGISTIC, law_of(Noised.EMBEDDINGS), "that of embeddings"),
        (GradientLikelihood(), LINEAR, law_of(Noised.RESIDUALS), "top model is not public"),
        (WORST, LOGISTIC, law_of(Noised.GRADIENTS), "does not see"),
        (WORST, VerticalNetwork(widths=(5, 4), classes=2, embedding=1), law_of(Noised.RESIDUALS), "do not determine"),
    ],
)
def test_what_cannot_be_computed_is_undefined(attack, network, law, words):
    task, plan = drawn_task(network)
    seen = observed(task, plan, law=law, columns=task.people.columns)
    with pytest.raises(Undefined, match=words):
        attack.run(seen.view, seen.knowledge, RNG)


def test_the_worst_case_needs_the_columns():
    _, seen = noised(Residuals(1.0), people=60)
    with pytest.raises(ValueError, match="columns of all parties"):
        WORST.run(seen.view, replace(seen.knowledge, columns=None), RNG)
