"""Models from outside the catalogue, as networks: gradients of samples, lots and replicas, dropout, frozen layers."""

import numpy as np
import pytest
import torch
from fedassay.fl.models.layers import Normalisation
from fedassay.fl.models.network import Network
from fedassay.fl.streams import Streams

SHAPE = (1, 4, 4)
NAMES = ["attentive", "recurrent", "dropping", "half_frozen", "branching", "group_normed"]
CATALOGUE = {
    "logistic": {},
    "mlp": {"options": {"hidden": 8}},
    "imprint": {"bins": (-1.0, 0.1, 0.2)},
    "lenet": {"shape": (1, 8, 8)},
    "lenet_bn": {"shape": (1, 8, 8)},
    "lenet_dropout": {"shape": (1, 8, 8)},
    "cnn26k": {"shape": (1, 14, 14)},
    "convnet": {"shape": (1, 9, 9)},
    "resnet18": {"options": {"width": 4, "groups": 2}},
    "transformer": {"options": {"width": 8, "heads": 2, "patch": 2}},
}


def network(name, **more):
    if name in CATALOGUE:
        return Network(**{"model": name, "shape": SHAPE, "classes": 3} | CATALOGUE[name], **more)
    return Network(model=f"own_models:{name}", shape=SHAPE, classes=3, **more)


def case(net, replicas=2, samples=3):
    rng = Streams(5).generator("case")
    models = torch.stack([net.initial(rng) for _ in range(replicas)])
    images = torch.from_numpy(rng.random((replicas, samples, *net.shape), dtype=np.float32))
    labels = torch.from_numpy(rng.integers(3, size=(replicas, samples)))
    dropout = net.draw_dropout(rng, (replicas, samples)) if net.dropout_rate else None
    return models, images, labels, dropout


@pytest.mark.filterwarnings("ignore:sample gradients of")
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", [*NAMES, *CATALOGUE])
def test_gradient_inversion_can_differentiate_twice(name):
    """The derivative of half a squared gradient along a direction: that of finite differences."""
    net = network(name)
    models, images, _, _ = case(net, 1, 2)
    images, point = images.double(), models[0].double()
    assert net.objective.classifies
    net.module.double()
    soft = torch.full((1, 2, 3), 1 / 3, dtype=torch.float64)
    soft[0, 0, 1] = 0.5

    def half_square(at):
        return net.lot_gradients(point, at, soft).square().sum() / 2

    at = images.clone().requires_grad_()
    (slope,) = torch.autograd.grad(half_square(at), at)
    along = torch.ones_like(images)
    step = 1e-7
    difference = (half_square(images + step * along) - half_square(images - step * along)) / (2 * step)
    assert float((slope * along).sum()) == pytest.approx(float(difference), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("name", ["attentive", "dropping", "half_frozen", "transformer"])
def test_initial_values_are_the_models_own_and_repeat_with_the_stream(name):
    net = network(name, normalisation=Normalisation(mean=(0.5,), std=(0.25,)))
    before = torch.get_rng_state()
    first, again, other = (net.initial(Streams(seed).generator("init")) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == (net.layout.dim,)
    assert torch.equal(torch.get_rng_state(), before)


def test_frozen_layers_are_not_in_the_layout_and_keep_their_values():
    net = network("half_frozen")
    assert net.layout.names == ("output.weight", "output.bias")
    assert torch.equal(net.module.fixed.weight, network("half_frozen").module.fixed.weight)


def test_dropout_takes_one_seed_per_sample_and_evaluation_takes_none():
    net = network("dropping")
    models, images, _, dropout = case(net)
    assert net.dropout_rate == 0.5
    assert net.dropout_is_seeded
    assert dropout.shape == (2, 3, 1)
    assert not torch.equal(net.logits(models[0], images[0], dropout[0]), net.logits(models[0], images[0]))
    assert torch.equal(net.evaluated(models[0], images[0]), net.logits(models[0], images[0]).detach())


def test_many_images_are_evaluated_in_parts(monkeypatch):
    net = network("group_normed")
    models, images, _, _ = case(net, 1, 9)
    whole = net.evaluated(models[0], images[0])
    monkeypatch.setattr("fedassay.fl.models.network._AT_ONCE", 4)
    assert torch.allclose(net.evaluated(models[0], images[0]), whole, atol=1e-6)


def test_batch_norm_is_refused_with_its_replacement():
    with pytest.raises(ValueError, match=r"model own_models:batch_normed: layer 1 is a BatchNorm2d.*GroupNorm\(4, 4\)"):
        _ = network("batch_normed").layout
    with pytest.raises(ValueError, match=r"DP-SGD needs .* torch.nn.GroupNorm\(16, 16\) as layer 1"):
        network("batch_statistics").check_separate("DP-SGD")


@pytest.mark.parametrize(
    ("model", "options", "shape", "size"),
    [
        # That of torchvision has 11,689,512 parameters at 1000 classes; small images get a 3x3 convolution first.
        ("resnet18", {}, (3, 32, 32), 11_689_512 - 513_000 + 5_130 - 9_408 + 1_728),
        ("resnet18", {}, (3, 64, 64), 11_689_512 - 513_000 + 5_130),
        # Positions, patches, two blocks of 12 width^2 + 13 width, last norm, output.
        ("transformer", {}, (1, 8, 8), 4 * 64 + 17 * 64 + 2 * (12 * 64**2 + 13 * 64) + 128 + 650),
        ("transformer", {"width": 8, "layers": 1}, (1, 1, 30), 8 * 8 + 5 * 8 + 12 * 64 + 13 * 8 + 16 + 90),
    ],
)
def test_parameter_counts_of_the_catalogue(model, options, shape, size):
    net = Network(model=model, shape=shape, classes=10, options=options)
    assert net.layout.dim == size
    assert net.layout.names[-2:] == ("output.weight", "output.bias")
    assert net.large == (size > 2**22)
    assert not net.mixes


def test_mixed_precision_has_the_same_weights_and_nearly_the_same_gradient():
    """Numbers of bfloat16 have 8 significant bits, and 18 layers add up their errors."""
    draw = torch.Generator().manual_seed(0)
    images, labels = torch.rand(1, 6, 3, 16, 16, generator=draw), torch.arange(6)[None]
    found = []
    for precision in ("float32", "bfloat16"):
        net = Network(model="resnet18", shape=(3, 16, 16), classes=6, options={"width": 8, "precision": precision})
        weights = net.initial(Streams(0).generator("init"))
        found.append((weights, net.gradient(weights[None], images, labels, torch.full((1, 6), 1 / 6))[0]))
    (weights, exact), (same, mixed) = found
    assert torch.equal(weights, same)
    assert mixed.dtype == torch.float32
    assert not torch.equal(exact, mixed)
    assert torch.cosine_similarity(exact, mixed, dim=0) > 0.9
    assert float(mixed.norm()) == pytest.approx(float(exact.norm()), rel=0.2)


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="width must be a multiple of heads, got width 6 and heads 4"):
        _ = Network(model="transformer", shape=SHAPE, classes=3, options={"width": 6}).module
    with pytest.raises(ValueError, match="a sample must have at most 4096 patches, got 4097: set a larger patch"):
        _ = Network(model="transformer", shape=(1, 1, 4 * 4096 + 1), classes=3).module
    with pytest.raises(ValueError, match="precision must be one of float32, bfloat16, got 'float16'"):
        _ = Network(model="resnet18", shape=SHAPE, classes=3, options={"precision": "float16"}).module
    with pytest.raises(ValueError, match="width must be a whole number >= 1, got 0"):
        _ = Network(model="resnet18", shape=SHAPE, classes=3, options={"width": 0}).module
