"""Modules of one's own: what is refused, with the name of the layer or parameter and what to use instead."""

import pytest
import torch
from fedassay.fl.models.admission import batch_norms, prepared
from loop_differences import differences
from torch import nn

IMAGES = torch.rand(3, 1, 4, 4, generator=torch.Generator().manual_seed(0))


def chain(*layers):
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), *layers, nn.Flatten(), nn.LazyLinear(2))


def own(*layers):
    """A model without lazy layers."""
    model = chain(*layers)
    model(IMAGES)
    return model


class Changed(nn.Module):
    """A linear model whose forward method first does something."""

    def __init__(self, act):
        super().__init__()
        self.output = nn.Linear(16, 2)
        self.register_buffer("seen", torch.zeros(()))
        self.act = act

    def forward(self, images):
        return self.output(self.act(self, images.flatten(1)))


def counted(model, features):
    model.seen += 1
    return features


def complex_model():
    model = own()
    model.phase = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    return model


def mixed():
    model = own()
    model[0].half()
    return model


def wrong_start():
    model = own()
    with torch.no_grad():
        model[0].weight[0, 0, 0, 0] = torch.nan
    return model


def hooked():
    model = own()
    model[0].weight.register_hook(lambda gradient: 100 * gradient)
    return model


def scripted():
    return torch.jit.trace(nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), IMAGES)


class Detached(Changed):
    """A model whose logits have no gradient."""

    def __init__(self):
        super().__init__(lambda model, features: features)

    def forward(self, images):
        return super().forward(images).detach()


class Squeezed(nn.Sequential):
    """A model that drops the dimension of a batch of one image."""

    def forward(self, images):
        return super().forward(images).squeeze()


def spectral(norm):
    return nn.Sequential(nn.Flatten(), norm(nn.Linear(16, 2)))


def counted_outside(model, features):
    model.calls = getattr(model, "calls", 0) + 1
    return features + model.calls


def frozen():
    return own().requires_grad_(False)


def test_a_hook_on_a_layer_is_admitted_because_training_calls_it():
    model = own()
    model[2].register_forward_hook(lambda layer, given, found: 2 * found)
    assert prepared("mine", model, IMAGES) is model


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning", "ignore:`torch.nn.utils.spectral_norm:FutureWarning")
@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: "a name", "mine must be a torch.nn.Module, got str"),
        (lambda: own(nn.BatchNorm2d(8)), r"layer 1 is a BatchNorm2d .*GroupNorm\(8, 8\)"),
        (lambda: own(nn.SyncBatchNorm(8)), r"layer 1 is a SyncBatchNorm .*GroupNorm\(8, 8\)"),
        (lambda: own(nn.AlphaDropout(0.1)), "layer 1 is a AlphaDropout"),
        (lambda: nn.Sequential(nn.LSTM(16, 2, 2, dropout=0.2)), "LSTM with dropout 0.2 inside"),
        (lambda: nn.TransformerEncoderLayer(4, 2), "layer self_attn is a MultiheadAttention with dropout 0.1 inside"),
        (chain, "lazy layer has no shape yet"),
        (complex_model, "parameter phase is complex .*two real parameters"),
        (mixed, "0.weight is torch.float16.*call model.float"),
        (frozen, "no parameter that requires a gradient"),
        (wrong_start, "parameter 0.weight must start with finite numbers, got 1 number NaN or infinite"),
        (hooked, "parameter 0.weight has a hook on its gradient, which would not be called"),
        (scripted, "TorchScript.*return the torch.nn.Module"),
        (lambda: Squeezed(nn.Flatten(), nn.Linear(16, 2)), r"shape \(1, 2\) for a batch of one image.*got \(2,\)"),
        (Detached, "depend on no trained parameter.*remove detach"),
        (lambda: own().double(), "0.weight is torch.float64 and images are torch.float32: call model.float"),
        (lambda: Changed(lambda model, x: (x - x.mean(0)) / x.std(0)), "NaN or infinite logits for a batch of one"),
        (lambda: spectral(nn.utils.parametrizations.spectral_norm), "layer 1.* has a spectral norm.*weight_norm"),
        (lambda: spectral(nn.utils.spectral_norm), "layer 1 has a spectral norm.*weight_norm"),
        (lambda: nn.InstanceNorm2d(1, affine=True, track_running_stats=True), "running_mean.*track_running_stats=F"),
        (lambda: Changed(counted_outside), "other logits at a second evaluation of the same images: it keeps state"),
        (lambda: Changed(lambda model, x: x.mul_(2)), "changes the images that it is given, in place"),
        (lambda: Changed(counted), "changes its buffer or parameter seen"),
        (lambda: Changed(lambda model, x: nn.functional.dropout(x, 0.5)), "draws random numbers from PyTorch's global"),
        (lambda: Changed(lambda model, x: x - x.mean(0)), "mixes the samples of a batch.*GroupNorm"),
        (lambda: Changed(lambda model, x: x[:, :3]), r"fails on images of shape \(3, 1, 4, 4\): RuntimeError"),
        (lambda: Changed(lambda model, x: x.mean(0)), "must return one row of logits for each of 3 images"),
    ],
)  # fmt: skip
def test_what_cannot_be_audited_is_refused_by_name(build, words):
    before = torch.get_rng_state()
    model = build()
    torch.set_rng_state(before)
    with pytest.raises(ValueError, match=words):
        prepared("mine", model, IMAGES)
    assert torch.equal(torch.get_rng_state(), before)


def test_batch_norm_without_running_statistics_is_admitted_with_its_replacement():
    model = own(nn.BatchNorm2d(8, track_running_stats=False))
    assert batch_norms(prepared("mine", model, IMAGES)) == {"1": "torch.nn.GroupNorm(8, 8)"}


def test_constant_buffers_frozen_layers_and_double_precision_are_admitted():
    model = Changed(lambda model, x: x + model.seen).double()
    assert prepared("mine", model, IMAGES.double()) is model
    assert model.training
    partly = own()
    partly[0].requires_grad_(False)
    assert set(differences(partly, (IMAGES, torch.tensor([0, 1, 0])))) == {"2.weight", "2.bias"}
