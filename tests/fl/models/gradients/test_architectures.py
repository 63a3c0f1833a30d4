"""Sample gradients, norms and clipped sums of many architectures: those of one backward pass per sample."""

import pytest
import torch
from fedassay.fl.models import gradients
from fedassay.fl.models.architectures.resnet18 import resnet18
from fedassay.fl.models.architectures.transformer import transformer
from fedassay.fl.models.compare_with_loop import compare_with_loop
from own_models import Through
from torch import nn
from torch.nn import functional as F

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


def gru():
    cell = nn.GRU(12, 5, batch_first=True)
    return Through(lambda m, x: m.output(m.cell(x.flatten(2))[0][:, -1]), cell=cell, output=nn.Linear(5, CLASSES))


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
    "GRU": gru,
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
    layers = compare_with_loop(model, batch)
    assert [layer.name.removeprefix("model.") for layer in layers] == [
        key.removeprefix("model.") for key, value in model.named_parameters() if value.requires_grad
    ]
    for layer in layers:
        assert layer.largest < 1e-5, layer
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", ["attention", "tied embedding", "transformer", "group, layer and RMS norm"])
def test_in_double_precision_they_agree_to_rounding(name):
    assert max(layer.largest for layer in compare_with_loop(*built(name, torch.float64))) < 1e-12


@pytest.mark.parametrize("name", ["recurrent cell of linear layers", "depthwise convolution", "dropout"])
def test_blocks_of_single_samples_change_nothing(monkeypatch, name):
    monkeypatch.setattr(gradients, "_AT_ONCE", 1)
    assert max(layer.largest for layer in compare_with_loop(*built(name))) < 1e-5
