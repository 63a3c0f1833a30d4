"""What known layers contribute to the gradients of their own parameters, from their inputs and outputs' gradients.

Every position of a sample counts, whatever the order of a layer's dimensions: ``m`` samples were mapped one by one, so
all dimensions after the first belong to the same sample.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from .contributions import Contribution, Factors, Rows

Values = Mapping[str, Tensor]
"""A layer's parameters by their names in the layer."""
Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


def is_known_layer(layer: nn.Module) -> bool:
    """Return whether this file has a rule for the layer: linear, embedding, convolution, group, layer or RMS norm."""
    if type(layer) not in _APPLIED:
        return False
    # A re-parametrised weight is computed in the forward pass and is not a parameter.
    if any(getattr(layer, name, None) is not None and name not in layer._parameters for name in ("weight", "bias")):
        return False
    return not isinstance(layer, nn.Embedding) or not (layer.max_norm or layer.scale_grad_by_freq or layer.sparse)


def applied(layer: nn.Module, values: Values, inputs: Tensor) -> Tensor:
    """Return the layer's output with other parameters than its own."""
    return _APPLIED[type(layer)](layer, values.get("weight"), values.get("bias"), inputs)


def contributions(layer: nn.Module, inputs: Tensor, slopes: Tensor) -> dict[str, Contribution]:
    """Return what each sample adds to the gradient of each of the layer's parameters.

    ``inputs (m, ...)`` and ``slopes (m, ...)``, the gradients of each sample's loss with respect to the layer's output.
    """
    found = _FOUND[type(layer)](layer, inputs, slopes)
    return {name: part for name, part in found.items() if layer._parameters.get(name) is not None}


def _linear(layer: Any, inputs: Tensor, slopes: Tensor) -> dict[str, Contribution]:
    left, right = (part.reshape(len(part), 1, -1, part.shape[-1]) for part in (slopes, inputs))
    return {"weight": Factors(left=left, right=right, a=layer.out_features), "bias": Rows(values=left.sum((1, 2)))}


def _embedding(layer: Any, inputs: Tensor, slopes: Tensor) -> dict[str, Contribution]:
    left, right = inputs.reshape(len(inputs), 1, -1), slopes.reshape(len(slopes), 1, -1, slopes.shape[-1])
    if layer.padding_idx is not None:
        right = right.masked_fill((left == layer.padding_idx).unsqueeze(-1), 0)
    return {"weight": Factors(left=left, right=right, a=layer.num_embeddings)}


def _convolution(layer: Any, inputs: Tensor, slopes: Tensor) -> dict[str, Contribution]:
    spatial, groups = len(layer.kernel_size), layer.groups
    # Each mapped sample may hold a batch dimension of its own, or none.
    images = inputs.reshape(-1, *inputs.shape[-1 - spatial :])
    windows = _windows(layer, images)
    inner, places = len(images) // len(inputs), windows.shape[-1]
    right = windows.view(len(inputs), inner, groups, -1, places).permute(0, 2, 1, 4, 3)
    left = slopes.reshape(len(slopes), inner, groups, -1, places).permute(0, 2, 1, 4, 3)
    a, b = left.shape[-1], right.shape[-1]
    left, right = left.reshape(len(slopes), groups, -1, a), right.reshape(len(slopes), groups, -1, b)
    return {"weight": Factors(left=left, right=right, a=a), "bias": Rows(values=left.sum(2).flatten(1))}


def _windows(layer: Any, images: Tensor) -> Tensor:
    """The input under the kernel at each place, ``(images, channels * kernel, places)``, with strides and dilation."""
    sides = layer._reversed_padding_repeated_twice
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    windows = F.pad(images, sides, mode=mode) if any(sides) else images
    for number, (size, stride, dilation) in enumerate(
        zip(layer.kernel_size, layer.stride, layer.dilation, strict=True), start=2
    ):
        windows = windows.unfold(number, dilation * (size - 1) + 1, stride)[..., ::dilation]
    spatial = len(layer.kernel_size)
    places, kernel = range(2, 2 + spatial), range(2 + spatial, 2 + 2 * spatial)
    ordered = windows.permute(0, 1, *kernel, *places)
    return ordered.flatten(2 + spatial).flatten(1, 1 + spatial)


def _group_norm(layer: Any, inputs: Tensor, slopes: Tensor) -> dict[str, Contribution]:
    plain = F.group_norm(inputs.flatten(0, 1), layer.num_groups, eps=layer.eps).view_as(inputs)
    others = (1, *range(3, inputs.ndim))
    return {"weight": Rows(values=(slopes * plain).sum(others)), "bias": Rows(values=slopes.sum(others))}


def _trailing_norm(layer: Any, inputs: Tensor, slopes: Tensor) -> dict[str, Contribution]:
    shape = layer.normalized_shape
    if isinstance(layer, nn.LayerNorm):
        plain = F.layer_norm(inputs, shape, eps=layer.eps)
    else:
        plain = F.rms_norm(inputs, shape, eps=layer.eps)
    rows = {"weight": slopes * plain, "bias": slopes}
    return {name: Rows(values=row.reshape(len(row), -1, *shape).sum(1)) for name, row in rows.items()}


_APPLIED: Mapping[type[nn.Module], Callable[..., Tensor]] = {
    nn.Linear: lambda layer, weight, bias, x: F.linear(x, weight, bias),
    nn.Embedding: lambda layer, weight, bias, x: F.embedding(x, weight, layer.padding_idx),
    **dict.fromkeys(
        (nn.Conv1d, nn.Conv2d, nn.Conv3d), lambda layer, weight, bias, x: layer._conv_forward(x, weight, bias)
    ),
    nn.GroupNorm: lambda layer, weight, bias, x: F.group_norm(x, layer.num_groups, weight, bias, layer.eps),
    nn.LayerNorm: lambda layer, weight, bias, x: F.layer_norm(x, layer.normalized_shape, weight, bias, layer.eps),
    nn.RMSNorm: lambda layer, weight, bias, x: F.rms_norm(x, layer.normalized_shape, weight, layer.eps),
}
_FOUND: Mapping[type[nn.Module], Callable[[Any, Tensor, Tensor], dict[str, Contribution]]] = {
    nn.Linear: _linear,
    nn.Embedding: _embedding,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), _convolution),
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _trailing_norm,
    nn.RMSNorm: _trailing_norm,
}
