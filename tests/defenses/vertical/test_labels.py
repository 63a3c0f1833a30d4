"""Randomised response on labels: its table, its budget once and in every epoch, and how well a label is guessed.

Laplace noise on one-hot labels: its scale, its exact loss, and the posterior against densities by hand.

Noise on residuals: its calibration, what one label moves of all that is released, and what fails for noise on the
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
from fedassay.defenses.vertical.labels.label_laplace import LabelLaplace, LabelLaplaceProtection, posterior
from fedassay.defenses.vertical.labels.label_randomised_response import LabelRandomisedResponse
from fedassay.defenses.vertical.labels.label_rr_with_prior import LabelRRWithPrior, likely_classes
from fedassay.fl.vertical.network import VerticalNetwork
from fedassay.fl.vertical.protection import Noise, Noised
from scipy.stats import chi2, kstest, laplace
from toy_vertical import LOGISTIC, SPLIT, Taped, context_of, moved_by, steps_of, toy_vertical, with_label

WIDE = VerticalNetwork(widths=(2, 2), classes=5, embedding=5, summed=True)


def epsilon_of(channel):
    """The largest log-ratio of two rows' probabilities of one output that has any."""
    logs = channel[:, (channel > 0).any(0)].log()
    return float((logs.amax(0) - logs.amin(0)).max())


def fits(channel, protection, plan, draws=4000):
    """Chi-square of the drawn labels of each label against its row; falsely no once in a million seeds a row."""
    classes = plan.network.classes
    one_hot = torch.eye(classes).repeat(draws, 1).unsqueeze(0)
    drawn = protection.targets(one_hot, context_of(plan), np.random.default_rng(0))[0].view(draws, classes, classes)
    assert drawn.sum(-1).unique().tolist() == [1]
    counts, wanted = drawn.sum(0).double(), draws * channel
    assert not counts[wanted == 0].any()
    for count, mean in zip(counts, wanted, strict=True):
        possible = mean > 0
        statistic = float(((count - mean)[possible] ** 2 / mean[possible]).sum())
        if statistic > chi2.ppf(1 - 1e-6, max(1, int(possible.sum()) - 1)):
            return False
    return True


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_table_is_the_closed_form_and_its_epsilon_the_stated_one(epsilon):
    _, plan = toy_vertical(WIDE)
    prepared = LabelRandomisedResponse(epsilon=epsilon).prepare(plan)
    (channel,) = {law.channel for law in prepared.laws.values()}
    truth = math.exp(epsilon) / (math.exp(epsilon) + 4)
    assert channel.diagonal().tolist() == pytest.approx([truth] * 5)
    assert channel[0, 1:].tolist() == pytest.approx([(1 - truth) / 4] * 4)
    assert epsilon_of(channel) == pytest.approx(epsilon)


def test_labels_are_drawn_by_the_published_table():
    _, plan = toy_vertical(WIDE)
    prepared = LabelRandomisedResponse(epsilon=1.0).prepare(plan)
    law = prepared.laws[prepared.claims[0].claim_id]
    assert fits(law.channel, prepared.protection, plan)
    other = LabelRandomisedResponse(epsilon=1.2).prepare(plan)
    assert not fits(law.channel, other.protection, plan)


def test_labels_drawn_once_are_the_same_in_all_epochs_and_cost_the_same():
    task, plan = toy_vertical(LOGISTIC, epochs=6)
    prepared = LabelRandomisedResponse(epsilon=1.0).prepare(plan)
    assert [claim.observer for claim in prepared.claims] == [PASSIVE_PARTY, FINAL_MODEL]
    assert {(claim.epsilon, claim.rounds) for claim in prepared.claims} == {(1.0, 6)}
    assert [prepared.spending[claim.claim_id](1) for claim in prepared.claims] == [1.0, 1.0]
    assert targets_by_epoch(task, plan, prepared.protection, 6) == 1


def targets_by_epoch(task, plan, protection, epochs):
    """How many different sets of targets the epochs have."""
    found = torch.zeros(epochs, plan.people, plan.network.classes)
    for step in steps_of(task, plan, protection):
        found[step.epoch, step.people] = step.targets[0]
    return len({tuple(one.flatten().tolist()) for one in found})


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_redrawn_labels_share_the_budget(delta):
    task, plan = toy_vertical(LOGISTIC, epochs=40)
    prepared = LabelRandomisedResponse(epsilon=4.0, delta=delta, redraw=True).prepare(plan)
    each = epsilon_of(prepared.protection.channel)
    assert composed_epsilon(each, releases=40, delta=delta) == pytest.approx(4.0, rel=1e-6)
    assert (each > 0.11) == (delta > 0)
    spent = prepared.spending[prepared.claims[0].claim_id]
    assert spent(40) == pytest.approx(4.0, rel=1e-6)
    assert spent(1) == pytest.approx(each, rel=1e-3)
    assert targets_by_epoch(task, plan, prepared.protection, 40) == 40


@pytest.mark.parametrize("network", [LOGISTIC, SPLIT])
@pytest.mark.parametrize("redraw", [False, True])
def test_another_label_changes_what_is_sent_through_its_own_draws_alone(network, redraw):
    """With equal draws no other person's target moves, and all that is sent is equal where the person's is."""
    task, plan = toy_vertical(network, epochs=3)
    protection = LabelRandomisedResponse(epsilon=1.5, redraw=redraw).prepare(plan).protection
    seen = set()
    for seed in range(12):
        one, other = (steps_of(task, plan, protection, seed=seed, planted=with_label(task, 4, it)) for it in (0, 1))
        pairs = list(zip(one, other, strict=True))
        for x, y in pairs:
            assert torch.equal(x.targets[0, x.people != 4], y.targets[0, y.people != 4])
        same = all(torch.equal(x.targets, y.targets) for x, y in pairs)
        assert same == all(torch.equal(a, b) for x, y in pairs for a, b in zip(x.gradients, y.gradients, strict=True))
        seen.add(same)
    assert seen == {True, False}


def test_the_best_guess_of_a_uniform_label_is_right_as_often_as_the_bound_says():
    """4,000 people, the observer sees what was drawn; five standard errors, falsely outside once in a million."""
    _, plan = toy_vertical(WIDE)
    for epsilon in (0.5, 2.0):
        protection = LabelRandomisedResponse(epsilon=epsilon).prepare(plan).protection
        rng = np.random.default_rng(1)
        labels = torch.from_numpy(rng.integers(5, size=4000))
        drawn = protection.targets(torch.eye(5)[labels].unsqueeze(0), context_of(plan), rng)[0].argmax(1)
        bound = math.exp(epsilon) / (4 + math.exp(epsilon))
        assert abs(float((drawn == labels).double().mean()) - bound) < 5 * math.sqrt(bound * (1 - bound) / 4000)


def test_a_uniform_prior_gives_plain_randomised_response():
    _, plan = toy_vertical(WIDE)
    plain, prior = LabelRandomisedResponse(epsilon=1.3).prepare(plan), LabelRRWithPrior(epsilon=1.3).prepare(plan)
    tables = [one.laws[one.claims[0].claim_id].channel for one in (plain, prior)]
    torch.testing.assert_close(*tables)


PRIORS = [(0.5, 0.3, 0.1, 0.07, 0.03), (0.96, 0.01, 0.01, 0.01, 0.01), (0.1, 0.4, 0.0, 0.4, 0.1)]


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_the_number_of_likely_classes_is_the_one_that_keeps_most_labels(prior, epsilon):
    """Against the probability of every k, counted from its table over the prior."""
    _, plan = toy_vertical(WIDE)
    prepared = LabelRRWithPrior(epsilon=epsilon, prior=list(prior)).prepare(plan)
    channel = prepared.laws[prepared.claims[0].claim_id].channel
    kept = float(channel.diagonal() @ torch.tensor(prior, dtype=torch.float64))
    ordered = sorted(prior, reverse=True)
    by_k = [sum(ordered[:k]) * math.exp(epsilon) / (math.exp(epsilon) + k - 1) for k in range(1, 6)]
    assert kept == pytest.approx(max(by_k))
    assert channel.sum(1).tolist() == pytest.approx([1] * 5)
    assert epsilon_of(channel) <= epsilon + 1e-12
    assert fits(channel, prepared.protection, plan)


def test_two_likely_classes_by_hand():
    """At epsilon ln 3: .5, then .75 of .8, then .6 of .9."""
    assert likely_classes((0.1, 0.3, 0.5, 0.07, 0.03), math.log(3)) == (2, 1)
    assert likely_classes((0.9, 0.05, 0.05), math.log(3)) == (0,)


def test_one_likely_class_shows_nothing():
    _, plan = toy_vertical(WIDE)
    prepared = LabelRRWithPrior(epsilon=0.2, prior=PRIORS[1]).prepare(plan)
    assert epsilon_of(prepared.laws[prepared.claims[0].claim_id].channel) == 0


@pytest.mark.parametrize(
    ("prior", "words"),
    [([0.5, 0.4], "sum 1"), ("uniform", "share of each class"), ([True, False], "numbers"), ([], "sum")],
)
def test_a_wrong_prior_is_refused(prior, words):
    with pytest.raises(ValueError, match=f"prior must.*{words}"):
        LabelRRWithPrior(prior=prior)


def test_a_prior_of_other_classes_is_refused():
    _, plan = toy_vertical(WIDE)
    with pytest.raises(ValueError, match="5 classes, got 2 shares"):
        LabelRRWithPrior(prior=(0.5, 0.5)).prepare(plan)


def test_a_budget_that_hides_nothing_is_refused():
    _, plan = toy_vertical(WIDE)
    with pytest.raises(ValueError, match="at most 300"):
        LabelRandomisedResponse(epsilon=301.0).prepare(plan)


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


def test_a_hook_that_reads_targets_refuses_a_step_without_them():
    _, plan = toy_vertical(LOGISTIC)
    with pytest.raises(ValueError, match="must hold the targets"):
        LabelLaplaceProtection(scale=1.0).residuals(torch.zeros(1, 4, 3), context_of(plan), np.random.default_rng(0))
