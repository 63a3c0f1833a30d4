"""A stack of linear layers with rectifiers between them, for many replicas (independent runs) at once."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ..streams import uniform

Layers = tuple[Tensor, ...]
"""One tensor ``(R, inputs + 1, outputs)`` per layer; the last row is the layer's bias."""


@dataclass(frozen=True)
class Stack:
    """Linear layers of the given ``sizes`` (inputs, hidden ..., outputs), with rectifiers (ReLU) between them.

    A stack without inputs has a bias alone.
    """

    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.sizes) < 2 or self.sizes[0] < 0 or min(self.sizes[1:]) < 1:
            raise ValueError(f"sizes must name inputs >= 0 and then outputs >= 1 of each layer, got {self.sizes}")

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return sum((inputs + 1) * outputs for inputs, outputs in pairwise(self.sizes))

    def initial(self, rng: np.random.Generator) -> Layers:
        """Draw the initial layers, one replica: uniform in plus and minus 1 / sqrt(inputs), as PyTorch's linear layers;
        biases are 0.
        """
        layers = []
        for inputs, outputs in pairwise(self.sizes):
            weights = (2 * uniform(rng, (1, inputs, outputs)) - 1) / max(1, inputs) ** 0.5
            layers.append(torch.cat([weights, torch.zeros(1, 1, outputs)], dim=1))
        return tuple(layers)

    def forward(self, layers: Layers, rows: Tensor) -> tuple[Tensor, Layers]:
        """Return the outputs ``(R, b, outputs)`` for ``rows (R, b, inputs)``, and each layer's inputs with a one
        appended, which ``backward`` needs.
        """
        held = []
        for number, layer in enumerate(layers):
            rows = torch.relu(rows) if number else rows
            rows = torch.cat([rows, rows.new_ones((*rows.shape[:-1], 1))], dim=-1)
            held.append(rows)
            rows = rows @ layer
        return rows, tuple(held)

    def backward(self, layers: Layers, held: Layers, gradient: Tensor) -> tuple[Layers, Tensor]:
        """Return the gradient of each row's loss by each layer's outputs, ``(R, b, outputs)`` per layer, and by the
        rows ``(R, b, inputs)``.

        ``gradient (R, b, outputs)``: of each row's loss by the outputs.
        """
        found = []
        for number in range(len(layers) - 1, -1, -1):
            found.append(gradient)
            gradient = gradient @ layers[number][:, :-1].mT
            if number:
                gradient = gradient * (held[number][..., :-1] > 0)
        return tuple(reversed(found)), gradient


def row_norms(held: Layers, gradients: Layers) -> Tensor:
    """Return the norm of each row's gradient by all parameters, ``(R, b)``, without forming these gradients.

    ``held``, ``gradients``: of ``forward`` and ``backward``. A row's gradient by a layer is an outer product, whose
    norm is the product of two norms (Goodfellow 2015). Squares are computed in double precision, in which those of
    finite numbers do not overflow.
    """
    squares = [
        rows.double().square().sum(-1) * gradient.double().square().sum(-1)
        for rows, gradient in zip(held, gradients, strict=True)
    ]
    return torch.stack(squares).sum(0).sqrt().to(held[0].dtype)


def weighted_sum(held: Layers, gradients: Layers, weights: Tensor) -> Tensor:
    """Return the sum of the rows' gradients by all parameters, each times its weight ``(R, b)``, flat: ``(R, dim)``.

    A row of weight 0 adds nothing, whatever it holds.
    """
    if not bool(weights.all()):
        # Zero times infinity is no number, and one row would show in the whole sum.
        used = (weights != 0).unsqueeze(-1)
        held, gradients = (tuple(torch.where(used, part, 0.0) for part in parts) for parts in (held, gradients))
    return torch.cat(
        [
            (rows.mT @ (gradient * weights.unsqueeze(-1))).flatten(1)
            for rows, gradient in zip(held, gradients, strict=True)
        ],
        dim=1,
    )


def moved(layers: Layers, step: Tensor) -> Layers:
    """Return the layers minus a flat step ``(R, dim)``."""
    sizes = [layer[0].numel() for layer in layers]
    parts = torch.split(step, sizes, dim=1)
    return tuple(layer - part.view(-1, *layer.shape[1:]) for layer, part in zip(layers, parts, strict=True))
