"""Noise on residuals: its calibration, what one label moves of all that is released, and what fails for noise on the
gradients that are sent alone.
"""

import math

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from fedassay.audit.claim import NOT_PROVABLE, PROVABLE
from fedassay.audit.curve import epsilon_from_mu
from fedassay.audit.observer import FINAL_MODEL, PASSIVE_PARTY
from fedassay.defenses.accounting.pure import composed_epsilon
from fedassay.defenses.vertical.defense import clipped
from fedassay.defenses.vertical.labels.label_gradient_noise import LabelGradientNoise
from fedassay.fl.vertical.network import VerticalNetwork
from fedassay.fl.vertical.protection import Noise, Noised
from toy_vertical import LOGISTIC, SPLIT, context_of, moved_by, toy_vertical, with_label

NO_COLUMNS = VerticalNetwork(widths=(3, 0), classes=3, embedding=3, summed=True)
"""The active party has no columns, and a bias."""
LINEAR_TOP = VerticalNetwork(widths=(3, 0), classes=3, embedding=8)


def other_label(task, person=4):
    return with_label(task, person, (int(task.people.labels[person]) + 1) % task.network.classes)


def equal(one, other):
    return len(one) == len(other) and all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


@pytest.mark.parametrize("epochs", [1, 10])
def test_the_gaussian_scale_is_what_dp_accounting_needs(epochs):
    _, plan = toy_vertical(LOGISTIC, epochs=epochs)
    prepared = LabelGradientNoise(epsilon=2.0, delta=1e-5).prepare(plan)
    multiplier = prepared.protection.scale / math.sqrt(2)
    # Under add/remove the library takes noise over the sensitivity as it is.
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(multiplier), epochs)
    assert PLDAccountant().compose(event).get_epsilon(1e-5) == pytest.approx(2.0, rel=2e-3)
    for claim in prepared.claims:
        assert claim.curve.mu == pytest.approx(math.sqrt(epochs) / multiplier)
        assert prepared.spending[claim.claim_id](epochs) == pytest.approx(2.0, rel=1e-6)
    assert [claim.observer for claim in prepared.claims] == [PASSIVE_PARTY, FINAL_MODEL]
    law = prepared.laws[prepared.claims[0].claim_id]
    assert (law.noised, law.noise, law.scale, law.releases) == (
        Noised.RESIDUALS,
        Noise.GAUSSIAN,
        prepared.protection.scale,
        epochs,
    )


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_laplace_scale_is_two_over_the_epsilon_of_an_epoch(delta):
    _, plan = toy_vertical(LOGISTIC, epochs=30)
    prepared = LabelGradientNoise(epsilon=3.0, delta=delta, noise="laplace").prepare(plan)
    each = 2 / prepared.protection.scale
    assert composed_epsilon(each, releases=30, delta=delta) == pytest.approx(3.0, rel=1e-6)
    assert delta or each == pytest.approx(0.1)


def test_the_noise_has_the_stated_deviation(has_std):
    _, plan = toy_vertical(LOGISTIC)
    protection = LabelGradientNoise().prepare(plan).protection
    zeros = torch.zeros(2, 5000, 3)
    noise = protection.residuals(zeros, context_of(plan), np.random.default_rng(0))
    assert has_std(noise, protection.scale)
    assert not has_std(noise, 1.03 * protection.scale)


@pytest.mark.parametrize("network", [LOGISTIC, SPLIT, NO_COLUMNS])
def test_given_the_noised_residuals_one_label_moves_its_own_residuals_by_root_two_and_nothing_else(network):
    """Adaptive composition: with all earlier releases equal, the next one moves by at most the sensitivity, once per
    epoch, and the whole transcript and all models are the same.
    """
    task, plan = toy_vertical(network, epochs=3, learning_rate=0.05)
    protection = LabelGradientNoise(epsilon=1.0).prepare(plan).protection
    first, second, moves = moved_by(task, plan, protection, {"residuals"}, other_label(task))
    for x, y in zip(first, second, strict=True):
        assert equal(x.gradients, y.gradients)
        assert equal(x.embeddings, y.embeddings)
        assert all(equal(a, b) for a, b in zip(x.models.bottoms, y.models.bottoms, strict=True))
        assert equal(x.models.top, y.models.top)
    moved = 0
    for step in first:
        lengths = moves["residuals", step.step, -1].norm(dim=-1)
        assert not lengths[step.people != 4].any()
        own = lengths[step.people == 4]
        assert own.tolist() == pytest.approx([math.sqrt(2)] * len(own))
        moved += len(own)
    assert moved == plan.epochs


def test_laplaces_sensitivity_is_two():
    task, plan = toy_vertical(SPLIT, learning_rate=0.05)
    protection = LabelGradientNoise(epsilon=1.0, noise="laplace").prepare(plan).protection
    _, _, moves = moved_by(task, plan, protection, {"residuals"}, other_label(task))
    assert max(float(move.abs().sum(-1).max()) for move in moves.values()) == pytest.approx(2.0)


@pytest.mark.parametrize("network", [LOGISTIC, SPLIT, NO_COLUMNS])
def test_as_published_one_label_moves_the_later_gradients_of_all_others(network):
    """A witness of reading 2: all that was sent is equal, and what is sent next about others is not."""
    task, plan = toy_vertical(network)
    protection = LabelGradientNoise(variant="as_published").prepare(plan).protection
    first, _, moves = moved_by(task, plan, protection, {"gradients"}, other_label(task))
    when = next(step.step for step in first if (step.people == 4).any())
    others = [float(moves["gradients", step.step, 0][step.people != 4].norm()) for step in first if step.step != when]
    assert all(length == 0 for length in others[:when])
    assert all(length > 1e-4 for length in others[when:])


def test_in_a_single_step_nothing_moves_before_all_is_sent():
    task, plan = toy_vertical(SPLIT, epochs=1, batch=12)
    prepared = LabelGradientNoise(variant="as_published").prepare(plan)
    first, _, moves = moved_by(task, plan, prepared.protection, {"gradients"}, other_label(task))
    assert not moves["gradients", 0, 0][first[0].people != 4].any()
    assert prepared.claims[0].parameters[PROVABLE] == prepared.claims[0].epsilon


def test_as_published_one_epochs_gradients_about_others_alone_show_more_of_a_label_than_is_stated():
    """A witness of reading 2, without a second message about the person. The bottom models are frozen and the active
    party's updates have no noise, so that what moves does not depend on the noise: the releases are Gaussians with two
    fixed means, whose trade-off curve is exactly that of their distance over the deviation.
    """
    # At 1.8 and more rounding grows into other numbers on other processors.
    task, plan = toy_vertical(LINEAR_TOP, n=200, epochs=1, batch=4, learning_rate=1.7, frozen=True)
    prepared = LabelGradientNoise(epsilon=1.0, variant="as_published").prepare(plan)
    (claim,), protection = prepared.claims, prepared.protection
    assert str(claim.parameters[NOT_PROVABLE]).startswith("none: ")
    first, _, moves = moved_by(
        task,
        plan,
        protection,
        {"gradients"},
        other_label(task),
        of=lambda values: clipped(values, protection.clip_norm, Noise.GAUSSIAN),
    )
    about_others = [moves["gradients", step.step, 0][step.people != 4] for step in first]
    mu = float(torch.cat(about_others).norm()) / protection.scale
    assert epsilon_from_mu(mu, claim.delta) == pytest.approx(2.9, abs=0.05)


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match="noise must be"):
        LabelGradientNoise(noise="uniform")
    with pytest.raises(ValueError, match="delta must be in"):
        LabelGradientNoise(delta=0.0)
    with pytest.raises(ValueError, match="epsilon is too large"):
        LabelGradientNoise(epsilon=1e4).prepare(toy_vertical(LOGISTIC)[1])
