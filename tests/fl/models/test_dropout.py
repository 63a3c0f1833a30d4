"""Dropout in training: factors from a named stream that can be repeated, and never PyTorch's own draws."""

import numpy as np
import pytest
import torch
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.engine import run_federation
from fedassay.fl.models.layers import Dropout
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Full, Poisson, lot_indices
from fedassay.fl.streams import Streams, normal, uniform
from fedassay.fl.training.local import Batch
from torch.nn.functional import conv2d, cross_entropy, leaky_relu

SHAPE, CLASSES, FEATURES = (1, 8, 8), 3, 12 * 4 * 4
SEED = 3


class PerSample(Protection):
    """No protection, taken the long way: per-sample gradients and their mean."""

    per_sample = True


def naive_gradient(network, params, images, labels, factors):
    """Of the mean loss of one lot, written down: two convolutions, the features times their factors, a linear layer."""
    point = params.clone().requires_grad_(True)
    layers = network.layout.unflatten(point)
    maps = leaky_relu(conv2d(images, layers["conv1.weight"], layers["conv1.bias"], stride=2, padding=2))
    maps = leaky_relu(conv2d(maps, layers["conv2.weight"], layers["conv2.bias"], stride=1, padding=2))
    logits = (maps.flatten(1) * factors) @ layers["output.weight"].T + layers["output.bias"]
    (gradient,) = torch.autograd.grad(cross_entropy(logits, labels), point)
    return gradient


def factors_of(client, number, step, shape, *, block=0, world=0):
    """From the stream's name alone: a uniform number of at least 1/2 keeps a feature, and doubles it."""
    rng = Streams(SEED).generator("dropout", replicate=block, world=world, round=number, client=client, step=step)
    return 2.0 * torch.from_numpy(rng.random((*shape, FEATURES), dtype=np.float32) >= 0.5)


def case(replicas, samples=4):
    network = Network(model="lenet_dropout", shape=SHAPE, classes=CLASSES, inert=2)
    rng = Streams(6).generator("case")
    params = 0.2 * normal(rng, (replicas, network.layout.dim), dtype=torch.float64)
    images = uniform(rng, (replicas, samples, *SHAPE), dtype=torch.float64)
    labels = torch.from_numpy(rng.integers(CLASSES, size=(replicas, samples)))
    return network, params, images, labels, network.draw_dropout(rng, (replicas, samples)).double()


@pytest.mark.parametrize("replicas", [1, 3])
def test_gradients_are_those_of_the_factors_that_were_handed_in(replicas):
    network, params, images, labels, factors = case(replicas)
    rows = network.sample_gradients(params, images, labels, factors)
    means = network.gradient(params, images, labels, torch.full(labels.shape, 0.25, dtype=torch.float64), factors)
    torch.testing.assert_close(means, rows.mean(1))
    for r in range(replicas):
        naive = naive_gradient(network, params[r], images[r], labels[r], factors[r])
        torch.testing.assert_close(means[r], naive, rtol=1e-9, atol=1e-12)
        assert naive.abs().max() > 0.05
    assert (means - network.gradient(params, images, labels, torch.full(labels.shape, 0.25))).abs().max() > 0.01


@pytest.mark.parametrize("lot", [Full(), Poisson(0.4)], ids=str)
@pytest.mark.parametrize("protection", [Protection(), PerSample()], ids=["sum", "per_sample"])
def test_a_clients_round_is_repeated_from_the_names_of_its_streams(make_task, make_plan, make_tape, lot, protection):
    """Two rounds of two local steps in two replicas: every update is that of the plain loop with the stream's draws."""
    task, tape = make_task((4, 6), model="lenet_dropout", side=8), make_tape()
    plan = make_plan(task, rounds=2, lot=lot, algorithm=FedAvg(learning_rate=0.1, local_steps=2))
    run_federation(task, plan, protection, Streams(SEED), batch=Batch(replicas=2), recorders=[tape])
    for number, event in enumerate(tape.events):
        for row, client in enumerate(event.reports.senders):
            local = start = event.broadcast
            for step, mask in enumerate(event.lots[client]):
                chosen, real = lot_indices(mask)
                factors = factors_of(client, number, step, tuple(chosen.shape))
                moved = []
                for r in range(2):
                    drawn = task.parts[client][chosen[r][real[r]]]
                    held = task.images[drawn], task.labels[drawn], factors[r][real[r]]
                    gradient = naive_gradient(task.network, local[r], *held) if len(drawn) else torch.zeros(1)
                    moved.append(local[r] - 0.1 * gradient)
                local = torch.stack(moved)
            torch.testing.assert_close(event.reports.values[:, row], local - start, rtol=1e-4, atol=1e-5)


def test_draws_differ_between_rounds_clients_steps_blocks_arms_and_replicas():
    """With the test above, which ties the engine to these names."""
    names = [(client, number, step, block, world) for client in (0, 1) for number in (0, 1) for step in (0, 1)
             for block in (0, 1) for world in (0, 1)]  # fmt: skip
    drawn = [factors_of(c, n, s, (2, 3), block=b, world=w) for c, n, s, b, w in names]
    rows = torch.cat(drawn).flatten(1)
    assert len(rows.unique(dim=0)) == len(rows) == 64


def test_two_rounds_of_one_client_drop_other_features(make_task, make_plan, make_tape):
    """Learning rate so small that the model stands still: without dropout both rounds' uploads would be equal."""
    task, tape = make_task((4,), model="lenet_dropout", side=8), make_tape()
    plan = make_plan(task, rounds=2, algorithm=FedSGD(learning_rate=1e-9))
    run_federation(task, plan, Protection(), Streams(SEED), recorders=[tape])
    first, second = (event.reports.values[0, 0] for event in tape.events)
    assert torch.linalg.vector_norm(first - second) > 0.1 * torch.linalg.vector_norm(first)


def test_half_of_the_features_are_dropped_and_the_others_doubled():
    """20,000 coins: the share is within 4 standard deviations, .0141, of one half; missed once in 16,000 seeds."""
    drawn = Dropout(100).draw(np.random.default_rng(0), (4, 50))
    assert drawn.shape == (4, 50, 100)
    assert drawn.unique().tolist() == [0, 2]
    assert float((drawn == 0).float().mean()) == pytest.approx(0.5, abs=0.0142)


def test_without_factors_nothing_is_dropped():
    network, params, images, *_ = case(1)
    plain = Network(model="lenet", shape=SHAPE, classes=CLASSES, inert=2)
    assert torch.equal(network.logits(params[0], images[0]), plain.logits(params[0], images[0]))


def test_neither_training_nor_evaluation_moves_the_global_generators(make_task, make_plan):
    task = make_task((4, 6), model="lenet_dropout", side=8)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    final = run_federation(task, make_plan(task), PerSample(), Streams(SEED))
    task.utility(final[0])
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


def test_models_that_drop_nothing_have_no_factors():
    assert Network(model="lenet", shape=SHAPE, classes=2).draw_dropout(np.random.default_rng(0), (2,)) is None
