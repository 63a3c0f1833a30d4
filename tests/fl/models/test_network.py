"""Network: gradients as a plain autograd loop computes them, one replica or many, and nothing on inert weights."""

import pytest
import torch
from fedassay.fl.models.network import Network
from fedassay.fl.streams import Streams, normal, uniform

SHAPES = {"logistic": (1, 5, 4), "mlp": (2, 3, 3), "lenet": (1, 7, 8), "cnn26k": (1, 14, 15)}
INERT = 3
SAMPLES = 4


def case(model, replicas=1, dtype=torch.float64):
    """A network with random parameters, images and labels, in double precision so that both versions agree closely."""
    network = Network(model=model, shape=SHAPES[model], classes=5, inert=INERT)
    rng = Streams(4).generator("case")
    params = 0.3 * normal(rng, (replicas, network.layout.dim), dtype=dtype)
    images = uniform(rng, (replicas, SAMPLES, *SHAPES[model]), dtype=dtype)
    labels = torch.from_numpy(rng.integers(5, size=(replicas, SAMPLES)))
    return network, params, images, labels


@pytest.mark.parametrize("model", SHAPES)
def test_inert_weights_change_neither_logits_nor_losses(model):
    network, params, images, labels = case(model)
    moved = params[0].clone()
    moved[-INERT:] += 100
    assert torch.equal(network.logits(moved, images[0]), network.logits(params[0], images[0]))
    assert torch.equal(network.losses(moved, images[0], labels[0]), network.losses(params[0], images[0], labels[0]))


def test_losses_are_cross_entropies():
    network, params, images, labels = case("mlp")
    logits = network.logits(params[0], images[0])
    expected = logits.logsumexp(-1) - logits.gather(1, labels[0].unsqueeze(-1)).squeeze(-1)
    losses = network.losses(params[0], images[0], labels[0])
    torch.testing.assert_close(losses, expected)


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_a_lots_gradient_is_the_mean_of_its_samples_and_of_its_labels(model):
    """Lots of two samples; a label of halves is the mean of the two labels; each lot at a model of its own or not."""
    network, params, images, labels = case(model, replicas=2)
    hot = torch.nn.functional.one_hot(labels[0], 5).double()
    rows, pairs = network.sample_gradients(params[:1], images[:1], labels[:1])[0], torch.tensor([[0, 1], [2, 0]])
    lots = network.lot_gradients(params[0], images[0][pairs], hot[pairs])
    torch.testing.assert_close(lots, torch.stack([rows[:2].mean(0), rows[[2, 0]].mean(0)]))
    own = network.lot_gradients(params, images[:, :1], hot[None, :1].expand(2, -1, -1))
    ones = network.sample_gradients(params, images[:, :1], labels[:1, :1].expand(2, 1))
    torch.testing.assert_close(own, ones[:, 0])
    halves, other = (hot[:1] + torch.eye(5, dtype=torch.float64)[:1]) / 2, torch.tensor([[0]])
    zero = network.sample_gradients(params[:1], images[:1, :1], other)[0, 0]
    torch.testing.assert_close(network.lot_gradients(params[0], images[:1, :1], halves[None])[0], (rows[0] + zero) / 2)


def test_initial_weights_come_from_the_stream_alone_and_inert_ones_start_at_zero():
    plain, audited = (Network(model="lenet", shape=(1, 8, 8), classes=4, inert=inert) for inert in (0, 2))
    first = audited.initial(Streams(1).generator("init"))
    assert first.shape == (audited.layout.dim,)
    assert torch.equal(first[:-2], plain.initial(Streams(1).generator("init")))
    assert first[-2:].tolist() == [0, 0]
    assert not torch.equal(first, audited.initial(Streams(2).generator("init")))


def test_a_network_that_shares_a_module_is_the_one_that_builds_its_own():
    network = Network(model="mlp", shape=SHAPES["mlp"], classes=5)
    assert network.objective.classifies
    own = Network(model="mlp", shape=SHAPES["mlp"], classes=5, inert=2)
    shared = Network(model="mlp", shape=SHAPES["mlp"], classes=5, inert=2).sharing(network)
    assert shared.module is network.module
    assert (shared, shared.layout, shared.objective) == (own, own.layout, own.objective)


def test_the_modules_own_weights_return_after_an_error():
    network = Network(model="mlp", shape=(1, 4, 4), classes=3)
    own = dict(network.module.named_parameters())
    params = network.initial(Streams(0).generator("init"))
    with pytest.raises(RuntimeError):
        network.logits(params, torch.zeros(2, 1, 5, 5))
    assert all(value is own[name] for name, value in network.module.named_parameters())
    assert network.logits(params, torch.zeros(2, 1, 4, 4)).shape == (2, 3)


def test_a_tensor_that_a_model_uses_twice_gets_both_gradients():
    network = Network(model="mlp", shape=(1, 4, 4), classes=16, options={"hidden": 16})
    network.module.hidden.weight = network.module.output.weight
    assert len(network.layout.names) == 3
    params = torch.linspace(-1, 1, network.layout.dim)
    images, labels = torch.rand(1, 5, 1, 4, 4, generator=torch.Generator().manual_seed(0)), torch.arange(5)[None]
    found = network.gradient(params[None], images, labels, torch.full((1, 5), 0.2))[0]
    point = params.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(network.losses(point, images[0], labels[0]).mean(), point)
    torch.testing.assert_close(found, wanted)
