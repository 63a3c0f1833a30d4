"""The model lenet with dropout of one half of the features before the last layer."""

from torch import nn

from .lenet import lenet_chain


def lenet_dropout(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Build ``lenet`` with a dropout layer, whose factors are an argument of the model."""
    return lenet_chain(shape, classes, dropout=True)
