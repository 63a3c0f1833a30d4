"""Measures what a vertical federation's models are worth on new people."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ...audit.metrics.roc import area
from ...audit.metrics.scores_by_run import ScoresByRun
from ..streams import Streams
from .network import VerticalModels
from .plan import VerticalPlan
from .protection import VerticalProtection
from .task import People


def predicted(
    models: VerticalModels, people: People, plan: VerticalPlan, protection: VerticalProtection, streams: Streams
) -> Tensor:
    """Return the logits ``(R, n, classes)`` of new people; the columns of passive parties pass the protection's hook
    ``columns``, and what they send its hook ``evaluated``.
    """
    network, embeddings = plan.network, []
    for party, (bottom, layers) in enumerate(zip(network.bottoms, models.bottoms, strict=True)):
        rows = people.columns[party].expand(len(layers[0]), -1, -1)
        if party < network.passive:
            rows = protection.columns(rows, party, plan, streams.generator("columns of new people", client=party))
        values, _ = bottom.forward(layers, rows)
        if party < network.passive:
            values = protection.evaluated(values, party, plan, streams.generator("evaluated", client=party))
        embeddings.append(values)
    return network.logits(models.top, tuple(embeddings))[0]


@dataclass(frozen=True, kw_only=True)
class VerticalUtility:
    """The utility of one replica's models.

    Args:
        accuracy: share of people whose class is predicted.
        majority: share of the largest class, which a model without any information reaches.
        loss: mean cross-entropy.
        auc: of two classes, the area under the ROC curve; None for more.
    """

    accuracy: float
    majority: float
    loss: float
    auc: float | None


def utility_of(logits: Tensor, labels: Tensor) -> VerticalUtility:
    """Return the utility of one replica's ``logits (n, classes)`` for ``labels (n,)``."""
    counts = torch.bincount(labels, minlength=logits.shape[1])
    two = logits.shape[1] == 2 and bool((counts > 0).all())
    margin = (logits[:, 1] - logits[:, 0]).numpy() if two else None
    return VerticalUtility(
        accuracy=float((logits.argmax(1) == labels).double().mean()),
        majority=float(counts.max()) / len(labels),
        loss=float(cross_entropy(logits, labels)),
        auc=None if margin is None else area(ScoresByRun.of(margin[labels == 1], margin[labels == 0])),
    )
