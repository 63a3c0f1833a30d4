"""Computes the gradient of every sample's loss, layer by layer.

After Goodfellow 2015 for linear layers and Rochette, Manoel and Tramel 2019 for convolutions. One batched backward pass
gives the gradients of the layers' outputs. A weight's gradient is then the sum over positions of (output's gradient)
times (the input at that position). Three times faster than a gradient mapped over samples.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear, pad, unfold

from ..layout import Layout
from ..objective import Objective
from .layers import Dropout, LayerChain, Normalise

_PLAIN = (nn.ReLU, nn.LeakyReLU, nn.Sigmoid, nn.Tanh, nn.MaxPool2d, nn.Flatten, Dropout, Normalise)
"""Layers without parameters that treat each sample by itself."""

# Images per pass at evaluation: a thousand do not fit in the cache and took twice as long.
_AT_ONCE = 250


@dataclass(frozen=True, kw_only=True)
class _Met:
    """A layer with parameters: its input, and its output as a node of the graph."""

    name: str
    layer: nn.Conv2d | nn.Linear
    inputs: Tensor
    outputs: Tensor


def is_known(module: nn.Module) -> bool:
    """Return whether ``sample_gradients`` supports every layer of the module.

    It supports a chain of plain convolutions, linear layers, activations, pools and dropout.
    """
    return isinstance(module, LayerChain) and all(_is_known(layer) for layer in module)


def sample_gradients(
    module: nn.Module,
    layout: Layout,
    objective: Objective,
    params: Tensor,
    images: Tensor,
    labels: Tensor,
    dropout: Tensor | None = None,
    *,
    out: Tensor,
) -> None:
    """Write the gradient of each sample's loss into ``out (n, d)``, with zeros for inert (unused) weights.

    ``params (d,)``, ``images (n, c, h, w)``, ``labels (n,)``, ``dropout (n, features)``; a module that ``is_known``.
    """
    slices, parameters = layout.slices, layout.unflatten(params.detach())
    with torch.enable_grad():
        met, logits = _forward(module, parameters, images.detach(), dropout)
        slopes = torch.autograd.grad(objective.losses(logits, labels).sum(), [one.outputs for one in met])
    with torch.no_grad():
        for one, slope in zip(met, slopes, strict=True):
            for name, rows in _rows(one, slope):
                out[:, slices[name]] = rows
    out[:, layout.model_dim :] = 0


def lot_gradients(
    module: nn.Module,
    layout: Layout,
    objective: Objective,
    params: Tensor,
    images: Tensor,
    labels: Tensor,
    dropout: Tensor | None = None,
) -> Tensor:
    """Return the gradient of the mean loss of each of n lots, ``(n, d)``; differentiable in all arguments.

    ``params (d,)``, ``images (n, k, c, h, w)``, ``labels (n, k, classes)`` as ``Objective.soft_loss`` takes them,
    ``dropout (n, k or 1, features)``; a module that ``is_known``.
    """
    lots = images.shape[:2]
    factors = None if dropout is None else dropout.expand(*lots, *dropout.shape[2:]).flatten(0, 1)
    further = torch.is_grad_enabled() and any(part.requires_grad for part in (params, images, labels))
    with torch.enable_grad():
        met, logits = _forward(module, layout.unflatten(params), images.flatten(0, 1), factors)
        # The mean over all samples, times the number of lots, is the sum of the means of all lots.
        loss = lots[0] * objective.soft_loss(logits, labels.flatten(0, 1))
        slopes = torch.autograd.grad(loss, [one.outputs for one in met], create_graph=further)
    with torch.set_grad_enabled(further):
        rows = dict(row for one, slope in zip(met, slopes, strict=True) for row in _lot_rows(one, slope, lots))
        return layout.flatten(rows)


def _lot_rows(one: _Met, slope: Tensor, lots: Sequence[int]) -> list[tuple[str, Tensor]]:
    """The layer's own gradients of lots by name, ``(n, *shape)``, from the gradient ``slope`` of its outputs."""
    layer, inputs = one.layer, one.inputs
    if isinstance(layer, nn.Conv2d):
        sides = tuple(int(side) for side in layer.padding)
        slope, places = slope.flatten(2), unfold(inputs, layer.kernel_size, padding=sides, stride=layer.stride)
        of_samples = torch.bmm(slope, places.transpose(1, 2)), slope.sum(2)
        weight, bias = (part.reshape(*lots, *part.shape[1:]).sum(1) for part in of_samples)
    else:
        slope, inputs = slope.reshape(*lots, -1), inputs.reshape(*lots, -1)
        weight, bias = torch.bmm(slope.transpose(1, 2), inputs), slope.sum(1)
    found = [(f"{one.name}.weight", weight.view(lots[0], *layer.weight.shape))]
    return found if layer.bias is None else [*found, (f"{one.name}.bias", bias)]


def logits(module: nn.Module, layout: Layout, params: Tensor, images: Tensor) -> Tensor:
    """Return the logits ``(n, classes)`` of a module that ``is_known`` accepts; this is faster than the module, but not
    differentiable.

    The module is in evaluation mode.
    """
    parameters, passes = layout.unflatten(params), max(1, math.ceil(len(images) / _AT_ONCE))
    with torch.no_grad():
        # Parts of equal size: a single image would use another matrix product, which rounds differently.
        return torch.cat([_forward(module, parameters, part, None)[1] for part in images.chunk(passes)])


def _forward(
    module: nn.Module, parameters: Mapping[str, Tensor], images: Tensor, dropout: Tensor | None
) -> tuple[list[_Met], Tensor]:
    """The layers with parameters, in order, and the logits ``(n, classes)``."""
    features, met = images, list[_Met]()
    pools = any(isinstance(layer, nn.MaxPool2d) for layer in module.children())
    for name, layer in module.named_children():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            outputs = _applied(name, layer, parameters, features)
            if pools and isinstance(layer, nn.Conv2d):
                # Pools are seven times faster where a position's channels are adjacent; the gradients follow.
                outputs = outputs.contiguous(memory_format=torch.channels_last)
            # The outputs of later layers depend on the first ones and are in the graph already.
            if not met:
                outputs.requires_grad_(torch.is_grad_enabled())
            met.append(_Met(name=name, layer=layer, inputs=features, outputs=outputs))
            features = outputs
        elif isinstance(layer, Dropout):
            features = layer(features, dropout)
        else:
            features = layer(features)
    return met, features


def _is_known(layer: nn.Module) -> bool:
    if type(layer) is nn.Conv2d:
        plain = layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        return plain and set(layer.dilation) == {1}
    return type(layer) is nn.Linear or type(layer) in _PLAIN


def _applied(name: str, layer: nn.Conv2d | nn.Linear, parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
    weight, bias = parameters[f"{name}.weight"], parameters.get(f"{name}.bias")
    if isinstance(layer, nn.Linear):
        return linear(features, weight, bias)
    return conv2d(features, weight, bias, layer.stride, layer.padding)


def _rows(one: _Met, slope: Tensor) -> list[tuple[str, Tensor]]:
    """The layer's own sample gradients by name, ``(n, numbers)``, from the gradient ``slope`` of its outputs."""
    if isinstance(one.layer, nn.Conv2d):
        slope = slope.flatten(2)
        weight, bias = torch.bmm(slope, _places(one.layer, one.inputs).transpose(1, 2)), slope.sum(2)
    else:
        weight, bias = slope.unsqueeze(2) * one.inputs.unsqueeze(1), slope
    return [
        (f"{one.name}.weight", weight.flatten(1)),
        *([] if one.layer.bias is None else [(f"{one.name}.bias", bias)]),
    ]


def _places(layer: nn.Conv2d, inputs: Tensor) -> Tensor:
    """The input under the kernel at each position, ``(n, channels * kernel, positions)``: ``unfold`` by strides."""
    (height, width), (down, right) = layer.kernel_size, layer.stride
    top, left = (int(side) for side in layer.padding)
    padded = pad(inputs, (left, left, top, top))
    windows = padded.unfold(2, height, down).unfold(3, width, right)
    return windows.permute(0, 1, 4, 5, 2, 3).reshape(
        len(inputs), layer.in_channels * height * width, windows.shape[2] * windows.shape[3]
    )
