"""Follows a passive party's bottom model through the training, from its public initial parameters."""

from collections.abc import Callable

import torch
from torch import Tensor

from ....fl.vertical.stack import Layers, moved, weighted_sum
from ....fl.vertical.view import StepView, VerticalView
from ..attack import VerticalKnowledge

Infer = Callable[[Layers, Tensor, Tensor, int], Tensor]
"""(layers, embeddings (m, embedding), their people (m,), number of embeddings that each is the mean of) -> the people's
rows (m, width).
"""


def followed_rows(view: VerticalView, knowledge: VerticalKnowledge, party: int, infer: Infer) -> Tensor:
    """Return the columns ``(people, width)`` of a passive party that ``infer`` finds in its embeddings.

    A frozen bottom model is public, and each person's embeddings are averaged over the epochs. Another one is public
    before the first step only. The active party knows the gradients that it sent, so the rows that it infers in a step
    also give the step's update, as long as the passive party adds no noise to it. The result is the mean over epochs.

    Inferred rows are cut to the range of the party's public columns, widened by its length on both sides: a wrong model
    must not grow without bound.

    Raises ValueError for a view without embeddings.
    """
    layers = tuple(layer.double() for layer in knowledge.initial.bottoms[party])
    public = knowledge.public.columns[party].double()
    low, high = float(public.min()), float(public.max())
    edges = (low - (high - low), high + (high - low))
    seen = [step for step in view.steps if step.embeddings]
    if not seen:
        raise ValueError("view must hold the embeddings that the active party receives, got none")
    if view.plan.frozen:
        values, times = _mean(view, [(step, step.embeddings[party][0].double()) for step in seen])
        return infer(layers, values, torch.arange(view.plan.people), times).clamp(*edges)
    found = []
    for step in seen:
        rows = infer(layers, step.embeddings[party][0].double(), step.people, 1).clamp(*edges)
        found.append((step, rows))
        layers = _updated(layers, rows, step.returned[party][0].double(), view, party)
    return _mean(view, found)[0]


def _mean(view: VerticalView, values: list[tuple[StepView, Tensor]]) -> tuple[Tensor, int]:
    """Each person's mean over the epochs, ``(people, k)``, and the number of epochs."""
    total = values[0][1].new_zeros(view.plan.people, values[0][1].shape[1])
    for step, rows in values:
        total[step.people] += rows
    epochs = len({step.epoch for step, _ in values})
    return total / epochs, epochs


def _updated(layers: Layers, rows: Tensor, back: Tensor, view: VerticalView, party: int) -> Layers:
    """The layers after the party's update by ``rows (b, width)`` and the gradients ``back (b, embedding)``."""
    bottom = view.plan.network.bottoms[party]
    _, held = bottom.forward(layers, rows.unsqueeze(0))
    gradients, _ = bottom.backward(layers, held, back.unsqueeze(0))
    total = weighted_sum(held, gradients, back.new_ones(1, len(back)))
    return moved(layers, view.plan.learning_rate / len(rows) * total)
