"""The convolutional network for MNIST of Papernot et al. 2021, with ReLU: 26,010 parameters."""

from collections import OrderedDict

from torch import nn

from ..layers import LayerChain


def cnn26k(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Build two convolutions with pools and two linear layers: 26,010 parameters on 1x28x28 with 10 classes."""
    # Each side: 8x8 convolution of stride 2 with padding 3, pool, 4x4 convolution of stride 2, pool.
    height, width = (((side - 2) // 2 + 1 - 1 - 4) // 2 + 1 - 1 for side in shape[1:])
    if min(height, width) < 1:
        raise ValueError(f"cnn26k needs images of at least 14x14 pixels, got shape {shape}")
    return LayerChain(
        OrderedDict(
            conv1=nn.Conv2d(shape[0], 16, 8, stride=2, padding=3),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2, stride=1),
            conv2=nn.Conv2d(16, 32, 4, stride=2),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2, stride=1),
            flatten=nn.Flatten(),
            hidden=nn.Linear(32 * height * width, 32),
            relu3=nn.ReLU(),
            output=nn.Linear(32, classes),
        )
    )
