"""The convolutional network of iDLG (Zhao et al. 2020)."""

import math
from collections import OrderedDict

from torch import nn

from ....audit.wording import nearest
from ..layers import Dropout, LayerChain

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "leaky_relu": nn.LeakyReLU,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}
# A last map smaller than 4x4 would leave the linear layer too few features.
_SMALLEST_MAP = 4


def lenet(shape: tuple[int, int, int], classes: int, *, activation: str = "leaky_relu") -> nn.Module:
    """Build 5x5 convolutions with 12 channels, strides 2, 2, 1, then a linear layer.

    Images under 13 pixels (digits) get strides 2, 1, so that the last map is at least 4x4. ``activation``: leaky_relu,
    relu, sigmoid or tanh, which decides how well gradients can be inverted; DLG's initial values from U(-0.5, 0.5) are
    not used here.
    """
    return lenet_chain(shape, classes, activation)


def lenet_chain(
    shape: tuple[int, int, int],
    classes: int,
    activation: str = "leaky_relu",
    *,
    batch_norm: bool = False,
    dropout: bool = False,
) -> nn.Module:
    """Build the layers of ``lenet``, with a batch norm after each convolution or with dropout before the last layer."""
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation must be one of {nearest(activation, _ACTIVATIONS)}, got {activation!r}")
    channels, height, width = shape
    # Small images keep one stride, so that the last map is large enough.
    strides = (2, 2, 1) if math.ceil(min(height, width) / 4) >= _SMALLEST_MAP else (2, 1)
    layers: list[tuple[str, nn.Module]] = []
    for number, stride in enumerate(strides, start=1):
        # A batch norm would cancel the convolution's bias.
        layers.append((f"conv{number}", nn.Conv2d(channels, 12, 5, stride=stride, padding=2, bias=not batch_norm)))
        if batch_norm:
            layers.append((f"norm{number}", nn.BatchNorm2d(12, track_running_stats=False)))
        layers.append((f"activation{number}", _ACTIVATIONS[activation]()))
        channels, height, width = 12, math.ceil(height / stride), math.ceil(width / stride)
    if min(height, width) < _SMALLEST_MAP:
        raise ValueError(f"lenet needs images of at least 7x7 pixels, got shape {shape}")
    features = 12 * height * width
    layers.append(("flatten", nn.Flatten()))
    if dropout:
        layers.append(("dropout", Dropout(features)))
    return LayerChain(OrderedDict([*layers, ("output", nn.Linear(features, classes))]))
