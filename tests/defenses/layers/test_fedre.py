"""FedRE: scores against loops over pixels, the joint budget whatever they are, PDA-PAM by hand, the paper's claims."""

import itertools
import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency
from fedassay.audit.observer import UPLOADS
from fedassay.defenses.accounting.gaussian import Layer, LayeredGaussian
from fedassay.defenses.layers.budget import JointBudget, largest_share, score_shares
from fedassay.defenses.layers.fedre import FedRE, published_split
from fedassay.defenses.layers.scored_layers import (
    LayerScorer,
    client_weights,
    pda_pam,
    published_weights,
    relative_scores,
)
from fedassay.fl.engine import run_federation
from fedassay.fl.laws import layer_slices, layer_starts
from fedassay.fl.layout import Layout
from fedassay.fl.message import Message
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Context
from fedassay.fl.streams import Streams, normal
from fedassay.fl.task import Samples
from fedassay.fl.training.local import Batch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

DELTA = 1e-5
TEN = Layout(names=tuple(f"layer{number}" for number in range(10)), shapes=((2,),) * 10)


@pytest.fixture
def task(toy_task):
    return toy_task((4, 6, 5))


@pytest.fixture
def plan(task, toy_plan):
    """Two layers of 27 and 3 numbers, three clients, three rounds of FedSGD."""
    return toy_plan(task)


def naive_scores(samples, count, region):
    """Equations 3 to 5 by a difference quotient of the gradient for every pixel and channel, in double precision."""
    top, left, rows, columns = region
    network, params, h = samples.network, samples.models[0].double(), 1e-5
    layers = layer_slices(layer_starts(network.layout))
    scores = torch.zeros(len(layers), dtype=torch.float64)
    one = torch.ones(1, 1, dtype=torch.float64)
    for image, label in zip(samples.images[:count].double(), samples.labels[:count], strict=True):
        for a, b in itertools.product(range(top, top + rows), range(left, left + columns)):
            squares = torch.zeros(len(layers), dtype=torch.float64)
            for channel in range(network.shape[0]):
                moved = torch.zeros_like(image)
                moved[channel, a, b] = h
                up, down = (
                    network.gradient(params.unsqueeze(0), x.view(1, 1, *network.shape), label.view(1, 1), one)[0]
                    for x in (image + moved, image - moved)
                )
                squares += torch.stack([((up - down)[layer] / (2 * h)).square().sum() for layer in layers])
            scores += squares.sqrt() / (rows * columns) / count
    return scores


@pytest.mark.simulations
@pytest.mark.parametrize(("model", "shape"), [("logistic", (2, 3, 4)), ("mlp", (1, 3, 3)), ("lenet", (2, 7, 7))])
def test_scores_are_those_of_the_paper_pixel_by_pixel(model, shape, rng):
    network = Network(model=model, shape=shape, classes=3, inert=1)
    models = torch.stack([network.initial(rng) for _ in range(2)])
    images, labels = torch.from_numpy(rng.random((4, *shape), dtype=np.float32)), torch.tensor([0, 2, 1, 1])
    samples, region = Samples(network=network, models=models, images=images, labels=labels), (1, 0, 2, 3)
    found = LayerScorer(count=3, region=region).scores(samples)
    for number in range(2):
        expected = naive_scores(replace(samples, models=models[number : number + 1]), 3, region)
        assert bool((expected > 0).all())
        torch.testing.assert_close(found[number].double(), expected, rtol=2e-4, atol=1e-7)


def test_few_pixels_tell_the_score_of_many(rng):
    """Sixteen of a region of 200: within 15 % for every layer; None, or a number as large as the region, is all."""
    network = Network(model="lenet", shape=(1, 20, 20), classes=3)
    images = torch.from_numpy(rng.random((2, 1, 20, 20), dtype=np.float32))
    samples = Samples(
        network=network, models=network.initial(rng).unsqueeze(0), images=images, labels=torch.tensor([0, 2])
    )
    asked = {pixels: LayerScorer(count=2, region=(4, 3, 10, 20 - 3), pixels=pixels) for pixels in (16, 170, 500, None)}
    scores = {pixels: scorer.scores(samples) for pixels, scorer in asked.items()}
    assert torch.equal(scores[170], scores[None])
    assert torch.equal(scores[500], scores[None])
    assert not torch.equal(scores[16], scores[None])
    torch.testing.assert_close(scores[16], scores[None], rtol=0.15, atol=0)
    rows, columns = asked[16].places(network) // 20, asked[16].places(network) % 20
    assert ((rows >= 4) & (rows < 14) & (columns >= 3)).all()
    assert len(set(asked[16].places(network).tolist())) == 16
    assert min(len(set(rows.tolist())), len(set(columns.tolist()))) >= 6


def test_each_client_is_noised_and_weighed_by_its_own_preference(task, plan, rng):
    """Two preferences of three clients: the first and the third share one."""
    regions = ((0, 0, 1, 1), (1, 1, 2, 2))
    protection = FedRE(region=[list(region) for region in regions], images=2).prepare(plan).protection
    scorers = [LayerScorer(count=2, region=region) for region in regions]
    model, rows = task.network.initial(rng).unsqueeze(0), normal(rng, (1, 3, 30))
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1, 2), samples=lambda c: task.samples(model, c))
    state = protection.open_round(context, protection.initial_state(plan))
    own = [scorers[client % 2].scores(task.samples(model, None)) for client in range(3)]
    torch.testing.assert_close(protection.row_scores(message(rows), context, state), torch.stack(own, dim=1))
    assert not torch.allclose(own[0] / own[0].sum(), own[1] / own[1].sum(), rtol=1e-3)
    led = [scorers[k % 2].scores(task.samples(model + 0.5 * rows[:, k], None))[0] for k in range(3)]
    weights = torch.softmax(-torch.stack(led), dim=0)
    expected = torch.cat([weights[:, 0] @ rows[0, :, :27], weights[:, 1] @ rows[0, :, 27:]])
    aggregate = protection.aggregate(message(rows), context, state, np.random.default_rng(0))
    torch.testing.assert_close(aggregate[0], expected)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6), st.floats(0.01, 0.99), st.integers(1, 50))
def test_whatever_the_scores_a_round_spends_the_same(scores, even, rounds):
    """Planted: a split of mu instead of mu^2 would not sum."""
    norms = tuple(0.5 + number for number in range(len(scores)))
    shares = score_shares(torch.tensor(scores), even)
    noise = JointBudget(epsilon=2.0, delta=DELTA, rounds=rounds).noise(shares, norms)
    layers = tuple(Layer(clip_norm=c, noise_std=float(s)) for c, s in zip(norms, noise, strict=True))
    release = LayeredGaussian(layers=layers, adjacency=Adjacency.REPLACE_ONE, releases=rounds)
    assert release.epsilon(DELTA) == pytest.approx(2.0, rel=1e-5)
    assert float(shares.max()) <= largest_share(len(scores), even) * (1 + 1e-9)
    assert float(shares.min()) >= even / len(scores) * (1 - 1e-9)


def test_a_large_budget_of_many_rounds_is_one_and_of_a_single_round_is_refused():
    """Epsilon 50 needs .15 sensitivities of noise once, which is below the limit, and .47 in each of ten rounds."""
    mu = JointBudget(epsilon=50.0, delta=DELTA, rounds=10).mu
    assert dp_accounting.get_epsilon_gaussian(1 / mu, DELTA) == pytest.approx(50.0, rel=1e-6)
    with pytest.raises(ValueError, match=r"at least 0.3 sensitivities, got epsilon 50.0, which needs only 0.15"):
        _ = JointBudget(epsilon=50.0, delta=DELTA, rounds=1).mu


def test_shares_by_hand():
    """Scores 1 and 2: mu 1 to 1/2, mu^2 .8 to .2; half of it even."""
    torch.testing.assert_close(score_shares(torch.tensor([1.0, 2.0]), 0.5), torch.tensor([0.65, 0.35]).double())


def test_the_joint_claim_is_the_budget_and_each_layers_what_it_can_take_at_most(plan):
    joint, *alone = FedRE(epsilon=3.0, even=0.4).prepare(plan).claims
    assert dp_accounting.get_epsilon_gaussian(1 / joint.curve.mu, DELTA) == pytest.approx(3.0, rel=1e-6)
    for claim in alone:
        assert claim.curve.mu == pytest.approx(joint.curve.mu * math.sqrt(0.6 + 0.4 / 2))
        assert dp_accounting.get_epsilon_gaussian(1 / claim.curve.mu, DELTA) == pytest.approx(claim.epsilon, rel=1e-5)
        assert claim.epsilon < joint.epsilon
    fixed = FedRE(epsilon=3.0, even=0.4, scores=[1.0, 3.0]).prepare(plan).claims[1:]
    squares = [(claim.curve.mu / joint.curve.mu) ** 2 for claim in fixed]
    assert squares == pytest.approx(score_shares(torch.tensor([1.0, 3.0]), 0.4).tolist())


def message(rows, present=None):
    there = torch.ones(rows.shape[:2], dtype=torch.bool) if present is None else present
    return Message(values=rows * there.unsqueeze(-1), present=there, senders=tuple(range(rows.shape[1])))


def test_a_report_by_hand(plan):
    """Scores 1 and 2 of the state: each layer clipped by itself, noised by its share, in replicas of their own."""
    protection = FedRE(clip_norms=(1.0, 0.5)).prepare(plan).protection
    context = Context(plan=plan, round=0, replicas=2, senders=(0,))
    rows = torch.full((2, 1, 30), 2.0)
    state = {"scores": torch.tensor([[[1.0, 2.0]], [[2.0, 2.0]]])}
    reports = protection.report(message(rows), context, state, np.random.default_rng(0)).values
    mu = protection.budget.mu / math.sqrt(3)
    for replica, shares in enumerate([(0.65, 0.35), (0.5, 0.5)]):
        stds = torch.tensor([2 / (mu * shares[0] ** 0.5)] * 27 + [1 / (mu * shares[1] ** 0.5)] * 3)
        clean = torch.tensor([1 / 27**0.5] * 27 + [0.5 / 3**0.5] * 3)
        noise = normal(np.random.default_rng(0), (2, 1, 30))[replica, 0]
        torch.testing.assert_close(reports[replica, 0], clean + stds.float() * noise)


def test_the_state_holds_the_public_samples_scores_of_the_model_that_is_broadcast(task, plan, tape):
    defense = FedRE(images=3, region=(0, 0, 2, 2))
    run_federation(task, plan, defense.prepare(plan).protection, Streams(1), batch=Batch(replicas=2), recorders=[tape])
    for event in tape.events:
        asked = task.samples(event.broadcast, None)
        torch.testing.assert_close(event.state["scores"][:, 0], LayerScorer(count=3, region=(0, 0, 2, 2)).scores(asked))
    assert not torch.equal(tape.events[0].state["scores"], tape.events[1].state["scores"])


@pytest.mark.parametrize("variant", ["corrected", "as_published"])
def test_private_samples_move_the_noise_as_published_only(variant, task, plan):
    """Two runs in which client 0 holds different images, with equal draws and equal rows."""
    protection = FedRE(variant=variant).prepare(plan).protection
    other = replace(task, images=torch.cat([task.images[:4] * 0.1, task.images[4:]]))
    model, rows = task.network.initial(Streams(0).generator("init")).unsqueeze(0), torch.zeros(1, 3, 30)
    sent = []
    for arm in (task, other):
        context = Context(
            plan=plan, round=0, replicas=1, senders=(0, 1, 2), samples=lambda c, w=arm: w.samples(model, c)
        )
        state = protection.open_round(context, protection.initial_state(plan))
        sent.append(protection.report(message(rows), context, state, np.random.default_rng(0)).values)
    same = [torch.equal(sent[0][:, row], sent[1][:, row]) for row in range(3)]
    assert same == [variant == "corrected", True, True]


def test_budgets_by_private_scores_break_epsilon_ten_by_the_noise_alone(plan):
    """Two layers of a thousand numbers, ten rounds, all gradients zero; scores equal, or one of them a tenth larger.

    The event is that the first layer's ten reports are together short; its probability is chi-square.
    """
    wide = replace(plan, layout=Layout(names=("first", "second"), shapes=((1000,),) * 2), rounds=10)
    protection = FedRE(variant="as_published", epsilon=10.0, scores=(1.0, 1.0)).prepare(wide).protection
    equal, larger = protection.noise(torch.tensor([[1.0, 1.0], [1.1, 1.0]]))[:, 0].tolist()
    assert larger / equal == pytest.approx(1.05)
    degrees, bound = 10_000, 10_250
    short, other = chi2.cdf(bound, degrees), chi2.cdf(bound * (equal / larger) ** 2, degrees)
    assert short - math.exp(10) * other > 0.95


def test_a_canary_client_is_noised_as_published_too(task, plan):
    protection = FedRE(variant="as_published").prepare(plan).protection
    model = task.network.initial(Streams(0).generator("init")).unsqueeze(0)
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 3), samples=lambda c: task.samples(model, c))
    rows = message(torch.zeros(1, 2, 30))
    sent = protection.report(
        replace(rows, senders=(0, 3)), context, protection.initial_state(plan), np.random.default_rng(0)
    )
    assert bool(sent.values.all())


def test_client_weights_by_hand_sum_to_one_over_those_who_came():
    """e^0, e^-ln 3 and an absent row: 3/4 and 1/4; no client came in the second replica."""
    scores = torch.tensor([0.0, math.log(3), 5.0]).view(1, 3, 1).expand(2, 3, 1)
    present = torch.tensor([[True, True, False], [False, False, False]])
    weights = client_weights(scores, present)
    torch.testing.assert_close(weights[..., 0], torch.tensor([[0.75, 0.25, 0.0], [0.0, 0.0, 0.0]]))
    printed = published_weights(scores, present)
    # alpha-hat is 1/4 and 3/4: 1 / (2 / 4) and 1 / (2 * 3 / 4).
    torch.testing.assert_close(printed[..., 0], torch.tensor([[2.0, 2 / 3, 0.0], [0.0, 0.0, 0.0]]))


@given(st.lists(st.floats(0, 20), min_size=1, max_size=8))
def test_the_printed_weights_sum_to_the_number_of_clients_or_more(scores):
    values = torch.tensor(scores, dtype=torch.float64).view(1, -1, 1)
    present = torch.ones(values.shape[:2], dtype=torch.bool)
    assert float(published_weights(values, present).sum()) >= len(scores) * (1 - 1e-9)
    assert float(client_weights(values, present).sum()) == pytest.approx(1.0)
    printed, right = published_weights(values, present), client_weights(values, present)
    torch.testing.assert_close(printed / printed.sum(), right)


def test_relative_weights_do_not_depend_on_a_layers_scale(task, plan, rng):
    """Scores 100 and 300 in one layer, .1 and .3 in the other: raw, the first client has all and then .55."""
    scores, present = torch.tensor([[[100.0, 0.1], [300.0, 0.3]]]), torch.ones(1, 2, dtype=torch.bool)
    raw, relative = client_weights(scores, present), client_weights(relative_scores(scores, present), present)
    torch.testing.assert_close(raw[0, 0], torch.tensor([1.0, 1 / (1 + math.exp(-0.2))]))
    torch.testing.assert_close(relative[0, 0], torch.full((2,), 1 / (1 + math.exp(-1.0))))
    absent = torch.tensor([[True, False]])
    torch.testing.assert_close(relative_scores(scores, absent)[:, 0], torch.ones(1, 2))
    protection = FedRE(aggregation="pda_pam_relative").prepare(plan).protection
    model, rows = task.network.initial(rng).unsqueeze(0), normal(rng, (1, 3, 30))
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1, 2), samples=lambda c: task.samples(model, c))
    aggregate = protection.aggregate(message(rows), context, protection.initial_state(plan), np.random.default_rng(0))
    led = LayerScorer(count=2, pixels=32).scores(task.samples(model[0] + 0.5 * rows[0], None))
    weights = torch.softmax(-led / led.mean(0), dim=0)
    expected = torch.cat([weights[:, 0] @ rows[0, :, :27], weights[:, 1] @ rows[0, :, 27:]])
    torch.testing.assert_close(aggregate[0], expected)


def test_pda_pam_asks_each_clients_own_model_layer_by_layer(task, plan, rng):
    model = torch.stack([task.network.initial(rng) for _ in range(2)])
    rows = normal(rng, (2, 3, 30))
    context = Context(plan=plan, round=0, replicas=2, senders=(0, 1, 2), samples=lambda c: task.samples(model, c))
    scorer = LayerScorer(count=2)
    aggregate = pda_pam(message(rows), context, [scorer])
    for replica in range(2):
        led = model[replica] + 0.5 * rows[replica]
        weights = torch.softmax(-scorer.scores(task.samples(led, None)), dim=0)
        expected = torch.cat([weights[:, 0] @ rows[replica, :, :27], weights[:, 1] @ rows[replica, :, 27:]])
        torch.testing.assert_close(aggregate[replica], expected)
    alone = pda_pam(message(rows), replace(context, samples=None), [scorer])
    torch.testing.assert_close(alone, rows.mean(1))


@pytest.mark.parametrize("variant", ["corrected", "as_published"])
def test_without_pda_pam_clients_weigh_by_their_sizes(variant, task, plan, rng):
    protection = FedRE(aggregation="mean", variant=variant).prepare(plan).protection
    model, rows = task.network.initial(rng).unsqueeze(0), normal(rng, (1, 3, 30))
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1, 2), samples=lambda c: task.samples(model, c))
    aggregate = protection.aggregate(message(rows), context, protection.initial_state(plan), np.random.default_rng(0))
    torch.testing.assert_close(aggregate[0], (4 * rows[0, 0] + 6 * rows[0, 1] + 5 * rows[0, 2]) / 15)


@pytest.mark.parametrize("variant", ["corrected", "as_published"])
def test_fixed_scores_publish_the_law_of_the_hook(variant, plan):
    protection = FedRE(scores=(1.0, 4.0), variant=variant).prepare(plan).protection
    law, rows = protection.law(UPLOADS, plan, 0), normal(np.random.default_rng(3), (50, 2, 30))
    context = Context(plan=plan, round=0, replicas=50, senders=(0, 1))
    reports = protection.report(message(rows), context, protection.initial_state(plan), np.random.default_rng(0)).values
    torch.testing.assert_close(reports, law.sample(law.contribution(rows), np.random.default_rng(0)))
    assert law.noise_stds[1] > law.noise_stds[0]
    assert FedRE(variant=variant).prepare(plan).protection.law(UPLOADS, plan, 0) is None


def published_release(plan, **fields):
    """The exact cost of the published noise at fixed scores, and its claims."""
    prepared = FedRE(variant="as_published", **fields).prepare(plan)
    law = prepared.protection.law(UPLOADS, plan, 0)
    layers = tuple(Layer(clip_norm=c, noise_std=s) for c, s in zip(law.clip_norms, law.noise_stds, strict=True))
    return LayeredGaussian(layers=layers, adjacency=Adjacency.REPLACE_ONE, releases=plan.rounds), prepared.claims


def test_as_published_ten_equal_layers_are_jointly_worth_less_and_each_more_than_claimed(plan):
    """Joint epsilon 10, delta_l 1e-6: corollary 1 states 10, it is 5.43; each layer states 1 and is worth more."""
    release, (joint, *alone) = published_release(replace(plan, layout=TEN), epsilon=10.0, scores=(1.0,) * 10)
    assert (joint.epsilon, joint.delta) == (10.0, DELTA)
    assert release.epsilon(DELTA) == pytest.approx(5.43, abs=0.005)
    assert len(alone) == 10
    for index, claim in enumerate(alone):
        assert (claim.epsilon, claim.delta) == (pytest.approx(1.0), pytest.approx(1e-6))
        assert release.layer_epsilon(index, claim.delta) > 1.5 * claim.epsilon
    wider, _ = published_release(replace(plan, layout=TEN), epsilon=10.0, delta=1e-4, scores=(1.0,) * 10)
    assert wider.epsilon(DELTA) == pytest.approx(6.05, abs=0.005)


def test_as_published_one_layers_ten_is_worth_more_than_twenty_five(plan):
    one = replace(plan, layout=Layout(names=("all",), shapes=((5,),)))
    release, (joint, alone) = published_release(one, epsilon=10.0, scores=(1.0,))
    assert joint.epsilon == alone.epsilon == 10.0
    assert release.epsilon(DELTA) == pytest.approx(25.8, abs=0.05)


def test_as_published_each_claim_states_what_its_noise_is_worth(plan):
    """Five rounds, a thousand times less for the bias: 4 at .01 is 8.03, and its first layer's at .005 is 8.66, by
    dp-accounting's analytic Gaussian; of noise that hangs on private scores nothing is proved.
    """
    _, claims = published_release(replace(plan, rounds=5), epsilon=4.0, delta=0.01, scores=(1.0, 1000.0))
    share = 1000 / 1001
    std = math.sqrt(2 * 5 * math.log(200)) / 4 / (2 * math.sqrt(5) * share)
    joint, weight, bias = (claim.parameters["provable_epsilon"] for claim in claims)
    assert joint == pytest.approx(dp_accounting.get_epsilon_gaussian(std, 0.01), abs=1e-4)
    assert weight == pytest.approx(dp_accounting.get_epsilon_gaussian(std, 0.005), abs=1e-9)
    assert (joint, weight, bias) == (pytest.approx(8.03, abs=0.005), pytest.approx(8.66, abs=0.005), 0.0)
    (unknown,) = FedRE(variant="as_published").prepare(plan).claims
    assert unknown.parameters["provable"] == "none: the scale of the noise depends on the data"


def test_as_published_epsilon_falls_as_one_over_the_score(plan):
    torch.testing.assert_close(published_split(torch.tensor([1.0, 3.0])), torch.tensor([0.75, 0.25]).double())
    _, claims = published_release(plan, epsilon=4.0, scores=(1.0, 3.0))
    assert [claim.epsilon for claim in claims[1:]] == pytest.approx([3.0, 1.0])
    assert [claim.part for claim in FedRE(variant="as_published").prepare(plan).claims] == ["joint"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scores": (1.0,)}, r"scores must have one number for each of the 2 layers output.weight, output.bias, got 1"),
        ({"clip_norms": (1.0,) * 3}, "clip_norms must have one number for each of the 2 layers .*, got 3"),
    ],
)
def test_more_layers_than_budgets_and_other_numbers_are_refused(fields, message, plan):
    with pytest.raises(ValueError, match=message):
        FedRE(**fields).prepare(plan)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scores": (1.0, 0.0)}, "each of scores must be a number > 0, got 0.0"),
        ({"even": 1.0}, r"even must be in \(0, 1\)"),
        (
            {"aggregation": "median"},
            r"aggregation, .* must be one of 'pda_pam', 'pda_pam_relative', 'mean', got",
        ),
        ({"pixels": 0}, "pixels must be a whole number >= 1, got 0"),
        ({"images": 0}, "images must be a whole number >= 1, got 0"),
        ({"variant": "broken"}, "variant must be"),
        ({"epsilon": 0.0}, "epsilon must be"),
    ],
)
def test_impossible_fields_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        FedRE(**fields)


@pytest.mark.parametrize("region", [3, "abcd", (0.5, 0, 2, 2), (True, 0, 2, 2), (0, 0, 2), (-1, 0, 2, 2), (0, 0, 0, 2)])
def test_what_is_no_region_is_refused_by_name(region):
    with pytest.raises(ValueError, match="region must list four whole numbers") as refused:
        FedRE(region=region)
    assert repr(region) in str(refused.value)


def test_a_region_outside_the_images_is_refused_as_the_first_round_opens(task, plan):
    assert FedRE(region=[0, 0, 2, 2]).region == (0, 0, 2, 2)
    protection = FedRE(region=[0, 0, 99, 99]).prepare(plan).protection
    with pytest.raises(ValueError, match=r"region must lie inside images of 3 x 3 pixels, got \(0, 0, 99, 99\)"):
        run_federation(task, plan, protection, Streams(1), batch=Batch(replicas=1))


def test_a_layers_bound_that_no_report_carries_is_refused(plan):
    with pytest.raises(ValueError, match=r"each of clip_norms must be in \[1e-12, 1e\+12\]"):
        FedRE(clip_norms=(1e300,)).prepare(plan)
