"""Models: known sizes, PyTorch's default initial values from our streams, and what cannot be built."""

import math

import numpy as np
import pytest
import torch
from fedassay.fl.models.small_models import build_model, initial_parameters, known_models
from fedassay.fl.streams import Streams
from torch import nn

MNIST = (1, 28, 28)
DIGITS = (1, 8, 8)
CIFAR = (3, 32, 32)
OTHERS = ("unet", "resnet18", "transformer", "text_transformer", "text_lora")
PLAIN = [name for name in known_models() if name not in OTHERS]
"""The catalogue's classifiers whose initial values are PyTorch's defaults for linear layers and convolutions."""


def _rng(purpose="init"):
    return Streams(0).generator(purpose)


def _size(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "shape", "size"),
    [
        ("cnn26k", MNIST, 26_010),
        # 3x3 convolutions 3 -> 64 -> 128 -> 128 -> 256 (five times over); 32 -> 10 -> 3 pixels.
        ("convnet", (3, 32, 32), 1_792 + 73_856 + 147_584 + 295_168 + 4 * 590_080 + 23_050),
        ("logistic", DIGITS, 64 * 10 + 10),
        ("logistic", MNIST, 7_850),
        ("imprint", DIGITS, (64 + 1) * 256 + 256 + 64 * 256 + 256 + 256 * 10 + 10),
        ("mlp", MNIST, 784 * 256 + 256 + 256 * 10 + 10),
        # Convolutions 1 -> 12 -> 12 -> 12 of 5x5; 28 -> 14 -> 7 -> 7 pixels: iDLG's 588 features.
        ("lenet", MNIST, (25 + 1) * 12 + 2 * (300 + 1) * 12 + (588 + 1) * 10),
        # 32 -> 16 -> 8 -> 8 pixels: iDLG's 768 features.
        ("lenet", CIFAR, (75 + 1) * 12 + 2 * (300 + 1) * 12 + (768 + 1) * 10),
        # Without the convolutions' biases, with 12 weights and 12 biases of each norm.
        ("lenet_bn", MNIST, (25 * 12 + 24) + 2 * (300 * 12 + 24) + (588 + 1) * 10),
        ("lenet_dropout", MNIST, (25 + 1) * 12 + 2 * (300 + 1) * 12 + (588 + 1) * 10),
        # 8 -> 4 -> 4 pixels.
        ("lenet", DIGITS, (25 + 1) * 12 + (300 + 1) * 12 + (192 + 1) * 10),
    ],
)
def test_parameter_counts_are_the_hand_computed_ones(name, shape, size):
    model = build_model(name, shape=shape, classes=10)
    assert _size(model) == size
    assert model(torch.zeros(3, *shape)).shape == (3, 10)


def test_hidden_sets_the_width_of_the_mlp():
    assert _size(build_model("mlp", shape=DIGITS, classes=10, hidden=16)) == 64 * 16 + 16 + 16 * 10 + 10


def test_the_last_layer_is_called_output_in_every_model():
    for name in PLAIN:
        names = [parameter for parameter, _ in build_model(name, shape=MNIST, classes=7).named_parameters()]
        assert names[-2:] == ["output.weight", "output.bias"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, nn.LeakyReLU),
        ({"activation": "relu"}, nn.ReLU),
        ({"activation": "sigmoid"}, nn.Sigmoid),
        ({"activation": "tanh"}, nn.Tanh),
    ],
)
def test_lenet_takes_the_given_activation(options, expected):
    model = build_model("lenet", shape=MNIST, classes=10, **options)
    assert [type(model.get_submodule(f"activation{number}")) for number in (1, 2, 3)] == [expected] * 3


def test_a_built_model_is_zero_until_it_is_given_values():
    for name in PLAIN:
        assert all(not parameter.any() for parameter in build_model(name, shape=MNIST, classes=10).parameters())


def test_neither_building_nor_drawing_moves_a_global_generator():
    numpy_before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    for name in PLAIN:
        initial_parameters(build_model(name, shape=MNIST, classes=10), _rng())
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_before)


@pytest.mark.parametrize("name", PLAIN)
def test_initial_values_follow_the_law_of_pytorch_defaults(name):
    model = build_model(name, shape=CIFAR, classes=10)
    drawn = initial_parameters(model, _rng())
    assert list(drawn) == [parameter for parameter, _ in model.named_parameters()]
    for full, values in drawn.items():
        layer = model.get_submodule(full.rpartition(".")[0])
        if isinstance(layer, nn.BatchNorm2d):
            assert values.tolist() == [1.0 if full.endswith("weight") else 0.0] * 12
            continue
        bound = 1 / math.sqrt(nn.init._calculate_fan_in_and_fan_out(layer.weight)[0])
        assert values.shape == model.get_parameter(full).shape
        assert float(values.abs().max()) <= bound
        # Standard deviation of U(-b, b) is b / sqrt(3); relative error of its estimate about 0.45 / sqrt(n).
        if values.numel() >= 500:
            assert float(values.std()) == pytest.approx(bound / math.sqrt(3), rel=2 / math.sqrt(values.numel()))


def test_values_are_drawn_in_parameter_order_from_one_stream():
    drawn = initial_parameters(build_model("logistic", shape=DIGITS, classes=2), _rng())
    numbers = _rng().random(130, dtype=np.float32)
    np.testing.assert_allclose(drawn["output.weight"].flatten(), (2 * numbers[:128] - 1) / 8, atol=1e-7)
    np.testing.assert_allclose(drawn["output.bias"], (2 * numbers[128:] - 1) / 8, atol=1e-7)


def test_drawing_leaves_the_model_as_it_is_and_follows_its_dtype():
    model = build_model("logistic", shape=DIGITS, classes=2).double()
    drawn = initial_parameters(model, _rng())
    assert {values.dtype for values in drawn.values()} == {torch.float64}
    assert all(not parameter.any() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("lennet", {}, "unknown model 'lennet'; known: lenet, "),
        ("lenet", {"activation": "sigmod"}, "activation must be one of sigmoid, .*got 'sigmod'"),
        ("mlp", {"activation": "relu"}, "model mlp has no option 'activation'; it has: hidden"),
        ("lenet", {"hidden": 8}, "model lenet has no option 'hidden'; it has: activation"),
        ("mlp", {"hidden": 0}, "model mlp: hidden must be a whole number >= 1, got 0"),
        ("mlp", {"bins": 8}, "model mlp has no option 'bins'; it has: hidden"),
        ("imprint", {"bins": 0}, "bins must be a whole number >= 1, got 0"),
        ("mlp", {"classes": 0}, r"classes \(outputs of the model\) must be a whole number >= 1, got 0"),
        ("mlp", {"shape": (28, 28)}, r"shape must be \(channel, height, width\), each >= 1, got \(28, 28\)"),
        ("cnn26k", {"shape": (1, 13, 28)}, r"cnn26k needs images of at least 14x14 pixels, got shape \(1, 13, 28\)"),
        ("convnet", {"shape": (1, 8, 9)}, r"convnet needs images of at least 9x9 pixels, got shape \(1, 8, 9\)"),
        ("lenet", {"shape": (1, 6, 8)}, r"lenet needs images of at least 7x7 pixels, got shape \(1, 6, 8\)"),
    ],
)
def test_what_cannot_be_built_is_named(name, options, message):
    with pytest.raises(ValueError, match=message):
        build_model(name, **{"shape": MNIST, "classes": 10, **options})


@pytest.mark.parametrize(
    ("name", "side"), [("lenet", 7), ("lenet_bn", 7), ("lenet", 12), ("lenet", 13), ("cnn26k", 14), ("convnet", 9)]
)
def test_the_smallest_images_of_each_network_still_give_logits(name, side):
    model = build_model(name, shape=(1, side, side), classes=10)
    assert model(torch.zeros(1, 1, side, side)).shape == (1, 10)


def test_a_layer_with_another_default_is_refused_by_name():
    with pytest.raises(ValueError, match=r"layer of 1\.weight must be linear or a convolution, got LayerNorm"):
        initial_parameters(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), _rng())


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.BatchNorm2d(2), "layer 1 is a BatchNorm2d with buffers running_mean, running_var, num_batches_tracked"),
        (nn.Dropout(0.5), "layer 1 is a Dropout, which draws from the global random generator"),
        (nn.InstanceNorm2d(2, track_running_stats=True), "InstanceNorm2d with buffers running_mean, running_var"),
    ],
    ids=str,
)
def test_a_model_whose_train_mode_is_not_its_parameters_alone_is_refused(layer, reason):
    """Otherwise running statistics would leave a client with its upload, and dropout would use a global generator."""
    with pytest.raises(ValueError, match=reason):
        initial_parameters(nn.Sequential(nn.Conv2d(1, 2, 3), layer), _rng())
