"""Laplace noise on one-hot labels: its scale, its exact loss, and the posterior against densities by hand."""

import numpy as np
import pytest
import torch
from fedassay.defenses.accounting.pure import composed_epsilon
from fedassay.defenses.vertical.labels.label_laplace import LabelLaplace, posterior
from fedassay.fl.vertical.protection import Noise, Noised
from scipy.stats import kstest, laplace
from toy_vertical import LOGISTIC, SPLIT, Taped, context_of, steps_of, toy_vertical, with_label


def test_the_scale_is_two_over_epsilon_and_the_loss_of_two_labels_reaches_epsilon():
    _, plan = toy_vertical(LOGISTIC)
    prepared = LabelLaplace(epsilon=0.8).prepare(plan)
    law = prepared.laws[prepared.claims[0].claim_id]
    assert (law.noised, law.noise, law.releases) == (Noised.TARGETS, Noise.LAPLACE, 1)
    assert law.scale == prepared.protection.scale == pytest.approx(2.5)
    labels, points = np.eye(3), np.random.default_rng(0).uniform(-3, 3, (5000, 3))
    density = [laplace.logpdf(points, loc=label, scale=law.scale).sum(-1) for label in labels]
    assert max(np.abs(density[0] - density[1]).max(), np.abs(density[0] - density[2]).max()) <= 0.8 + 1e-12
    far = np.array([2.0, -1.0, 0.3])
    loss = laplace.logpdf(far, loc=labels[0], scale=law.scale) - laplace.logpdf(far, loc=labels[1], scale=law.scale)
    assert loss.sum() == pytest.approx(0.8)


def test_the_noise_is_laplaces():
    """Kolmogorov-Smirnov on 30,000 numbers at level 1e-6; a tenth more scale is found."""
    _, plan = toy_vertical(LOGISTIC, n=10_000)
    protection = LabelLaplace(epsilon=1.0).prepare(plan).protection
    one_hot = torch.eye(3)[torch.arange(10_000) % 3].unsqueeze(0)
    noise = (protection.targets(one_hot, context_of(plan), np.random.default_rng(2)) - one_hot).flatten().numpy()
    assert kstest(noise, laplace(scale=2.0).cdf).pvalue > 1e-6
    assert kstest(noise, laplace(scale=2.2).cdf).pvalue < 1e-6


def test_the_posterior_is_that_of_the_densities():
    rng = np.random.default_rng(1)
    noised, prior = rng.normal(0, 2, (50, 4)), rng.dirichlet(np.ones(4), 50)
    density = np.stack([np.exp(laplace.logpdf(noised, loc=label, scale=1.7).sum(-1)) for label in np.eye(4)], axis=-1)
    wanted = density * prior / (density * prior).sum(-1, keepdims=True)
    found = posterior(torch.from_numpy(noised), torch.from_numpy(prior), 1.7)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-10)


def test_each_step_trains_on_the_posterior_of_the_current_prediction():
    task, plan = toy_vertical(LOGISTIC)
    inner = LabelLaplace(epsilon=2.0).prepare(plan).protection
    tape = Taped(inner)
    for step in steps_of(task, plan, tape):
        predicted = tape.inputs["residuals", step.step, -1] + step.targets
        assert torch.allclose(predicted.sum(-1), torch.ones(1, 4), atol=1e-5)
        wanted = predicted - posterior(step.targets, predicted, inner.scale)
        torch.testing.assert_close(tape.outputs["residuals", step.step, -1], wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("network", [LOGISTIC, SPLIT])
def test_another_label_moves_its_own_noised_label_by_two_and_no_other(network):
    task, plan = toy_vertical(network)
    protection = LabelLaplace(epsilon=2.0).prepare(plan).protection
    one, other = (steps_of(task, plan, protection, planted=with_label(task, 4, label)) for label in (0, 2))
    for x, y in zip(one, other, strict=True):
        moved = (x.targets - y.targets)[0].abs().sum(-1)
        assert moved.tolist() == pytest.approx([2.0 if person == 4 else 0.0 for person in x.people.tolist()], abs=1e-5)


def test_noise_that_is_redrawn_shares_the_budget():
    task, plan = toy_vertical(LOGISTIC, epochs=5)
    prepared = LabelLaplace(epsilon=2.0, delta=1e-6, redraw=True).prepare(plan)
    each = 2 / prepared.protection.scale
    assert composed_epsilon(each, releases=5, delta=1e-6) == pytest.approx(2.0, rel=1e-6)
    first = {step.epoch: step.targets[0, step.people == 4] for step in steps_of(task, plan, prepared.protection)}
    assert len({tuple(row.flatten().tolist()) for row in first.values()}) >= 4
