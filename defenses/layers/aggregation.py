"""Average client models layer by layer; less sensitive layers get more weight (PDA-PAM: Xiao et al. 2025, eq. 10, 11).

Not stated in the paper: what the weights of reports sum to. Equation 11 divides each report by its alpha-hat and by K,
so that the weights 1 / (K alpha-hat) sum to K for equal scores, and to more, without bound, for uneven ones. Here the
inverses are normalised to sum to 1. As alpha-hat is a softmax of the scores, these are the softmax of minus the scores.
The scores of a layer are norms of Jacobians, in hundreds or thousands for weights: their softmax gives nearly all
weight to one client (``effective_clients``). With ``relative``, each layer's scores are first divided by their mean.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ...fl.laws import layer_starts, spread_layers
from ...fl.message import Message
from ...fl.protection import Context
from ...fl.task import Samples
from .score import LayerScorer


def pda_pam(
    received: Message,
    context: Context,
    scorers: Sequence[LayerScorer],
    *,
    published: bool = False,
    relative: bool = False,
) -> Tensor:
    """Return the aggregate of clients' reports, shape ``(R, d)`` for R runs; each layer of a report gets a weight that
    falls as the layer's sensitivity score on public samples rises.

    All inputs are noised or public. Without public samples all clients have equal weight. The clients' sizes do not
    enter, as in the paper.

    Args:
        scorers: one per preference; client k's model is scored by its own (see ``preferred``).
        published: whether to use the weights as printed.
        relative: whether a layer's scores are divided by their mean over the clients.
    """
    scores = model_scores(received, context, scorers)
    scores = relative_scores(scores, received.present) if relative else scores
    weights = published_weights(scores, received.present) if published else client_weights(scores, received.present)
    layout = context.plan.layout
    spread = spread_layers(weights.to(received.values), layer_starts(layout), received.values.shape[-1])
    return torch.einsum("rkd,rkd->rd", spread, received.values)


def model_scores(received: Message, context: Context, scorers: Sequence[LayerScorer]) -> Tensor:
    """Return the sensitivity score of each layer on public samples, shape ``(R, rows, layers)``, for the model that
    each client's report (a row) alone would produce.
    """
    replicas, rows, dim = received.values.shape
    if context.samples is None or not rows:
        return torch.zeros(replicas, rows, len(context.plan.layout.names))
    public = context.samples(None)
    senders = received.senders or tuple(range(rows))
    scores = received.values.new_zeros(replicas, rows, len(context.plan.layout.names))
    # Several clients may share a scorer; each distinct one scores all of its clients in one batch.
    for scorer in dict.fromkeys(scorers):
        rows_of = [row for row, sender in enumerate(senders) if preferred(scorers, sender) == scorer]
        models = public.models.repeat_interleave(len(rows_of), dim=0)
        led = context.plan.algorithm.combine(models, received.values[:, rows_of].reshape(-1, dim))
        asked = Samples(network=public.network, models=led, images=public.images, labels=public.labels)
        scores[:, rows_of] = scorer.scores(asked).view(replicas, len(rows_of), -1)
    return scores


def preferred(scorers: Sequence[LayerScorer], client: int) -> LayerScorer:
    """Return the function that scores the layers for ``client``; ``scorers`` has one function per privacy preference (a
    choice of sensitive pixels), and clients get them in turn.
    """
    return scorers[client % len(scorers)]


def client_weights(scores: Tensor, present: Tensor) -> Tensor:
    """Return each client's weight in the average per layer, shape ``(R, rows, layers)``; weights fall as the
    sensitivity scores rise, and sum to 1 over the clients that take part.
    """
    return _softmax(-scores, present)


def published_weights(scores: Tensor, present: Tensor) -> Tensor:
    """Compute the weights 1 / (K alpha-hat) by which client models are averaged, as printed in equations 10 and 11 of
    the FedRE paper; K clients take part, and alpha-hat is the softmax of their sensitivity scores.
    """
    alpha, count = _softmax(scores, present), present.sum(1).view(-1, 1, 1)
    return (1 / (count * alpha)).masked_fill(~present.unsqueeze(-1), 0)


def relative_scores(scores: Tensor, present: Tensor) -> Tensor:
    """Return each layer's scores divided by their mean over the clients that take part, shape ``(R, rows, layers)``, so
    that weights depend on how clients differ and not on the scale of a layer's gradients.
    """
    there = present.unsqueeze(-1).to(scores)
    mean = (scores * there).sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp_min(1)
    return scores / mean.clamp_min(torch.finfo(scores.dtype).tiny)


def effective_clients(weights: Tensor) -> Tensor:
    """Return how many clients of equal weight an average has, shape ``(R, layers)``: (sum w)^2 / sum w^2, which is the
    number of clients for equal weights and 1 where one client has all weight.

    ``weights``: ``(R, rows, layers)``, such as those of ``client_weights``.
    """
    return weights.sum(1).square() / weights.square().sum(1).clamp_min(torch.finfo(weights.dtype).tiny)


def _softmax(scores: Tensor, present: Tensor) -> Tensor:
    there = present.unsqueeze(-1)
    # In a replica without any report each weight is 0 / 0; the second fill makes it 0.
    return scores.masked_fill(~there, -torch.inf).softmax(1).masked_fill(~there, 0)
