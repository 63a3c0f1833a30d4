"""Computes what every model predicted in training again, for an adversary that knows all columns."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ....fl.vertical.network import VerticalModels, VerticalNetwork
from ....fl.vertical.stack import Layers, moved, weighted_sum
from ....fl.vertical.view import StepView, VerticalView
from ...attack import Undefined
from ..attack import VerticalKnowledge
from .person_labels import gradients_of


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What one person after the other was predicted, and what was released about it.

    ``probabilities``, ``residuals``: (epochs, people, classes); a residual is the probability minus the target, with
    the noise of the defense.
    """

    probabilities: Tensor
    residuals: Tensor


def replay(view: VerticalView, knowledge: VerticalKnowledge) -> Replayed:
    """Compute all models of a training again from the public initial models, all columns and the released residuals.

    Exact where all models are updated from the residuals that the passive party can compute from its gradients, without
    noise of other parties.

    Raises:
        Undefined: for embeddings that are smaller than the number of classes, from which no residual can be computed.
        ValueError: for knowledge without all columns, or a view without gradients.
    """
    network = view.plan.network
    if knowledge.columns is None:
        raise ValueError("knowledge must hold the columns of all parties, got none")
    if network.embedding < network.classes:
        raise Undefined(
            f"{network.embedding} numbers per person do not determine the residuals of {network.classes} classes"
        )
    models = VerticalModels(
        bottoms=tuple(_double(layers) for layers in knowledge.initial.bottoms), top=_double(knowledge.initial.top)
    )
    shape = (1 + max(step.epoch for step in view.steps), view.plan.people, network.classes)
    probabilities, residuals = torch.zeros(shape).double(), torch.zeros(shape).double()
    for step in view.steps:
        rows = tuple(block[step.people].double().unsqueeze(0) for block in knowledge.columns)
        models, predicted, released = _step(models, rows, step, view)
        probabilities[step.epoch, step.people], residuals[step.epoch, step.people] = predicted, released
    return Replayed(probabilities=probabilities, residuals=residuals)


def _double(layers: Layers) -> Layers:
    return tuple(layer[:1].double() for layer in layers)


def _step(
    models: VerticalModels, rows: tuple[Tensor, ...], step: StepView, view: VerticalView
) -> tuple[VerticalModels, Tensor, Tensor]:
    """The models after a step, and the probabilities and residuals ``(b, classes)`` in it."""
    plan, network = view.plan, view.plan.network
    outputs = [
        bottom.forward(layers, block)
        for bottom, layers, block in zip(network.bottoms, models.bottoms, rows, strict=True)
    ]
    logits, held = network.logits(models.top, tuple(values for values, _ in outputs))
    residuals = _residuals(network, models.top, held, gradients_of(step), view.party or 0)
    by_layers, back = network.by_embeddings(models.top, held, residuals)
    equal, rate = residuals.new_ones(residuals.shape[:2]), plan.learning_rate / len(step.people)
    top = moved(models.top, rate * weighted_sum(held, by_layers, equal)) if models.top else ()
    bottoms = list(models.bottoms)
    for party, (bottom, layers) in enumerate(zip(network.bottoms, models.bottoms, strict=True)):
        if not plan.frozen or party == network.passive:
            inputs = outputs[party][1]
            gradients, _ = bottom.backward(layers, inputs, back[party])
            bottoms[party] = moved(layers, rate * weighted_sum(inputs, gradients, equal))
    return VerticalModels(bottoms=tuple(bottoms), top=top), torch.softmax(logits, dim=-1)[0], residuals[0]


def _residuals(network: VerticalNetwork, top: Layers, held: Layers, gradients: Tensor, party: int) -> Tensor:
    """The residuals ``(1, b, classes)`` from the gradients ``(b, embedding)`` that a party received: the top model's
    derivative at each person is known, so they are the solution of linear equations.
    """
    if network.summed:
        return gradients.unsqueeze(0)
    each = one_hot(torch.arange(network.classes), network.classes).to(gradients)
    rows = [network.by_embeddings(top, held, one.expand(1, len(gradients), -1))[1][party][0] for one in each]
    inverse: Tensor = torch.linalg.pinv(torch.stack(rows, dim=1))
    return (gradients.unsqueeze(1) @ inverse).squeeze(1).unsqueeze(0)
