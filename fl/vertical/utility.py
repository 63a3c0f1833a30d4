"""Measures what a vertical federation's models are worth on new people."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ...audit.metrics import ScoresByRun, area
from ..streams import Streams
from .network import VerticalModels
from .plan import VerticalPlan
from .protection import VerticalProtection, check_returned
from .task import People


def predicted(
    models: VerticalModels, people: People, plan: VerticalPlan, protection: VerticalProtection, streams: Streams
) -> Tensor:
    """Return the logits ``(R, n, classes)`` of new people; the columns of passive parties pass the protection's hook
    ``columns``, and what they send its hook ``evaluated``.

    Raises:
        ValueError: if a hook returns no tensor of the right shape and type.
        FloatingPointError: if a hook returns NaN or infinity.
    """
    network, embeddings = plan.network, []
    for party, (bottom, layers) in enumerate(zip(network.bottoms, models.bottoms, strict=True)):
        rows = people.columns[party].expand(len(layers[0]), -1, -1)
        if party < network.passive:
            rng = streams.generator("columns of new people", client=party)
            rows = _checked("columns", protection.columns(rows, party, plan, rng), rows)
        values, _ = bottom.forward(layers, rows)
        if party < network.passive:
            rng = streams.generator("evaluated", client=party)
            values = _checked("evaluated", protection.evaluated(values, party, plan, rng), values)
        embeddings.append(values)
    return network.logits(models.top, tuple(embeddings))[0]


def _checked(hook: str, found: Tensor, like: Tensor) -> Tensor:
    """What a hook returned about new people, which are finite numbers as those that it was given."""
    if not bool(torch.isfinite(check_returned(hook, found, like)).all()):
        raise FloatingPointError(f"hook {hook} returned NaN or infinity for new people, so no prediction can be scored")
    return found


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
