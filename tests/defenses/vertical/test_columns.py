"""Randomised columns: calibration, channel, post-processing by trained models, and refusals.

Noise and bits on embeddings: calibration, what one person's columns move of all that is released, and refusals.
"""

import math
from itertools import pairwise

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting.pld import PLDAccountant
from fedassay.audit.claim import Unit
from fedassay.audit.observer import ACTIVE_PARTY
from fedassay.defenses.accounting.pure import composed_epsilon
from fedassay.defenses.vertical.columns.columns_randomised_response import ColumnsRandomisedResponse
from fedassay.defenses.vertical.columns.embedding_bits import EmbeddingBits
from fedassay.defenses.vertical.columns.embedding_gaussian import EmbeddingGaussian
from fedassay.defenses.vertical.columns.embedding_laplace import EmbeddingLaplace
from fedassay.defenses.vertical.columns.protection import NoisedEmbeddingProtection
from fedassay.defenses.vertical.defense import ONE_PARTY, clipped
from fedassay.fl.streams import Streams
from fedassay.fl.vertical.engine import run_vertical
from fedassay.fl.vertical.network import VerticalNetwork
from fedassay.fl.vertical.protection import Noise, Noised, VerticalProtection
from fedassay.fl.vertical.task import predicted
from scipy.stats import binom
from toy_vertical import LOGISTIC, SPLIT, context_of, moved_by, steps_of, toy_vertical, with_rows

HIDDEN = VerticalNetwork(widths=(3, 2), classes=3, embedding=4, hidden=(5,), top_hidden=(6,))


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("buckets", [2, 5])
def test_the_numbers_of_a_person_share_the_budget_at_each_party(delta, buckets):
    _, plan = toy_vertical(SPLIT, epochs=50)
    prepared = ColumnsRandomisedResponse(epsilon=3.0, delta=delta, buckets=buckets).prepare(plan)
    for each, width in zip(prepared.protection.epsilons, (3, 4), strict=True):
        assert composed_epsilon(each, releases=width, delta=delta) == pytest.approx(3.0, rel=1e-6)
    (claim,) = prepared.claims
    assert (claim.unit, claim.observer, claim.part) == (Unit.SAMPLE, ACTIVE_PARTY, ONE_PARTY)
    # Released once: the first epoch spends everything.
    assert prepared.spending[claim.claim_id](1) == pytest.approx(3.0, rel=1e-6)
    assert prepared.spending[claim.claim_id](50) == pytest.approx(3.0, rel=1e-6)


def test_numbers_are_rounded_to_buckets_and_released_as_often_as_the_table_says():
    """Exact binomial test of 20,000 numbers at level 1e-6; an epsilon of 1.2 for 1 is found."""
    _, plan = toy_vertical(LOGISTIC)
    values = torch.tensor([-7.0, 0.1, 0.4, 3.0, math.nan, math.inf, -math.inf, 1e38]).repeat(20_000)[:20_000]
    nearest = torch.tensor([0.0, 0.0, 0.5, 1.0, 0.0, 1.0, 0.0, 1.0]).repeat(20_000)[:20_000]
    for epsilon, fits in ((1.0, True), (1.2, False)):
        protection = ColumnsRandomisedResponse(epsilon=3 * epsilon, buckets=3).prepare(plan).protection
        sent = protection.columns(values.view(1, -1, 1), 0, plan, np.random.default_rng(0)).flatten()
        assert sent.unique().tolist() == [0, 0.5, 1]
        inside = binom(20_000, math.e / (math.e + 2)).interval(1 - 1e-6)
        assert (inside[0] <= int((sent == nearest).sum()) <= inside[1]) == fits


@pytest.mark.parametrize("network", [LOGISTIC, HIDDEN])
def test_everything_is_computed_from_the_released_columns_also_by_trained_models(network):
    """With what is released played back, other columns move no message and no model."""
    task, plan = toy_vertical(network, epochs=3)
    inner = ColumnsRandomisedResponse().prepare(plan).protection
    tape = []

    class Played(VerticalProtection):
        def columns(self, values, party, plan, rng):
            if not tape:
                tape.append(inner.columns(values, party, plan, rng))
            return tape[0]

    first = steps_of(task, plan, Played())
    second = steps_of(task, plan, Played(), planted=with_rows(4, {0: [40.0, -30.0, 5.0]}))
    for x, y in zip(first, second, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(x.embeddings, y.embeddings, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(x.models.bottoms[0], y.models.bottoms[0], strict=True))
    # The same bottoms do show other columns of one person in what is sent about others without the defense.
    raw = [
        steps_of(task, plan, VerticalProtection(), planted=with_rows(4, rows)) for rows in ({}, {0: [9.0, 9.0, 9.0]})
    ]
    last = zip(raw[0][-1].embeddings, raw[1][-1].embeddings, strict=True)
    assert not all(torch.equal(a, b) for a, b in last)


def test_columns_are_drawn_once_with_draws_of_their_own_for_each_replica():
    task, plan = toy_vertical(LOGISTIC, epochs=2, batch=12, learning_rate=1e-9)
    protection = ColumnsRandomisedResponse().prepare(plan).protection
    steps = steps_of(task, plan, protection, replicas=3)
    orders = [step.people.argsort() for step in steps]
    sent = [step.embeddings[0][:, order] for step, order in zip(steps, orders, strict=True)]
    torch.testing.assert_close(sent[0], sent[1], atol=1e-6, rtol=0)
    assert not torch.allclose(sent[0][0], sent[0][1], atol=1e-3)


def test_new_people_are_randomised_too():
    task, plan = toy_vertical(LOGISTIC, n=12)
    prepared = ColumnsRandomisedResponse(epsilon=900.0).prepare(plan)
    final = run_vertical(task, plan, prepared.protection, Streams(3))
    exact = [predicted(final, task.test, plan, prepared.protection, Streams(seed)) for seed in (0, 1)]
    torch.testing.assert_close(exact[0], exact[1])
    weak = ColumnsRandomisedResponse(epsilon=1.0).prepare(plan).protection
    drawn = [predicted(final, task.test, plan, weak, Streams(seed)) for seed in (0, 1)]
    assert not torch.allclose(drawn[0], drawn[1])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"buckets": 1}, "buckets"),
        ({"buckets": 10**12}, "buckets must be at most 1000, got 1000000000000"),
        *(
            ({"bounds": wrong}, "bounds must be two numbers")
            for wrong in ((1.0, 1.0), (0.0, math.nan), (0.0, math.inf), (False, 1.0), ("0", 1.0), (0.0,), 1.0)
        ),
        ({"epsilon": -1.0}, "epsilon"),
    ],
)
def test_wrong_settings_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        ColumnsRandomisedResponse(**wrong)


DEEP = VerticalNetwork(widths=(3, 2), classes=3, embedding=4, hidden=(5,), top_hidden=(6,))
OTHER = {0: [40.0, -30.0, 5.0]}
EACH = [EmbeddingGaussian, EmbeddingLaplace, EmbeddingBits]


def gaussian_epsilon(multiplier, releases, delta):
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(multiplier), releases)
    return PLDAccountant().compose(event).get_epsilon(delta)


@pytest.mark.parametrize(("once", "releases"), [(False, 6), (True, 1)])
def test_the_gaussian_scale_is_what_dp_accounting_needs(once, releases):
    _, plan = toy_vertical(LOGISTIC, epochs=6, frozen=True)
    prepared = EmbeddingGaussian(epsilon=2.0, clip_norm=0.5, sends_once=once).prepare(plan)
    (claim,) = prepared.claims
    # Any two clipped embeddings are up to twice the clip norm apart.
    assert gaussian_epsilon(prepared.protection.scale / 1.0, releases, 1e-5) == pytest.approx(2.0, rel=2e-3)
    law = prepared.laws[claim.claim_id]
    assert (law.noised, law.noise, law.clip, law.releases) == (Noised.EMBEDDINGS, Noise.GAUSSIAN, 0.5, releases)
    assert prepared.spending[claim.claim_id](6) == pytest.approx(2.0, rel=1e-6)
    assert (prepared.spending[claim.claim_id](1) == pytest.approx(2.0, rel=1e-6)) == once


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize(("once", "releases"), [(False, 25), (True, 1)])
def test_the_laplace_scale_is_twice_the_clip_norm_over_the_epsilon_of_a_release(delta, once, releases):
    _, plan = toy_vertical(LOGISTIC, epochs=25, frozen=True)
    prepared = EmbeddingLaplace(epsilon=2.0, delta=delta, clip_norm=0.5, sends_once=once).prepare(plan)
    each = 1 / prepared.protection.scale
    # A single release is pure, and has the whole epsilon.
    wanted = pytest.approx(2.0, rel=1e-6) if releases > 1 else pytest.approx(2.0, rel=1e-4)
    assert composed_epsilon(each, releases=releases, delta=delta) == wanted


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_all_bits_of_all_epochs_share_the_budget(delta):
    _, plan = toy_vertical(SPLIT, epochs=10, frozen=True)
    prepared = EmbeddingBits(epsilon=4.0, delta=delta).prepare(plan)
    channel = prepared.protection.channel
    each = math.log(channel[0, 0] / channel[0, 1])
    assert composed_epsilon(each, releases=20, delta=delta) == pytest.approx(4.0, rel=1e-6)
    assert delta or each == pytest.approx(0.2)


def test_bits_are_flipped_as_often_as_their_table_says():
    """Exact binomial test of 20,000 signs at level 1e-6; an epsilon of .6 for .5 is found."""
    _, plan = toy_vertical(SPLIT, epochs=1, frozen=True)
    for epsilon, fits in ((0.5, True), (0.6, False)):
        protection = EmbeddingBits(epsilon=2 * epsilon).prepare(plan).protection
        values = torch.where(torch.arange(20_000) % 3 == 0, 2.5, -0.1).view(1, 10_000, 2)
        sent = protection.embeddings(values, 0, context_of(plan), np.random.default_rng(0))
        assert sent.unique().tolist() == [-1, 1]
        kept = int((sent == values.sign()).sum())
        inside = binom(20_000, math.exp(0.5) / (1 + math.exp(0.5))).interval(1 - 1e-6)
        assert (inside[0] <= kept <= inside[1]) == fits
    zeros = torch.zeros(1, 4, 2)
    assert EmbeddingBits(epsilon=400.0).prepare(plan).protection.embeddings(
        zeros, 0, context_of(plan), np.random.default_rng(0)
    ).unique().tolist() == [1]


@pytest.mark.parametrize("defense", EACH)
@pytest.mark.parametrize("once", [False, True])
def test_with_frozen_bottoms_other_columns_move_their_own_releases_by_at_most_the_sensitivity(defense, once):
    task, plan = toy_vertical(DEEP, epochs=3, learning_rate=0.1, frozen=True)
    prepared = defense(sends_once=once).prepare(plan)
    protection = prepared.protection
    noise = getattr(protection, "noise", None)

    def of(values):
        return values.sign() if noise is None else clipped(values, 1.0, noise)

    first, second, moves = moved_by(task, plan, protection, {"embeddings"}, with_rows(4, OTHER), of=of)
    released = 0
    for x, y in zip(first, second, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(x.gradients, y.gradients, strict=True))
        assert all(torch.equal(a, b) for a, b in zip(x.models.top, y.models.top, strict=True))
        if ("embeddings", x.step, 0) not in moves:
            assert once
            assert x.epoch > 0
            continue
        move = moves["embeddings", x.step, 0]
        assert not move[x.people != 4].any()
        length = move.abs().sum(-1) if noise is Noise.LAPLACE else move.norm(dim=-1)
        assert noise is None or float(length.max()) <= 2 + 1e-6
        released += int((x.people == 4).sum())
    assert released == prepared.laws[prepared.claims[0].claim_id].releases


def test_with_trained_bottoms_noise_on_embeddings_alone_would_not_hide_columns():
    """A witness: all that was sent is equal, and what is sent next about others is not."""
    task, plan = toy_vertical(DEEP, learning_rate=0.1)
    frozen = EmbeddingGaussian().prepare(toy_vertical(DEEP, frozen=True)[1]).protection
    first, _, moves = moved_by(task, plan, frozen, {"embeddings"}, with_rows(4, OTHER))
    others = [float(moves["embeddings", step.step, 0][step.people != 4].norm()) for step in first]
    when = next(step.step for step in first if (step.people == 4).any())
    assert all(length == 0 for length in others[: when + 1])
    assert all(length > 0.001 for length in others[when + 1 :])


def test_with_bottoms_by_dp_sgd_both_releases_of_an_epoch_move_by_at_most_their_sensitivities():
    task, plan = toy_vertical(DEEP, epochs=3, learning_rate=0.01)
    prepared = EmbeddingGaussian(epsilon=6.0, clip_norm=0.7, bottom_clip=0.3).prepare(plan)
    protection = prepared.protection

    def of(values):
        # Sums of a batch have two dimensions, and are clipped row by row before.
        return clipped(values, 0.7, Noise.GAUSSIAN) if values.ndim == 3 else values

    hooks = {"embeddings", "bottom_sum"}
    first, second, moves = moved_by(task, plan, protection, hooks, with_rows(4, OTHER), of=of)
    seen = []
    for x, y in zip(first, second, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(x.models.bottoms[0], y.models.bottoms[0], strict=True))
        own = x.people == 4
        embedding, total = moves["embeddings", x.step, 0], moves["bottom_sum", x.step, 0]
        assert not embedding[~own].any()
        if own.any():
            seen.append((float(embedding.norm()), float(total.norm())))
        else:
            assert not total.any()
    assert len(seen) == 3
    assert max(length for length, _ in seen) <= 2 * 0.7 + 1e-5
    assert max(length for _, length in seen) <= 2 * 0.3 + 1e-5
    assert min(min(pair) for pair in seen) > 0.01
    multipliers = protection.scale / (2 * 0.7), protection.bottom_std / (2 * 0.3)
    assert multipliers[0] == pytest.approx(multipliers[1])
    assert gaussian_epsilon(multipliers[0], 2 * 3, 1e-5) == pytest.approx(6.0, rel=2e-3)
    (claim,) = prepared.claims
    assert claim.curve.mu == pytest.approx(math.sqrt(3 / multipliers[0] ** 2 + 3 / multipliers[1] ** 2))


def test_bottoms_by_dp_sgd_get_noise_of_the_stated_deviation(has_std):
    _, plan = toy_vertical(DEEP)
    protection = EmbeddingGaussian(bottom_clip=0.3).prepare(plan).protection
    total = torch.zeros(2, 10_000)
    noise = protection.bottom_sum(total, 0, context_of(plan), np.random.default_rng(0))
    assert has_std(noise, protection.bottom_std)
    weights = protection.bottom_weights(torch.tensor([[0.0, 0.3, 3.0]]), 0, context_of(plan))
    assert weights.flatten().tolist() == pytest.approx([1.0, 1.0, 0.1])


@pytest.mark.parametrize("defense", [EmbeddingGaussian, EmbeddingLaplace])
def test_new_people_get_the_noise_of_a_release(defense, has_std):
    _, plan = toy_vertical(DEEP, frozen=True)
    protection = defense().prepare(plan).protection
    values = torch.zeros(1, 5000, 4)
    sent = protection.evaluated(values, 0, plan, np.random.default_rng(1))
    if defense is EmbeddingGaussian:
        assert has_std(sent, protection.scale)
    else:
        # The absolute value of Laplace noise is exponential: mean scale, deviation scale; five standard errors.
        assert abs(float(sent.abs().mean()) / protection.scale - 1) < 5 / math.sqrt(sent.numel())


@pytest.mark.parametrize("noise", list(Noise))
def test_a_clipped_vector_is_within_its_bound_whatever_it_holds(noise):
    rows = torch.tensor([[3.0, -4.0], [0.1, 0.2], [0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0], [1e38, -1e38]])
    found = clipped(rows, 1.5, noise)
    assert bool(found.isfinite().all())
    order = 2 if noise is Noise.GAUSSIAN else 1
    assert float(torch.linalg.vector_norm(found, ord=order, dim=-1).max()) <= 1.5 * (1 + 1e-6)
    assert torch.equal(found[1:3], rows[1:3])
    torch.testing.assert_close(found[0], rows[0] * 1.5 / (5 if noise is Noise.GAUSSIAN else 7))
    zeros = torch.zeros(2, 3, requires_grad=True)
    clipped(zeros, 1.0, noise).sum().backward()
    assert zeros.grad.tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize("defense", EACH)
def test_the_claim_names_its_unit_and_its_part(defense):
    for network, part in ((LOGISTIC, "joint"), (SPLIT, ONE_PARTY)):
        (claim,) = defense().prepare(toy_vertical(network, frozen=True)[1]).claims
        assert (claim.unit, claim.observer, claim.part) == (Unit.SAMPLE, ACTIVE_PARTY, part)
    assert "a person's columns at one party alone" in claim.describe()


@pytest.mark.parametrize("defense", EACH)
def test_trained_bottoms_are_refused(defense):
    with pytest.raises(ValueError, match="frozen = true"):
        defense().prepare(toy_vertical(LOGISTIC)[1])


def test_sending_once_from_trained_bottoms_is_refused():
    with pytest.raises(ValueError, match="sent once only if"):
        EmbeddingGaussian(bottom_clip=1.0, sends_once=True).prepare(toy_vertical(LOGISTIC)[1])


def test_a_frozen_bottom_pays_for_no_update():
    _, plan = toy_vertical(LOGISTIC, frozen=True)
    plain, unused = (EmbeddingGaussian(bottom_clip=clip).prepare(plan) for clip in (None, 1.0))
    assert plain.claims == unused.claims
    assert unused.protection.bottom_clip is None


@pytest.mark.parametrize("defense", EACH)
def test_what_is_sent_once_is_the_same_in_all_epochs(defense):
    task, plan = toy_vertical(LOGISTIC, epochs=3, frozen=True)
    for once in (True, False):
        protection = defense(epsilon=1.0, sends_once=once).prepare(plan).protection
        sent = torch.stack(
            [step.embeddings[0][0, step.people == 4] for step in steps_of(task, plan, protection) if 4 in step.people]
        )
        assert (len(sent.unique(dim=0)) == 1) == once


def naive_sum(task, plan, models, people, back, clip_norm, bottom_clip):
    """The sum of the people's clipped gradients by the first party's bottom model, one by one, by autograd."""
    total = 0
    for place, person in enumerate(people.tolist()):
        layers = [layer[0].clone().requires_grad_() for layer in models.bottoms[0]]
        row = task.people.columns[0][person]
        for number, layer in enumerate(layers):
            row = torch.cat([torch.relu(row) if number else row, torch.ones(1)]) @ layer
        length = row.norm()
        sent = row * torch.where(length > clip_norm, clip_norm / length, torch.ones(()))
        sent.backward(back[0, place])
        gradient = torch.cat([layer.grad.flatten() for layer in layers])
        total = total + gradient * min(1.0, bottom_clip / max(1e-30, float(gradient.norm())))
    return total


def test_the_clipped_sum_of_a_bottom_with_hidden_layers_is_that_of_a_loop_over_people():
    task, plan = toy_vertical(DEEP, learning_rate=0.2)
    protection = NoisedEmbeddingProtection(noise=Noise.GAUSSIAN, scale=0.3, clip_norm=0.7, bottom_clip=0.05)
    steps = steps_of(task, plan, protection)
    for step, after in pairwise(steps):
        wanted = naive_sum(task, plan, step.models, step.people, step.gradients[0], 0.7, 0.05)
        moved = [one - two for one, two in zip(step.models.bottoms[0], after.models.bottoms[0], strict=True)]
        found = torch.cat([part[0].flatten() for part in moved]) * len(step.people) / plan.learning_rate
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
        assert float(wanted.norm()) > 0.01


@pytest.mark.parametrize("row", [[1e30] * 3, [-1e38] * 3, [math.inf, 1.0, -math.inf], [math.nan] * 3, [1e20, 0.0, 0.0]])
def test_columns_of_any_size_move_an_update_by_no_more_than_the_clip(row):
    """Numbers that overflow in one person's gradient would show that person in the whole sum."""
    task, plan = toy_vertical(DEEP, learning_rate=0.2)
    protection = NoisedEmbeddingProtection(noise=Noise.GAUSSIAN, scale=0.3, clip_norm=0.7, bottom_clip=0.05)
    first, _, moves = moved_by(task, plan, protection, {"embeddings", "bottom_sum"}, with_rows(4, {0: row}))
    for step in first:
        length = float(moves["bottom_sum", step.step, 0].norm())
        assert length <= 2 * 0.05 * (1 + 1e-5)
        assert (length > 0) == (4 in step.people)
