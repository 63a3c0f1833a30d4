"""The models of a vertical federation: a bottom model at each party, and a top model at the party with the labels."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..streams import Streams
from .stack import Layers, Stack


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
        """The architecture of the top model; None where the embeddings are summed."""
        return None if self.summed else Stack((len(self.widths) * self.embedding, *self.top_hidden, self.classes))

    def initial(self, streams: Streams) -> VerticalModels:
        """Draw the public initial models of one replica, each party's by a stream of its own."""
        bottoms = [one.initial(streams.generator("init", client=party)) for party, one in enumerate(self.bottoms)]
        top = () if self.top is None else self.top.initial(streams.generator("init top"))
        return VerticalModels(bottoms=tuple(bottoms), top=top)

    def logits(self, top: Layers, embeddings: tuple[Tensor, ...]) -> tuple[Tensor, Layers]:
        """Return the logits ``(R, b, classes)`` from the parties' embeddings ``(R, b, embedding)``, and what
        ``by_embeddings`` needs.
        """
        if self.top is None:
            return torch.stack(embeddings).sum(0), ()
        return self.top.forward(top, torch.cat(embeddings, dim=-1))

    def by_embeddings(self, top: Layers, held: Layers, residuals: Tensor) -> tuple[Layers, tuple[Tensor, ...]]:
        """Return the gradients of each person's loss by the top model's layers and by the parties' embeddings.

        ``residuals (R, b, classes)``: of each person's loss by the logits; ``held``: of ``logits``.
        """
        if self.top is None:
            return (), (residuals,) * len(self.widths)
        by_layers, rows = self.top.backward(top, held, residuals)
        return by_layers, torch.split(rows, self.embedding, dim=-1)
