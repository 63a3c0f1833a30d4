"""Sample gradients by layers: those of a gradient function mapped over samples, for every model that is known."""

import pytest
import torch
from fedassay.fl.models.network import Network
from fedassay.fl.models.sample_gradients import is_known, logits, sample_gradients
from fedassay.fl.models.small_models import build_model, known_models
from fedassay.fl.streams import Streams, normal, uniform
from torch import nn
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy

SHAPES = {
    "logistic": (1, 5, 4),
    "mlp": (2, 3, 3),
    "lenet": (1, 13, 16),
    "lenet_dropout": (2, 7, 8),
    "cnn26k": (1, 15, 17),
    "convnet": (1, 9, 9),
}
SAMPLES, INERT = 5, 2


def case(model, replicas, dtype):
    lot = 1 if model == "convnet" else SAMPLES
    network = Network(model=model, shape=SHAPES[model], classes=4, inert=INERT)
    rng = Streams(8).generator("case")
    params = torch.stack([network.initial(rng) for _ in range(replicas)]).to(dtype)
    params = params + 0.05 * normal(rng, tuple(params.shape), dtype=dtype)
    images = uniform(rng, (replicas, lot, *SHAPES[model]), dtype=dtype)
    images[:, 0, :, :3] = 0  # Equal places, among which a pool chooses.
    labels = torch.from_numpy(rng.integers(4, size=(replicas, lot)))
    dropout = network.draw_dropout(rng, (replicas, lot))
    return network, params, (images, labels) if dropout is None else (images, labels, dropout.to(dtype))


def mapped(network, params, *cases):
    """Naive version: torch's own gradient function, over samples and then over replicas."""

    def loss(point, image, label, *dropout):
        logits = network.logits(point, image.unsqueeze(0), *(part.unsqueeze(0) for part in dropout))
        return cross_entropy(logits[0], label)

    inner = vmap(grad(loss), in_dims=(None, *[0] * len(cases)))
    return torch.stack([inner(*one) for one in zip(params, *cases, strict=True)])


# The largest model once: its rows are eight million numbers.
@pytest.mark.parametrize(
    ("model", "replicas"), [("convnet", 1), *((model, n) for model in SHAPES if model != "convnet" for n in (1, 3))]
)
@pytest.mark.parametrize(("dtype", "rtol", "atol"), [(torch.float64, 1e-9, 1e-12), (torch.float32, 1e-3, 2e-6)])
def test_by_layers_and_mapped_over_samples_are_the_same(monkeypatch, model, replicas, dtype, rtol, atol):
    monkeypatch.setattr("fedassay.fl.models.network._MANY", 0)
    network, params, cases = case(model, replicas, dtype)
    before = torch.get_rng_state()
    rows = network.sample_gradients(params, *cases)
    assert torch.equal(torch.get_rng_state(), before)
    assert rows.shape == (*cases[1].shape, network.layout.dim)
    assert not rows.requires_grad
    torch.testing.assert_close(rows, mapped(network, params, *cases), rtol=rtol, atol=atol)
    assert not rows[..., -INERT:].any()
    assert rows[..., :-INERT].abs().amax(-1).min() > 1e-4
    assert torch.equal(rows, network.sample_gradients(params, *cases)), "the same input, the same bits"
    with torch.no_grad():
        assert torch.equal(rows, network.sample_gradients(params, *cases))


@pytest.mark.parametrize("model", [model for model in SHAPES if model != "convnet"])
def test_a_sample_moves_no_others_gradient(model):
    network, params, cases = case(model, 1, torch.float64)
    rows = network.sample_gradients(params, *cases)[0]
    cases[0][:, 1] += 0.5
    moved = network.sample_gradients(params, *cases)[0]
    torch.testing.assert_close(moved[[0, 2, 3, 4]], rows[[0, 2, 3, 4]], rtol=1e-10, atol=1e-14)
    assert (moved[1] - rows[1]).abs().max() > 1e-5


@pytest.mark.parametrize("model", SHAPES)
def test_an_empty_lot_has_no_rows(model):
    network, params, cases = case(model, 1, torch.float32)
    rows = network.sample_gradients(params, *(part[:, :0] for part in cases))
    assert rows.shape == (1, 0, network.layout.dim)


def test_small_lots_of_many_replicas_are_mapped_together_and_agree():
    network, params, cases = case("lenet_dropout", 3, torch.float64)
    assert SAMPLES * network.layout.dim < 2**16
    together = network.sample_gradients(params, *cases)
    one_by_one = [network.sample_gradients(*(part[r : r + 1] for part in (params, *cases)))[0] for r in range(3)]
    torch.testing.assert_close(together, torch.stack(one_by_one), rtol=1e-9, atol=1e-12)


def test_known_are_plain_chains_that_keep_samples_apart():
    of_images = set(known_models()) - {"text_transformer", "text_lora"}
    known = {name for name in of_images if is_known(build_model(name, shape=(1, 32, 32), classes=2))}
    assert known == set(SHAPES)
    chain = type(build_model("mlp", shape=(1, 4, 4), classes=3))
    for layer in (
        nn.Conv2d(2, 2, 3, groups=2),
        nn.Conv2d(1, 1, 3, dilation=2),
        nn.Conv2d(1, 1, 3, padding="same"),
        nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"),
        nn.BatchNorm2d(1, track_running_stats=False),
    ):
        assert not is_known(chain(layer)), layer
    assert not is_known(nn.Sequential(nn.Linear(2, 2)))


def test_a_linear_layers_gradient_is_the_hand_computed_one():
    """Zero weights, two classes: label 0 has the residual (-1/2, 1/2), times the image (1, 3)."""
    network = Network(model="logistic", shape=(1, 1, 2), classes=2)
    rows = torch.empty(1, network.layout.dim)
    image, label = torch.tensor([[[[1.0, 3.0]]]]), torch.tensor([0])
    sample_gradients(network.module, network.layout, network.objective, torch.zeros(6), image, label, out=rows)
    assert rows.tolist() == [[-0.5, -1.5, 0.5, 1.5, -0.5, 0.5]]


@pytest.mark.parametrize("model", [model for model in SHAPES if model not in {"convnet", "lenet_dropout"}])
@pytest.mark.parametrize("count", [0, 1, 250, 251, 600])
def test_logits_in_several_passes_are_those_of_each_image(model, count):
    network, params, _ = case(model, 1, torch.float64)
    images = uniform(Streams(9).generator("images"), (count, *SHAPES[model]), dtype=torch.float64)
    found = logits(network.module, network.layout, params[0], images)
    assert found.shape == (count, 4)
    assert not found.requires_grad
    torch.testing.assert_close(found, network.logits(params[0], images), rtol=1e-10, atol=1e-12)
