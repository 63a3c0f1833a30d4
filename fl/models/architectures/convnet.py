"""A network of eight 3x3 convolutions, as Geiping et al. 2020 attack at width 64, without batch norm."""

from collections import OrderedDict

from torch import nn

from ..layers import LayerChain


def convnet(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Build eight convolutions of 64 to 256 channels: 2.9 million parameters on 3x32x32.

    The batch norm is left out, which Geiping et al. leave at its initial statistics.
    """
    channels, height, width = shape
    if min(height, width) < 9:
        raise ValueError(f"convnet needs images of at least 9x9 pixels, got shape {shape}")
    layers: list[tuple[str, nn.Module]] = []
    for number, wide in enumerate((64, 128, 128, 256, 256, 256, 256, 256), start=1):
        layers += [(f"conv{number}", nn.Conv2d(channels, wide, 3, padding=1)), (f"relu{number}", nn.ReLU())]
        channels = wide
        if number in (6, 8):
            layers.append((f"pool{number}", nn.MaxPool2d(3)))
    layers += [("flatten", nn.Flatten()), ("output", nn.Linear(256 * (height // 9) * (width // 9), classes))]
    return LayerChain(OrderedDict(layers))
