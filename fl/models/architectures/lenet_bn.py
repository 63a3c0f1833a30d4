"""The model lenet with a batch norm after each convolution, which then has no bias."""

from torch import nn

from .lenet import lenet_chain


def lenet_bn(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Build ``lenet`` with batch norms; samples then have no gradients of their own."""
    return lenet_chain(shape, classes, batch_norm=True)
