"""The models of a vertical federation: a bottom model at each party, and a top model at the party with the labels.

Each is a stack of linear layers with rectifiers between them, for many replicas (independent runs) at once.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ..streams import Streams, uniform

Layers = tuple[Tensor, ...]
"""One tensor ``(R, inputs + 1, outputs)`` per layer; the last row is the layer's bias."""


@dataclass(frozen=True)
class Stack:
    """Linear layers of the given ``sizes`` (inputs, hidden ..., outputs), with rectifiers (ReLU) between them.

    A stack without inputs has a bias alone.
    """

    sizes: tuple[int, ...]

    @property
    def dim(self) -> int:
        """The number of parameters."""
        return sum((inputs + 1) * outputs for inputs, outputs in pairwise(self.sizes))

    def initial(self, rng: np.random.Generator) -> Layers:
        """Draw the initial layers for one replica, uniform in plus and minus 1 / sqrt(inputs) as in PyTorch's linear
        layers; biases are 0.
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
        """Return the gradient of each row's loss with respect to each layer's outputs, ``(R, b, outputs)`` per layer,
        and the gradient with respect to the rows ``(R, b, inputs)``.

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
    """Return the norm of each row's gradient with respect to all parameters, ``(R, b)``, without computing these
    gradients.

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
    """Return the weighted sum of the rows' gradients with respect to all parameters, with weights ``(R, b)``, as flat
    vectors ``(R, dim)``.

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
    """Return the layers minus a step given as flat vectors ``(R, dim)``."""
    sizes = [layer[0].numel() for layer in layers]
    parts = torch.split(step, sizes, dim=1)
    return tuple(layer - part.view(-1, *layer.shape[1:]) for layer, part in zip(layers, parts, strict=True))


@dataclass(frozen=True, kw_only=True)
class VerticalModels:
    """The parameters of all parties' models, for R replicas (independent runs).

    Args:
        bottoms: one per party; the passive parties first, the active party last.
        top: empty where the outputs of the bottoms are summed.
    """

    bottoms: tuple[Layers, ...]
    top: Layers


@dataclass(frozen=True, kw_only=True)
class VerticalNetwork:
    """The public architecture of a vertical federation.

    Each party computes an embedding of its columns of a person by its bottom model. The active party, which holds the
    labels, computes the logits of the classes from the embeddings of all parties.

    Args:
        widths: number of columns of each party; the passive parties first, the active party last (it may have none).
        classes: number of classes, >= 2.
        embedding: numbers that a passive party sends about a person.
        hidden: sizes of the hidden layers of each bottom model.
        top_hidden: sizes of the hidden layers of the top model; empty: one linear layer.
        summed: whether the logits are the sum of all embeddings, so that the top model has no parameters. With no
            hidden layers this is vertical logistic regression.

    Raises:
        ValueError: for fewer than two parties or classes, a passive party without columns, or a sum of embeddings whose
            size is not the number of classes.
    """

    widths: tuple[int, ...]
    classes: int
    embedding: int
    hidden: tuple[int, ...] = ()
    top_hidden: tuple[int, ...] = ()
    summed: bool = False

    def __post_init__(self) -> None:
        if len(self.widths) < 2 or min(self.widths[:-1], default=0) < 1 or self.widths[-1] < 0:
            raise ValueError(
                "widths must give at least one passive party with columns, and then the columns of the active party "
                f"(0 or more), got {self.widths}"
            )
        if self.classes < 2:
            raise ValueError(f"classes must be >= 2, got {self.classes}")
        if self.embedding < 1 or min((*self.hidden, *self.top_hidden), default=1) < 1:
            raise ValueError(
                f"embedding and the sizes of hidden layers must be >= 1, got {self.embedding}, {self.hidden} and "
                f"{self.top_hidden}"
            )
        if self.summed and (self.embedding != self.classes or self.top_hidden):
            raise ValueError(
                f"summed embeddings are the logits: embedding must be classes = {self.classes} and top_hidden empty, "
                f"got {self.embedding} and {self.top_hidden}"
            )

    @property
    def passive(self) -> int:
        """The number of passive parties, which hold no labels."""
        return len(self.widths) - 1

    @cached_property
    def bottoms(self) -> tuple[Stack, ...]:
        """The architecture of each party's bottom model."""
        return tuple(Stack((width, *self.hidden, self.embedding)) for width in self.widths)

    @cached_property
    def top(self) -> Stack | None:
        """The architecture of the top model; None if the embeddings are summed instead."""
        return None if self.summed else Stack((len(self.widths) * self.embedding, *self.top_hidden, self.classes))

    def initial(self, streams: Streams) -> VerticalModels:
        """Draw the public initial models of one replica, each party's by a stream of its own."""
        bottoms = [one.initial(streams.generator("init", client=party)) for party, one in enumerate(self.bottoms)]
        top = () if self.top is None else self.top.initial(streams.generator("init top"))
        return VerticalModels(bottoms=tuple(bottoms), top=top)

    def logits(self, top: Layers, embeddings: tuple[Tensor, ...]) -> tuple[Tensor, Layers]:
        """Return the logits ``(R, b, classes)`` computed from the parties' embeddings ``(R, b, embedding)``, and the
        intermediate values that ``by_embeddings`` needs.
        """
        if self.top is None:
            return torch.stack(embeddings).sum(0), ()
        return self.top.forward(top, torch.cat(embeddings, dim=-1))

    def by_embeddings(self, top: Layers, held: Layers, residuals: Tensor) -> tuple[Layers, tuple[Tensor, ...]]:
        """Return the gradients of each person's loss with respect to the top model's layers and the parties'
        embeddings.

        ``residuals (R, b, classes)``: of each person's loss by the logits; ``held``: of ``logits``.
        """
        if self.top is None:
            return (), (residuals,) * len(self.widths)
        by_layers, rows = self.top.backward(top, held, residuals)
        return by_layers, torch.split(rows, self.embedding, dim=-1)
