"""Dropout layer whose random factors are passed as an argument, and the chain of layers that forwards them."""

import numpy as np
from torch import Tensor, nn

from ..streams import uniform
from .seeded_dropout import SeededModel


class Dropout(nn.Module):
    """A dropout layer that multiplies features by given random factors instead of drawing them.

    ``features (n, features)`` are multiplied by ``factors``, one row each or one for all; without factors they are
    unchanged.
    """

    def __init__(self, features: int, rate: float = 0.5) -> None:
        super().__init__()
        self.features, self.rate = features, rate

    def forward(self, features: Tensor, factors: Tensor | None = None) -> Tensor:
        return features if factors is None else features * factors

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
        """Draw dropout factors: 0 with probability ``rate``, else 1 / (1 - rate), which keeps the mean.

        The result has shape ``(*shape, features)``.
        """
        kept = uniform(rng, (*shape, self.features)) >= self.rate
        return kept / (1 - self.rate)


class Chain(nn.Sequential):
    """A sequence of layers that forwards the given dropout factors, or seeds, to the layer that takes them.

    ``dropout``: the factors, None at evaluation.
    """

    def forward(self, images: Tensor, dropout: Tensor | None = None) -> Tensor:
        features = images
        for layer in self:
            features = layer(features, dropout) if isinstance(layer, Dropout | SeededModel) else layer(features)
        return features


def dropout_of(model: nn.Module) -> Dropout | SeededModel | None:
    """Return the model's dropout layer, or its part whose dropout layers take seeds; None if it has neither."""
    return next((layer for layer in model.modules() if isinstance(layer, Dropout | SeededModel)), None)
