"""Dropout whose draws are handed in, and the chain of layers that hands them on: nothing here draws."""

import numpy as np
from torch import Tensor, nn

from ..streams import uniform


class Dropout(nn.Module):
    """Features ``(n, features)`` times ``factors``, their own or the same for all n; without factors, as at evaluation,
    unchanged.
    """

    def __init__(self, features: int, rate: float = 0.5) -> None:
        super().__init__()
        self.features, self.rate = features, rate

    def forward(self, features: Tensor, factors: Tensor | None = None) -> Tensor:
        return features if factors is None else features * factors

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
        """Factors ``(*shape, features)``, each 0 at the rate and 1 / (1 - rate) else: the mean feature stays."""
        kept = uniform(rng, (*shape, self.features)) >= self.rate
        return kept / (1 - self.rate)


class Chain(nn.Sequential):
    """Layers in a row; ``dropout``: the factors of its dropout, None at evaluation."""

    def forward(self, images: Tensor, dropout: Tensor | None = None) -> Tensor:
        features = images
        for layer in self:
            features = layer(features, dropout) if isinstance(layer, Dropout) else layer(features)
        return features


def dropout_of(model: nn.Module) -> Dropout | None:
    """The model's dropout, where it has one."""
    return next((layer for layer in model.modules() if isinstance(layer, Dropout)), None)
