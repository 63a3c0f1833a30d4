"""Controls of vertical federations: each breaks the claim that it states, and the correct version passes its test."""

import math

import numpy as np
import pytest
import torch
from fedassay.audit.curve import epsilon_from_mu
from fedassay.defenses.accounting.pure import composed_epsilon
from fedassay.defenses.controls.vertical import (
    ControlBitsInFull,
    ControlBottomUnpaid,
    ControlColumnsInFull,
    ControlEmbeddingNoiseShared,
    ControlEmbeddingResent,
    ControlEmbeddingUnclipped,
    ControlLabelBinaryFormula,
    ControlLabelCoinShared,
    ControlLabelFlipsHalved,
    ControlLabelLaplaceOne,
    ControlLabelsRedrawn,
    ControlPriorOfLabels,
    ControlResidualNoiseFullBatches,
    ControlResidualNoiseOneEpoch,
    ControlResidualNoiseShared,
    ControlTopOnRawLabels,
)
from fedassay.defenses.vertical.columns.columns_randomised_response import ColumnsRandomisedResponse
from fedassay.defenses.vertical.columns.embedding_bits import EmbeddingBits
from fedassay.defenses.vertical.columns.embedding_gaussian import EmbeddingGaussian
from fedassay.defenses.vertical.defense import clipped
from fedassay.defenses.vertical.labels.label_gradient_noise import LabelGradientNoise
from fedassay.defenses.vertical.labels.label_laplace import LabelLaplace
from fedassay.defenses.vertical.labels.label_randomised_response import LabelRandomisedResponse
from fedassay.defenses.vertical.labels.label_rr_with_prior import LabelRRWithPrior
from fedassay.fl.vertical.network import VerticalNetwork
from fedassay.fl.vertical.protection import Noise
from known_parts import vertical_parts
from scipy.stats import beta
from toy_vertical import LOGISTIC, SPLIT, Taped, context_of, moved_by, steps_of, toy_vertical, with_label, with_rows

FIVE = VerticalNetwork(widths=(2, 2), classes=5, embedding=5, summed=True)
LINEAR_TOP = VerticalNetwork(widths=(3, 0), classes=3, embedding=8)
LEVEL = 1e-6


def shown_epsilon(hits, others, trials):
    """A lower bound of epsilon from an event's counts under two labels, one person each trial: Clopper and Pearson
    (1934) at level 1e-6 for each of the two probabilities.
    """
    low = beta.ppf(LEVEL, hits, trials - hits + 1) if hits else 0.0
    high = beta.ppf(1 - LEVEL, others + 1, trials - others)
    return math.log(low / high) if low > high else 0.0


def drawn(defense, plan, label, epochs=1):
    """What the active party trains on in each epoch if all people have one label: (epochs, n, classes)."""
    protection = defense.prepare(plan).protection
    one_hot = torch.eye(plan.network.classes)[torch.full((plan.people,), label)].unsqueeze(0)
    rng = np.random.default_rng(label)
    first = protection.targets(one_hot, context_of(plan), rng)
    rest = [
        protection.targets(one_hot, context_of(plan), rng) if protection.redraws else first for _ in range(1, epochs)
    ]
    return torch.cat([first, *rest])


@pytest.mark.parametrize(
    ("defense", "refuted"),
    [(LabelRandomisedResponse, False), (ControlLabelFlipsHalved, True), (ControlLabelBinaryFormula, True)],
)
def test_labels_that_are_kept_too_often_show_more_than_is_stated(defense, refuted):
    _, plan = toy_vertical(FIVE, n=20_000)
    counts = [int(drawn(defense(epsilon=1.0), plan, label)[0, :, 0].sum()) for label in (0, 1)]
    assert (shown_epsilon(*counts, 20_000) > 1.0) == refuted


@pytest.mark.parametrize(("defense", "refuted"), [(LabelRandomisedResponse, False), (ControlLabelsRedrawn, True)])
def test_labels_redrawn_at_the_budget_of_one_draw_show_more_than_is_stated(defense, refuted):
    """The event: the same class in four epochs."""
    _, plan = toy_vertical(FIVE, n=20_000, epochs=4)
    counts = [int(drawn(defense(epsilon=1.0), plan, label, 4)[:, :, 0].all(0).sum()) for label in (0, 1)]
    assert (shown_epsilon(*counts, 20_000) > 1.0) == refuted


@pytest.mark.parametrize(("defense", "refuted"), [(LabelRandomisedResponse, False), (ControlLabelCoinShared, True)])
def test_people_of_one_class_that_share_a_coin_have_equal_labels(defense, refuted):
    """Each person alone is as stated: the share of kept labels is that of the channel."""
    _, plan = toy_vertical(FIVE, n=4)
    protection = defense(epsilon=1.0).prepare(plan).protection
    one_hot = torch.eye(5)[torch.zeros(4, dtype=torch.int64)].expand(4000, -1, -1)
    labels = protection.targets(one_hot, context_of(plan, replicas=4000), np.random.default_rng(0)).argmax(-1)
    assert bool((labels == labels[:, :1]).all()) == refuted
    assert float((labels[:, 0] == 0).double().mean()) == pytest.approx(math.e / (math.e + 4), abs=0.035)


@pytest.mark.parametrize(("defense", "refuted"), [(LabelLaplace, False), (ControlLabelLaplaceOne, True)])
def test_half_the_laplace_scale_shows_more_than_is_stated(defense, refuted):
    """The event: above 1 at one label and below 0 at the other, where the loss is largest."""
    _, plan = toy_vertical(FIVE, n=40_000)
    counts = []
    for label in (0, 1):
        noised = drawn(defense(epsilon=1.0), plan, label)[0]
        counts.append(int(((noised[:, 0] > 1) & (noised[:, 1] < 0)).sum()))
    assert (shown_epsilon(*counts, 40_000) > 1.0) == refuted


@pytest.mark.parametrize(("defense", "refuted"), [(LabelRRWithPrior, False), (ControlPriorOfLabels, True)])
def test_a_prior_of_the_labels_shows_one_of_them_for_certain(defense, refuted):
    """Of three people two have the classes 0 and 1, and the third one's label decides which class all draws are."""
    _, plan = toy_vertical(LOGISTIC, n=3, batch=3)
    protection = defense(epsilon=0.3).prepare(plan).protection
    sets = []
    for label in (0, 1):
        one_hot = torch.eye(3)[torch.tensor([0, 1, label])].repeat(300, 1, 1)
        drawn = protection.targets(one_hot, context_of(plan, replicas=300), np.random.default_rng(0)).argmax(-1)
        sets.append(set(drawn.flatten().tolist()))
    assert (not sets[0] & sets[1]) == refuted


@pytest.mark.parametrize(("defense", "refuted"), [(LabelGradientNoise, False), (ControlResidualNoiseOneEpoch, True)])
def test_noise_of_one_epoch_leaves_the_others_bare(defense, refuted):
    task, plan = toy_vertical(LOGISTIC)
    tape = Taped(defense(epsilon=1.0).prepare(plan).protection)
    bare = {
        step.epoch: torch.equal(tape.inputs["residuals", step.step, -1], tape.outputs["residuals", step.step, -1])
        for step in steps_of(task, plan, tape)
    }
    assert bare == {0: False, 1: refuted}


@pytest.mark.parametrize(("defense", "refuted"), [(LabelGradientNoise, False), (ControlResidualNoiseFullBatches, True)])
def test_noise_of_full_batches_leaves_a_smaller_one_bare(defense, refuted):
    task, plan = toy_vertical(LOGISTIC, n=10, batch=4, epochs=1)
    tape = Taped(defense(epsilon=1.0).prepare(plan).protection)
    bare = {
        len(step.people): torch.equal(tape.inputs["residuals", step.step, -1], tape.outputs["residuals", step.step, -1])
        for step in steps_of(task, plan, tape)
    }
    assert bare == {4: False, 2: refuted}


@pytest.mark.parametrize(("defense", "refuted"), [(LabelGradientNoise, False), (ControlResidualNoiseShared, True)])
def test_shared_noise_cancels_in_the_difference_of_two_peoples_residuals(defense, refuted):
    task, plan = toy_vertical(LOGISTIC)
    tape = Taped(defense(epsilon=1.0).prepare(plan).protection)
    steps_of(task, plan, tape)
    noise = [(tape.outputs[key] - tape.inputs[key])[0] for key in tape.outputs if key[0] == "residuals"]
    assert all(torch.allclose(one[0], one[1], atol=1e-5) == refuted for one in noise)


@pytest.mark.parametrize(("defense", "refuted"), [(LabelGradientNoise, False), (ControlTopOnRawLabels, True)])
def test_a_top_model_on_raw_labels_shows_more_than_is_stated_in_the_gradients_about_others(defense, refuted):
    """The exact mu of what one label moves, given all earlier releases, where the bottom models are frozen."""
    # The correct version's top model has noise too, and diverges at the rate of the broken one.
    settings = {"n": 200, "epochs": 1, "batch": 4, "learning_rate": 2.0 if refuted else 0.05, "frozen": True}
    task, plan = toy_vertical(LINEAR_TOP, **settings)
    prepared = defense(epsilon=1.0).prepare(plan)
    claim, protection = prepared.claims[0], prepared.protection
    hook = "gradients" if refuted else "residuals"

    def of(values):
        return clipped(values, protection.clip_norm, Noise.GAUSSIAN) if refuted else values

    planted = with_label(task, 4, (int(task.people.labels[4]) + 1) % 3)
    first, _, moves = moved_by(task, plan, protection, {hook}, planted, of=of)
    party = 0 if refuted else -1
    others = torch.cat([moves[hook, step.step, party][step.people != 4] for step in first])
    shown = epsilon_from_mu(float(others.norm()) / protection.scale, claim.delta)
    assert (shown > 3 * claim.epsilon) == refuted
    assert shown == 0 or refuted


@pytest.mark.parametrize(("defense", "refuted"), [(EmbeddingGaussian, False), (ControlEmbeddingUnclipped, True)])
def test_without_a_clip_a_long_row_stands_out_of_the_noise(defense, refuted):
    _, plan = toy_vertical(LOGISTIC, epochs=1, frozen=True)
    prepared = defense(epsilon=1.0).prepare(plan)
    rows = torch.zeros(2, 1, 3)
    rows[1, 0] = torch.tensor([300.0, 0.0, 400.0])
    one, other = (
        prepared.protection.embeddings(row, 0, context_of(plan), np.random.default_rng(0)) for row in rows.unsqueeze(1)
    )
    shown = epsilon_from_mu(float((one - other).norm()) / prepared.protection.scale, 1e-5)
    assert (shown > prepared.claims[0].epsilon) == refuted


@pytest.mark.parametrize(("defense", "refuted"), [(EmbeddingGaussian, False), (ControlEmbeddingNoiseShared, True)])
def test_shared_noise_cancels_in_the_difference_of_two_peoples_embeddings(defense, refuted):
    _, plan = toy_vertical(LOGISTIC, frozen=True)
    protection = defense().prepare(plan).protection
    sent = protection.embeddings(torch.zeros(2, 4, 3), 0, context_of(plan, replicas=2), np.random.default_rng(0))
    assert torch.equal(sent[:, 0], sent[:, 1]) == refuted
    assert not torch.equal(sent[0], sent[1])


@pytest.mark.parametrize(("once", "refuted"), [(False, False), (True, True)])
def test_embeddings_sent_in_every_epoch_at_the_noise_of_one_show_more_than_is_stated(once, refuted):
    """As many different releases about a person as there are epochs, of one Gaussian each."""
    task, plan = toy_vertical(LOGISTIC, epochs=4, frozen=True)
    defense = ControlEmbeddingResent(epsilon=1.0) if once else EmbeddingGaussian(epsilon=1.0)
    prepared = defense.prepare(plan)
    sent = torch.stack(
        [s.embeddings[0][0, s.people == 4] for s in steps_of(task, plan, prepared.protection) if 4 in s.people]
    )
    assert len(sent.unique(dim=0)) == 4
    mu = 2 * prepared.protection.clip_norm / prepared.protection.scale * math.sqrt(4)
    assert (epsilon_from_mu(mu, 1e-5) > prepared.claims[0].epsilon + 1e-6) == refuted


@pytest.mark.parametrize("refuted", [False, True])
def test_a_bottom_model_on_raw_columns_moves_the_later_embeddings_of_all(refuted):
    task, plan = toy_vertical(LOGISTIC, learning_rate=0.1)
    defense = ControlBottomUnpaid() if refuted else EmbeddingGaussian(bottom_clip=1.0)
    protection = defense.prepare(plan).protection
    # The sums of gradients are released by the correct version alone.
    hooks = {"embeddings"} if refuted else {"embeddings", "bottom_sum"}
    first, _, moves = moved_by(task, plan, protection, hooks, with_rows(4, {0: [40.0, -30.0, 5.0]}))
    others = torch.cat([moves["embeddings", step.step, 0][step.people != 4] for step in first])
    assert bool(others.any()) == refuted


@pytest.mark.parametrize(("defense", "refuted"), [(EmbeddingBits, False), (ControlBitsInFull, True)])
def test_the_bits_of_an_embedding_add_up(defense, refuted):
    _, plan = toy_vertical(SPLIT, epochs=3, frozen=True)
    prepared = defense(epsilon=1.0).prepare(plan)
    channel = prepared.protection.channel
    total = composed_epsilon(math.log(channel[0, 0] / channel[0, 1]), releases=3 * 2, delta=0.0)
    assert (total > 1.0 + 1e-9) == refuted


@pytest.mark.parametrize(("defense", "refuted"), [(ColumnsRandomisedResponse, False), (ControlColumnsInFull, True)])
def test_columns_with_the_whole_budget_each_show_more_than_is_stated(defense, refuted):
    """The event: all columns are released as 1."""
    _, plan = toy_vertical(LOGISTIC, n=20_000)
    protection = defense(epsilon=1.0).prepare(plan).protection
    counts = []
    for value in (1.0, 0.0):
        rows = torch.full((1, 20_000, 3), value)
        released = protection.columns(rows, 0, plan, np.random.default_rng(int(value)))
        counts.append(int((released == 1).all(-1).sum()))
    assert (shown_epsilon(*counts, 20_000) > 1.0) == refuted


def test_each_control_has_a_test():
    controls = {part for part in vertical_parts("defense").values() if part.control}
    assert controls == {value for name, value in globals().items() if name.startswith("Control")}
    assert len(controls) >= 8
