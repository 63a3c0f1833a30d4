"""Prepares a user's own module for training: layers that cannot be audited are refused by name, and dropout is computed
from seeds.

The logits of an image may depend on the parameters, the image and the seeds of dropout alone.
"""

import math
import warnings

import torch
from torch import Tensor, nn

from ...audit.wording import counted
from .layers import with_seeded_dropout

BATCH_NORM = nn.modules.batchnorm._BatchNorm
_DTYPES = (torch.float32, torch.float64)
# Sums in another order differ in the last digits; a batch statistic moves logits by percents.
_CLOSE = 1e-3


def prepared(name: str, model: object, images: Tensor) -> nn.Module:
    """Return a module ready for training: in training mode, with dropout layers that compute their masks from seeds.

    The module is changed in place. ``name``: what to call it in messages; ``images (n, ...)``: at least two inputs, on
    which it is tried.

    Raises:
        ValueError: for what is not a module, or is TorchScript; parameters that are complex, of several types, not
            initialised, NaN or infinite, or have hooks; none that is trained, or that the logits depend on; dropout
            inside a layer; a pass that draws from PyTorch's global generator, changes parameters, buffers or images,
            keeps state, fails, returns another shape for one image, or mixes samples without a batch norm.
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"{name} must be a torch.nn.Module, got {type(model).__name__}")
    if any(isinstance(layer, torch.jit.ScriptModule) for layer in model.modules()):
        raise ValueError(
            f"{name} is or contains TorchScript, whose parameters cannot be replaced by those of a client: return the "
            "torch.nn.Module that was compiled by torch.jit"
        )
    _check_parameters(name, model)
    for layer_name, layer in model.named_modules():
        _check_layer(f"{name}: layer {layer_name or '(the model itself)'}", layer)
    model.train()
    seeded = with_seeded_dropout(model)
    _check_pass(name, seeded, images)
    return seeded


def group_norm_for(layer: nn.Module) -> str:
    """Return the group norm that can replace a batch norm, as Python code that builds it."""
    channels = int(getattr(layer, "num_features", 0))
    return f"torch.nn.GroupNorm({math.gcd(channels, 16)}, {channels})"


def batch_norms(model: nn.Module) -> dict[str, str]:
    """Return the names of the model's batch norms, each with the group norm that can replace it."""
    return {name: group_norm_for(layer) for name, layer in model.named_modules() if isinstance(layer, BATCH_NORM)}


def _check_parameters(name: str, model: nn.Module) -> None:
    types = dict[torch.dtype, str]()
    for parameter_name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ValueError(
                f"{name}: parameter {parameter_name} of a lazy layer has no shape yet: give the layer its input size"
            )
        if parameter.is_complex():
            raise ValueError(
                f"{name}: parameter {parameter_name} is complex ({parameter.dtype}): store its real and imaginary part "
                "as two real parameters"
            )
        _check_values(f"{name}: parameter {parameter_name}", parameter)
        if parameter.requires_grad:
            types.setdefault(parameter.dtype, parameter_name)
    if not types:
        raise ValueError(f"{name} has no parameter that requires a gradient, so there is nothing to train")
    if len(types) > 1 or next(iter(types)) not in _DTYPES:
        found = ", ".join(f"{parameter_name} is {dtype}" for dtype, parameter_name in types.items())
        raise ValueError(f"{name}: all trained parameters must be torch.float32, but {found}: call model.float()")


def _check_values(what: str, parameter: nn.Parameter) -> None:
    wrong = int((~parameter.isfinite()).sum())
    if wrong:
        raise ValueError(f"{what} must start with finite numbers, got {counted(wrong, 'number')} NaN or infinite")
    # Training replaces the parameter by a part of a flat vector, which has no hooks.
    if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
        raise ValueError(
            f"{what} has a hook on its gradient, which would not be called, because clients train copies of the "
            "parameters: do in the forward method what the hook does, for example by a torch.autograd.Function"
        )


def _check_layer(what: str, layer: nn.Module) -> None:
    kind = type(layer).__name__
    if isinstance(layer, BATCH_NORM) and layer.track_running_stats:
        raise ValueError(
            f"{what} is a {kind} with running statistics, which would leave the client in addition to its update, "
            f"without protection; replace it by {group_norm_for(layer)}, or set track_running_stats=False where no "
            "defense or canary needs the gradient of a single sample"
        )
    # Not found by trying: a power iteration that has converged no longer changes its buffers.
    if kind == "_SpectralNorm" or any(
        type(one).__name__ == "SpectralNorm" for one in layer._forward_pre_hooks.values()
    ):
        raise ValueError(
            f"{what} has a spectral norm, which changes its buffers _u and _v at each call, so that the logits depend "
            "on earlier calls; replace it by torch.nn.utils.parametrizations.weight_norm"
        )
    if isinstance(layer, nn.AlphaDropout | nn.FeatureAlphaDropout):
        raise ValueError(f"{what} is a {kind}, whose masks cannot be repeated; use torch.nn.Dropout")
    inside = getattr(layer, "dropout", 0.0)
    if isinstance(layer, nn.MultiheadAttention | nn.RNNBase) and inside:
        raise ValueError(
            f"{what} is a {kind} with dropout {inside} inside, whose masks cannot be repeated; set its dropout to 0.0 "
            "and put a torch.nn.Dropout behind it"
        )


def _check_pass(name: str, model: nn.Module, images: Tensor) -> None:
    """Try the model on a batch, and on each of its images alone unless it has a batch norm."""
    before = torch.get_rng_state()
    kept = {key: value.clone() for key, value in model.state_dict().items()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Such as on the deviation of a single image, which is refused below.
            given = images.clone()
            with torch.enable_grad():
                # Both with gradients: without them PyTorch may take another kernel, which rounds otherwise.
                together, again = model(given), model(images.clone())
            with torch.no_grad():
                # A batch norm says itself that it mixes samples, and some refuse a single one.
                alone = [] if batch_norms(model) else [model(image.clone().unsqueeze(0)) for image in images]
    except Exception as error:
        raise ValueError(
            f"{name} fails on images of shape {tuple(images.shape)}: {type(error).__name__}: {error}"
            f"{_double(model, images)}"
        ) from error
    if not torch.equal(torch.get_rng_state(), before):
        torch.set_rng_state(before)
        raise ValueError(
            f"{name} draws random numbers from PyTorch's global generator in its forward method, so a step cannot be "
            "repeated; use torch.nn.Dropout, whose masks get a seed per sample"
        )
    for key, value in model.state_dict().items():
        if not torch.equal(value, kept[key]):
            raise ValueError(
                f"{name} changes its buffer or parameter {key} in the forward method; the logits may depend on the "
                f"trained parameters and the image only{_without_state(key)}"
            )
    if not torch.equal(given, images):
        raise ValueError(f"{name} changes the images that it is given, in place: work on a copy in its forward method")
    if isinstance(together, Tensor) and not torch.allclose(together, again, rtol=0, atol=0, equal_nan=True):
        raise ValueError(
            f"{name} gives other logits at a second evaluation of the same images: it keeps state between calls, or "
            "draws random numbers"
        )
    if not isinstance(together, Tensor) or together.shape[:1] != images.shape[:1]:
        got = tuple(together.shape) if isinstance(together, Tensor) else type(together).__name__
        raise ValueError(f"{name} must return one row of logits for each of {len(images)} images, got {got}")
    for one in alone:
        if one.shape != (1, *together.shape[1:]):
            raise ValueError(
                f"{name} must return logits of shape {(1, *together.shape[1:])} for a batch of one image, as it "
                f"returns {tuple(together.shape)} for {len(images)}, got {tuple(one.shape)}"
            )
    if not together.requires_grad:
        raise ValueError(
            f"{name} returns logits that depend on no trained parameter, so there is nothing to train: remove detach, "
            "torch.no_grad, item or numpy from its forward method"
        )
    if alone:
        _check_separate(name, together.detach(), alone)


def _double(model: nn.Module, images: Tensor) -> str:
    """A hint for a model whose parameters have another precision than its images."""
    for key, parameter in model.named_parameters():
        if parameter.dtype != images.dtype:
            return f"; its parameter {key} is {parameter.dtype} and images are {images.dtype}: call model.float()"
    return ""


def _without_state(key: str) -> str:
    """A hint on the layer that keeps this buffer, for error messages."""
    last = key.rpartition(".")[2]
    if last in ("running_mean", "running_var", "num_batches_tracked"):
        return "; it holds running statistics: set track_running_stats=False of this layer"
    return ""


def _check_separate(name: str, together: Tensor, alone: list[Tensor]) -> None:
    single = torch.cat(alone)
    if bool(together.isfinite().all()) and not bool(single.isfinite().all()):
        raise ValueError(
            f"{name} returns NaN or infinite logits for a batch of one image, but not for {len(together)} images, as "
            "statistics over the batch do: replace them, for example by torch.nn.GroupNorm"
        )
    moved = float((together - single).abs().max())
    if moved > _CLOSE * max(1.0, float(together.abs().max())):
        raise ValueError(
            f"{name} mixes the samples of a batch: a logit changes by {moved:.2g} when other images are evaluated "
            "with it, so no sample has a gradient of its own; replace statistics over the batch, for example by "
            "torch.nn.GroupNorm"
        )
