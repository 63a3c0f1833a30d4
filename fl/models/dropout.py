"""Dropout whose random factors are an argument, and the chain of layers that passes them on."""

import numpy as np
from torch import Tensor, nn

from ..streams import uniform


class Dropout(nn.Module):
    """Features ``(n, features)`` times ``factors``, one row each or one for all; unchanged without factors."""

    def __init__(self, features: int, rate: float = 0.5) -> None:
        super().__init__()
        self.features, self.rate = features, rate

    def forward(self, features: Tensor, factors: Tensor | None = None) -> Tensor:
        return features if factors is None else features * factors

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
        """Factors ``(*shape, features)``: 0 with probability ``rate``, else 1 / (1 - rate), which keeps the mean."""
        kept = uniform(rng, (*shape, self.features)) >= self.rate
        return kept / (1 - self.rate)


class Chain(nn.Sequential):
    """A sequence of layers; ``dropout``: the factors of its dropout layer, None at evaluation."""

    def forward(self, images: Tensor, dropout: Tensor | None = None) -> Tensor:
        features = images
        for layer in self:
            features = layer(features, dropout) if isinstance(layer, Dropout) else layer(features)
        return features


def dropout_of(model: nn.Module) -> Dropout | None:
    """The model's dropout layer, or None."""
    return next((layer for layer in model.modules() if isinstance(layer, Dropout)), None)
