"""Randomised response on labels: its table, its budget once and in every epoch, and how well a label is guessed."""

import math

import numpy as np
import pytest
import torch
from fedassay.audit.observer import FINAL_MODEL, PASSIVE_PARTY
from fedassay.defenses.accounting.pure import composed_epsilon
from fedassay.defenses.vertical.labels.label_randomised_response import LabelRandomisedResponse
from fedassay.defenses.vertical.labels.label_rr_with_prior import LabelRRWithPrior, likely_classes
from fedassay.fl.vertical.network import VerticalNetwork
from scipy.stats import chi2
from toy_vertical import LOGISTIC, SPLIT, context_of, steps_of, toy_vertical, with_label

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
