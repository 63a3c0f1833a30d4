"""The model mlp behind a malicious server's imprint layer (Fowl et al. 2022)."""

from collections import OrderedDict

from torch import nn

from ...fields import check_count
from ..layers import BINS, LAYER, ImprintLayer, LayerChain
from .mlp import mlp


def imprint(shape: tuple[int, int, int], classes: int, *, bins: int = BINS) -> nn.Module:
    """Build the mlp behind an imprint layer of ``bins`` rows, at least 1."""
    check_count("bins", bins)
    layers: list[tuple[str, nn.Module]] = [(LAYER, ImprintLayer(shape, bins)), *mlp(shape, classes).named_children()]
    return LayerChain(OrderedDict(layers))
