"""Blocks of sample gradients: what falls back to a loop, what stays a product, and that planted bugs are found."""

import warnings

import pytest
import torch
from fedassay.fl.models import gradients
from fedassay.fl.models.architectures.resnet18 import resnet18
from fedassay.fl.models.compare_with_loop import compare_with_loop
from fedassay.fl.models.gradients import Factors, Rows, SampleLoss, clipped_sum_of, sample_norms, together
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy


def data(samples=4, shape=(2, 3, 4)):
    generator = torch.Generator().manual_seed(1)
    return torch.rand(samples, *shape, generator=generator), torch.arange(samples) % 3


def seeded(build):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return build()


def small():
    return seeded(lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(48, 3)))


def target_of(model):
    def loss(layers, image, label):
        return cross_entropy(functional_call(model, dict(layers), (image.unsqueeze(0),)), label.unsqueeze(0))

    return SampleLoss(module=model, loss=loss), {name: value.detach() for name, value in model.named_parameters()}


class Branching(nn.Module):
    """Python decides by the image's values, which cannot be mapped over samples."""

    def __init__(self):
        super().__init__()
        self.even, self.odd = nn.Linear(24, 3), nn.Linear(24, 3)

    def forward(self, images):
        return torch.cat([(self.even if float(x.sum()) > 12 else self.odd)(x.flatten()[None]) for x in images])


def test_a_model_that_cannot_be_mapped_runs_in_a_loop_and_the_reason_is_reported_once():
    model = seeded(Branching)
    with pytest.warns(UserWarning, match=r"Branching are computed one sample at a time.*cannot map it") as caught:
        found = [compare_with_loop(model, data(8)) for _ in range(2)]
    assert len(caught) == 1
    assert max(layer.largest for layers in found for layer in layers) < 1e-5


@pytest.mark.parametrize("build", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_recurrent_layers_of_pytorch_are_mapped(build):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.output = build(12, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, images):
            return self.output(self.cell(images.flatten(2))[0][:, -1])

    model = seeded(Last)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="sample gradients of")
        assert max(layer.largest for layer in compare_with_loop(model, data())) < 1e-5


def test_a_wrong_rule_is_found_in_its_own_layer_alone(monkeypatch):
    right = gradients._FOUND[nn.Conv2d]

    def wrong(layer, inputs, slopes):
        return right(layer, inputs.flip(-1), slopes)

    monkeypatch.setattr(gradients, "_FOUND", {**gradients._FOUND, nn.Conv2d: wrong})
    found = {layer.name: max(layer.gradients, layer.norms) for layer in compare_with_loop(small(), data())}
    assert found["0.weight"] > 0.01
    assert max(value for name, value in found.items() if name != "0.weight") < 1e-5


def test_norms_of_a_tied_weight_added_one_by_one_are_found(monkeypatch):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.output = nn.Linear(24, 24), nn.Linear(24, 3)

        def forward(self, images):
            return self.output(torch.tanh(self.inner(torch.tanh(self.inner(images.flatten(1))))))

    def wrong(uses):
        rows = [use.rows() if isinstance(use, Factors) else use for use in uses]
        # Norms add in squares, as if the two uses had weights of their own.
        return Rows(values=torch.stack([row.values.flatten(1) for row in rows]).square().sum(0).sqrt())

    monkeypatch.setattr(gradients, "together", wrong)
    found = {layer.name: layer.norms for layer in compare_with_loop(seeded(Twice), data())}
    assert found["inner.weight"] > 0.01
    assert found["output.weight"] < 1e-5


def test_norms_from_products_are_those_of_rows():
    draw = torch.Generator().manual_seed(5)
    left, right = (torch.randn(3, 2, 4, size, generator=draw, dtype=torch.float64) for size in (5, 6))
    index = torch.randint(5, (3, 1, 4), generator=draw)
    for factors in (Factors(left=left, right=right, a=5), Factors(left=index, right=right[:, :1], a=5)):
        rows = factors.rows()
        assert torch.allclose(factors.squared_norms(), rows.squared_norms(), rtol=1e-12)
        weights = torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64)
        assert torch.allclose(factors.weighted_sum(weights), rows.weighted_sum(weights), rtol=1e-12)


def test_the_way_with_less_memory_is_taken():
    few, many = (torch.ones(1, 1, positions, 6) for positions in (2, 9))
    assert isinstance(together([Factors(left=few, right=few, a=6)]), Factors)
    assert isinstance(together([Factors(left=many, right=many, a=6)]), Rows)


def test_sums_with_equal_weights_are_the_gradients_of_the_sum_and_of_the_mean():
    model, (images, labels) = small(), data()
    target, layers = target_of(model)
    for reduction, weight in (("sum", 1.0), ("mean", 0.25)):
        model.zero_grad()
        cross_entropy(model(images), labels, reduction=reduction).backward()
        total = clipped_sum_of(target, layers, lambda norms, w=weight: torch.full((len(norms),), w), images, labels)
        for name, value in model.named_parameters():
            assert torch.allclose(total[name], value.grad, rtol=1e-5, atol=1e-7)


def test_no_sample_gives_zero():
    target, layers = target_of(small())
    images, labels = data(2)
    total = clipped_sum_of(target, layers, lambda norms: norms[:, 0], images[:0], labels[:0])
    assert all(not value.any() for value in total.values())
    assert sample_norms(target, layers, images[:0], labels[:0]).shape == (0, 4)


def test_a_sample_whose_gradient_overflows_contributes_nothing():
    target, layers = target_of(small())
    images, labels = data(3)
    wanted = clipped_sum_of(target, layers, lambda norms: torch.ones(len(norms)), images[1:], labels[1:])
    images[0] = float("inf")
    total = clipped_sum_of(target, layers, lambda norms: torch.ones(len(norms)), images, labels)
    assert all(torch.allclose(total[name], wanted[name], rtol=1e-5, atol=1e-7) for name in wanted)


def test_a_loss_without_parameters_is_refused():
    model = small()
    target = SampleLoss(module=model, loss=lambda layers, image, label: image.sum())
    with pytest.raises(ValueError, match="the loss of Sequential depends on none of its trained parameters"):
        sample_norms(target, dict(model.named_parameters()), *data())


def test_forward_methods_are_restored():
    model = small()
    compare_with_loop(model, data())
    assert not any("forward" in vars(layer) for layer in model.modules())


@pytest.mark.simulations
def test_no_gradient_per_sample_of_a_large_layer_is_held(monkeypatch):
    """ResNet-18 of 11 million parameters: rows of one layer never hold more than its products of positions would."""
    held = []
    honest = gradients.Factors.rows
    monkeypatch.setattr(gradients.Factors, "rows", lambda self: (held.append(self), honest(self))[1])
    model = seeded(lambda: resnet18((3, 32, 32), 10))
    target, layers = target_of(model)
    images, labels = data(4, (3, 32, 32))
    norms = sample_norms(target, layers, images, labels)
    assert norms.shape == (4, len(layers))
    assert max(one.a * one.right.shape[-1] for one in held) < 10**6
