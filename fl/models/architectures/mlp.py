"""A network with one hidden layer (256 units by default) and ReLU."""

import math
from collections import OrderedDict

from torch import nn

from ...fields import check_count
from ..layers import LayerChain


def mlp(shape: tuple[int, int, int], classes: int, *, hidden: int = 256) -> nn.Module:
    """Build a network with one hidden layer of ``hidden`` units, at least 1."""
    check_count("hidden", hidden)
    return LayerChain(
        OrderedDict(
            flatten=nn.Flatten(),
            hidden=nn.Linear(math.prod(shape), hidden),
            relu=nn.ReLU(),
            output=nn.Linear(hidden, classes),
        )
    )
