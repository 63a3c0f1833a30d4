"""A logistic regression: one linear layer."""

import math
from collections import OrderedDict

from torch import nn

from ..layers import LayerChain


def logistic(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Build one linear layer from pixels to logits."""
    return LayerChain(OrderedDict(flatten=nn.Flatten(), output=nn.Linear(math.prod(shape), classes)))
