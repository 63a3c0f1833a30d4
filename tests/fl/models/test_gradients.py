"""Sample gradients, norms and clipped sums of many architectures: those of one backward pass per sample.

Blocks of sample gradients: what falls back to a loop, what stays a product, and that planted bugs are found.

Second derivatives through mapped gradients: those of finite differences, also where PyTorch's own are wrong.
"""

import warnings

import pytest
import torch
from fedassay.fl.models import gradients
from fedassay.fl.models.architectures.resnet18 import resnet18
from fedassay.fl.models.architectures.transformer import transformer
from fedassay.fl.models.gradients import (
    Factors,
    GradientRows,
    SampleLoss,
    clipped_sum_of,
    differentiable_twice,
    together,
)
from loop_differences import differences, largest, norms_of
from own_models import Through, branching
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.nn.functional import cross_entropy

SAMPLES, CLASSES = 4, 3


def tokens(images):
    """Indices below 7 from images in [0, 1)."""
    return (images.flatten(1) * 7).long()


def attention():
    def run(m, x):
        h = x.flatten(2)
        return m.output((h + m.mix(h, h, h, need_weights=False)[0]).flatten(1))

    return Through(run, mix=nn.MultiheadAttention(12, 3, batch_first=True), output=nn.Linear(24, CLASSES))


def lstm_cell():
    def run(m, x):
        state = None
        for step in x.flatten(2).unbind(1):
            state = m.cell(step, state)
        return m.output(state[0])

    return Through(run, cell=nn.LSTMCell(12, 5), output=nn.Linear(5, CLASSES))


def gru_by_hand():
    """A recurrent cell of linear layers, which are used once per step."""

    def run(m, x):
        h = x.new_zeros(len(x), 5)
        for step in x.flatten(2).unbind(1):
            both = torch.cat([step, h], 1)
            keep = torch.sigmoid(m.gate(both))
            h = keep * h + (1 - keep) * torch.tanh(m.fresh(both))
        return m.output(h)

    return Through(run, gate=nn.Linear(17, 5), fresh=nn.Linear(17, 5), output=nn.Linear(5, CLASSES))


def embedding():
    return Through(
        lambda m, x: m.output(m.words(tokens(x)).mean(1)),
        words=nn.Embedding(7, 5, padding_idx=2),
        output=nn.Linear(5, CLASSES),
    )


def tied_embedding():
    """A language model's head: one weight as an embedding and as a linear layer."""

    def run(m, x):
        return m.head(torch.tanh(m.words(tokens(x)))).mean(1)[:, :CLASSES]

    model = Through(run, words=nn.Embedding(7, 5), head=nn.Linear(5, 7))
    model.head.weight = model.words.weight
    return model


def tied_and_read():
    """A weight that a layer uses and that the forward method reads as well, in another shape."""

    def run(m, x):
        h = torch.tanh(m.hidden(x.flatten(1)))
        return m.output(h + F.linear(F.linear(h, m.hidden.weight.T), m.hidden.weight))

    return Through(run, hidden=nn.Linear(24, 6), output=nn.Linear(6, CLASSES))


def convolutions(**options):
    def build():
        conv = nn.Conv2d(2, 4, 3, **options)
        size = conv(torch.zeros(1, 2, 3, 4)).numel() if options.get("padding") else 0
        return nn.Sequential(conv, nn.Tanh(), nn.Flatten(), nn.Linear(size, CLASSES))

    return build


def one_dimension():
    return nn.Sequential(
        nn.Flatten(2), nn.Conv1d(2, 3, 3, stride=2, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(18, CLASSES)
    )


def three_dimensions():
    return nn.Sequential(nn.Unflatten(1, (1, 2)), nn.Conv3d(1, 2, 2, padding=1), nn.Flatten(), nn.Linear(120, CLASSES))


def norms():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Tanh(), nn.LayerNorm([3, 4]), nn.RMSNorm(4), nn.Flatten(),
        nn.Linear(48, CLASSES),
    )  # fmt: skip


def residual():
    def run(m, x):
        h = m.first(x)
        return m.output((h + m.inner(torch.relu(m.inner(h)))).mean((2, 3)))

    return Through(run, first=nn.Conv2d(2, 4, 1), inner=nn.Conv2d(4, 4, 3, padding=1), output=nn.Linear(4, CLASSES))


def bilinear():
    return Through(
        lambda m, x: m.output(torch.tanh(m.both(x[:, 0].flatten(1), x[:, 1].flatten(1)))),
        both=nn.Bilinear(12, 12, 3),
        output=nn.Linear(3, CLASSES),
    )


def sequence_first():
    """A transformer of PyTorch whose first dimension is not the batch."""
    layer = nn.TransformerEncoderLayer(12, 2, 8, dropout=0.2, batch_first=False)
    layer.self_attn.dropout = 0.0
    layer.dropout = layer.dropout1 = layer.dropout2 = nn.Identity()
    return Through(
        lambda m, x: m.output(m.layer(x.flatten(2).transpose(0, 1)).mean(0)), layer=layer, output=nn.Linear(12, CLASSES)
    )


def single_numbers():
    """Parameters of no dimension, a frozen layer, a constant buffer and a layer that the forward method leaves out."""

    def run(m, x):
        return m.output(torch.tanh(m.frozen(x.flatten(1)))) * m.scale + m.shift

    model = Through(
        run,
        frozen=nn.Linear(24, 6),
        output=nn.Linear(6, CLASSES),
        unused=nn.Linear(2, 2),
        scale=nn.Parameter(torch.tensor(1.5)),
    )
    model.register_buffer("shift", torch.ones(CLASSES))
    model.frozen.requires_grad_(False)
    return model


def dropped():
    return nn.Sequential(
        nn.Conv2d(2, 4, 1), nn.Dropout2d(0.4), nn.Flatten(), nn.Dropout(0.3), nn.Linear(48, CLASSES), nn.Dropout(0.0)
    )


def normed_weight():
    return nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(24, CLASSES)))


BUILT = {
    "attention": attention,
    "LSTM cell": lstm_cell,
    "recurrent cell of linear layers": gru_by_hand,
    "embedding": embedding,
    "tied embedding": tied_embedding,
    "tied with another use": tied_and_read,
    "depthwise convolution": convolutions(groups=2, padding=1),
    "dilated convolution": convolutions(dilation=2, padding=2),
    "strided circular convolution": convolutions(stride=(1, 2), padding=(1, 2), padding_mode="circular"),
    "same padding": convolutions(padding="same", bias=False),
    "1-d convolution": one_dimension,
    "3-d convolution": three_dimensions,
    "group, layer and RMS norm": norms,
    "residual with a repeated layer": residual,
    "bilinear": bilinear,
    "transformer of PyTorch": sequence_first,
    "transformer": lambda: transformer((2, 3, 4), CLASSES, width=8, heads=2, patch=2),
    "ResNet-18": lambda: resnet18((2, 3, 4), CLASSES, width=4, groups=2),
    "single numbers, frozen and unused layers": single_numbers,
    "dropout": dropped,
    "weight norm": normed_weight,
}  # fmt: skip


def built(name, dtype=torch.float32):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = BUILT[name]().to(dtype)
        images = torch.rand(SAMPLES, 2, 3, 4, dtype=dtype)
    return model, (images, torch.arange(SAMPLES) % CLASSES)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", BUILT)
def test_sample_gradients_norms_and_clipped_sums_are_those_of_one_backward_pass_per_sample(name):
    before = torch.get_rng_state()
    model, batch = built(name)
    found = differences(model, batch)
    assert [key.removeprefix("model.") for key in found] == [
        key.removeprefix("model.") for key, value in model.named_parameters() if value.requires_grad
    ]
    for key, differing in found.items():
        assert max(differing) < 1e-5, key
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", ["attention", "tied embedding", "transformer", "group, layer and RMS norm"])
def test_in_double_precision_they_agree_to_rounding(name):
    assert largest(*built(name, torch.float64)) < 1e-12


@pytest.mark.parametrize("name", ["recurrent cell of linear layers", "depthwise convolution", "dropout"])
def test_blocks_of_single_samples_change_nothing(monkeypatch, name):
    monkeypatch.setattr(gradients, "_AT_ONCE", 1)
    assert largest(*built(name)) < 1e-5


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


def test_a_model_that_cannot_be_mapped_runs_in_a_loop_and_the_reason_is_reported_once():
    model = seeded(lambda: branching((2, 3, 4), CLASSES))
    with pytest.warns(UserWarning, match=r"Through are computed one sample at a time.*cannot map it") as caught:
        found = [largest(model, data(8)) for _ in range(2)]
    assert len(caught) == 1
    assert max(found) < 1e-5


@pytest.mark.parametrize("build", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_recurrent_layers_of_pytorch_are_mapped(build):
    def last(m, x):
        return m.output(m.cell(x.flatten(2))[0][:, -1])

    model = seeded(lambda: Through(last, cell=build(12, 5, batch_first=True), output=nn.Linear(5, 3)))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="sample gradients of")
        assert largest(model, data()) < 1e-5


def test_a_wrong_rule_is_found_in_its_own_layer_alone(monkeypatch):
    right = gradients._FOUND[nn.Conv2d]

    def wrong(layer, inputs, slopes):
        return right(layer, inputs.flip(-1), slopes)

    monkeypatch.setattr(gradients, "_FOUND", {**gradients._FOUND, nn.Conv2d: wrong})
    found = {name: max(rows, norms) for name, (rows, norms, *_) in differences(small(), data()).items()}
    assert found["0.weight"] > 0.01
    assert max(value for name, value in found.items() if name != "0.weight") < 1e-5


def test_norms_of_a_tied_weight_added_one_by_one_are_found(monkeypatch):
    def twice():
        def run(m, x):
            return m.output(torch.tanh(m.inner(torch.tanh(m.inner(x.flatten(1))))))

        return Through(run, inner=nn.Linear(24, 24), output=nn.Linear(24, 3))

    def wrong(uses):
        rows = [use.rows() if isinstance(use, Factors) else use for use in uses]
        # Norms add in squares, as if the two uses had weights of their own.
        return GradientRows(values=torch.stack([row.values.flatten(1) for row in rows]).square().sum(0).sqrt())

    monkeypatch.setattr(gradients, "together", wrong)
    found = {name: norms for name, (_, norms, *_) in differences(seeded(twice), data()).items()}
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
    assert isinstance(together([Factors(left=many, right=many, a=6)]), GradientRows)


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
        norms_of(target, dict(model.named_parameters()), *data())


def test_forward_methods_are_restored():
    model = small()
    differences(model, data())
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
    norms = norms_of(target, layers, images, labels)
    assert norms.shape == (4, len(layers))
    assert max(one.a * one.right.shape[-1] for one in held) < 10**6


OPERATIONS = {
    "layer norm": lambda w, x: F.layer_norm(x * w, (4,), w, w),
    "layer norm without weights": lambda w, x: F.layer_norm(x * w, (4,)),
    "instance norm": lambda w, x: F.instance_norm((x * w).T[None], weight=w, bias=w),
    "batch norm": lambda w, x: F.batch_norm(x * w, None, None, w, w, True),
    "group norm": lambda w, x: F.group_norm((x * w).T[None], 2, w, w),
    "weight norm": lambda w, x: torch._weight_norm(w.expand(2, 4) * x[:2], w[:2, None], 0),
    "attention": lambda w, x: F.scaled_dot_product_attention((x * w)[None], (x * w * w)[None], x[None] * w),
}


def half_square(operation, weights, samples):
    def loss(w, x):
        return operation(w, x).pow(3).sum()

    return vmap(grad(loss), in_dims=(None, 0))(weights, samples).square().sum() / 2


def agree(operation):
    draw = torch.Generator().manual_seed(0)
    weights, along = (torch.rand(shape, generator=draw, dtype=torch.float64) for shape in ((4,), (2, 3, 4)))
    samples = torch.rand(2, 3, 4, generator=draw, dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(half_square(operation, weights, samples), samples)
    step = 1e-6
    up, down = (float(half_square(operation, weights, samples.detach() + sign * step * along)) for sign in (1, -1))
    return float((slope * along).sum()) == pytest.approx((up - down) / (2 * step), rel=1e-5)


@pytest.mark.parametrize("name", OPERATIONS)
def test_second_derivatives_are_right(name):
    def inside(w, x):
        with differentiable_twice():
            return OPERATIONS[name](w, x)

    assert agree(inside)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if "norm" in name])
def test_values_are_those_of_pytorch(name):
    weights, samples = torch.rand(4), torch.rand(3, 4)
    with differentiable_twice():
        found = OPERATIONS[name](weights, samples)
    assert torch.allclose(found, OPERATIONS[name](weights, samples), atol=1e-6)


def test_the_replacement_is_still_needed():
    """If this fails, PyTorch has been mended, and its own layer norm can be used again."""
    assert not agree(OPERATIONS["layer norm"])
