"""Infers the number and the labels of the samples behind an upload, and simulates the updates of candidate images."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ....audit.arrays import IntArray
from ....fl.algorithms.algorithm import FedAvg
from ....fl.models.network import Network
from ....fl.plan import Plan
from ....fl.view import View
from ...attack import Knowledge, Undefined
from ...labels.idlg import inferred_labels
from ...uploads import Uploads, upload_senders

# Predictions or batch statistics are taken of at most so many public images.
PUBLIC = 1000


@dataclass(frozen=True, kw_only=True)
class ImageLots:
    """A set of n candidate batches of k images each: ``images (n, k, c, h, w)`` in [0, 1] with their ``labels
    (n, k)``, or ``(n, k, classes)`` where labels are no classes.
    """

    images: Tensor
    labels: Tensor


def samples_behind(plan: Plan, client: int) -> int:
    """Return the number of samples behind one upload: the batch size times the local steps, at most the client's number
    of samples.

    Under Poisson sampling it is the expected number, rounded, at least 1.
    """
    return min(plan.sizes[client], _lot(plan, client) * plan.algorithm.local_steps)


def upload_of_each_image(view: View, knowledge: Knowledge, round: int) -> IntArray:
    """Return the index of the upload behind each image that an attack guesses, in ascending order.

    A null attack reads nothing else of a view.
    """
    behind = [samples_behind(knowledge.plan, client) for client in upload_senders(view, round)]
    return np.repeat(np.arange(len(behind)), behind)


def of_equal_lots(plan: Plan, uploads: Uploads) -> list[Tensor]:
    """Group uploads by batch size and by the number of samples behind them; return the indices of each group's uploads
    in ascending order.
    """
    kinds = [(samples_behind(plan, client), _lot(plan, client)) for client in uploads.senders]
    return [torch.tensor([row for row, kind in enumerate(kinds) if kind == one]) for one in sorted(set(kinds))]


def lot_labels(gradients: Tensor, model: Tensor, network: Network, k: int, public: Tensor) -> Tensor:
    """Infer the k labels behind each gradient ``(n, d)`` of a mean loss, in ascending order, as an array ``(n, k)``.

    For one sample: iDLG. For several, the last bias's gradient is the mean softmax minus the share of each class, and
    the mean softmax is approximated by that of ``public`` images ``(m, c, h, w)`` (LLG, Wainakh et al. 2022, does this
    with guesses). Counts are rounded by largest remainders. Where labels are no classes they are not inferred, but are
    all zero. Raises ValueError for several samples without a last bias.
    """
    if not network.objective.classifies:
        return gradients.new_zeros(len(gradients), k, network.classes)
    if k == 1:
        return inferred_labels(gradients, network.layout).unsqueeze(1)
    bias = list(network.layout.unflatten(gradients).values())[-1]
    if bias.ndim != 2:
        raise ValueError(
            "the labels of a batch can be inferred only from the bias of the last layer, which this model lacks: "
            f"its last parameter has shape {tuple(bias.shape[1:])}"
        )
    with torch.no_grad():
        mean = network.logits(model, public[:PUBLIC].to(model)).softmax(-1).mean(0)
    counts = _whole(k * (mean - bias).clamp_min(0), k)
    classes = torch.arange(network.classes, device=counts.device)
    return torch.stack([classes.repeat_interleave(row) for row in counts])


def simulated_updates(
    network: Network, plan: Plan, client: int, model: Tensor, images: Tensor, labels: Tensor
) -> Tensor:
    """Compute the update ``(n, d)`` that ``client`` would send after training on each candidate batch; it is
    differentiable.

    ``images (n, k, c, h, w)``, class probabilities ``labels (n, k, classes)``. Where a step's lot holds fewer than k
    samples, the steps use the k in turn. Dropout is not simulated. Raises Undefined where the client's steps depend on
    what the server does not see, or are not differentiable.
    """
    # The order in which the client used its samples is unknown; the search finds which image belongs in which place.
    algorithm, lot, k = plan.algorithm, min(_lot(plan, client), images.shape[1]), images.shape[1]
    if algorithm.share(model.unsqueeze(0)):
        raise Undefined(
            "the server does not observe a client's control variate, so the client's local steps cannot be simulated"
        )
    if isinstance(algorithm, FedAvg) and algorithm.optimizer == "adam":
        raise Undefined(
            "Adam's local steps are not differentiable at a gradient of zero, so a gradient search is impossible"
        )
    start = model.expand(len(images), -1)
    local, state = start, algorithm.start(start)
    for step in range(algorithm.local_steps):
        slots = (step * lot + torch.arange(lot)) % k
        # In the first step all lots are at one model, which is far cheaper than one model each.
        point = model if step == 0 else local
        direction = network.lot_gradients(point, images[:, slots], labels[:, slots])
        local, state = algorithm.step(local, direction, state)
    return algorithm.update(start, local)


def shown_dropout(gradients: Tensor, network: Network, plan: Plan, senders: Sequence[int]) -> Tensor | None:
    """Infer from the clients' gradients ``(n, d)`` which features dropout removed; return the dropout factors ``(n, 1,
    features)``, or None for a model without dropout.

    A feature that was never kept changes no weight of the last layer: its column is zero, and its factor is 0. Any
    other feature was kept at least once in m draws, one for each sample in each step: its mean factor is
    1 / (1 - rate**m), exact for one draw. A gradient without a zero column has noise or many draws: all factors are 1.
    """
    # Masks that follow from seeds, in layers anywhere, leave no column of the last layer at zero.
    if not network.dropout_rate or network.dropout_is_seeded:
        return None
    weight = list(network.layout.unflatten(gradients).values())[-2]
    kept = (weight != 0).any(1)
    draws = [_lot(plan, sender) * plan.algorithm.local_steps for sender in senders]
    once = 1 - torch.tensor([network.dropout_rate**m for m in draws]).to(gradients).unsqueeze(1)
    return torch.where(kept.all(1, keepdim=True), torch.ones_like(once), kept / once).unsqueeze(1)


def random_lots(labels: Tensor, public: Tensor, public_labels: Tensor, rng: np.random.Generator) -> ImageLots:
    """Draw a random public image for each entry of ``labels (n, k)``, with that label if any public image has it.

    ``public``: (m, c, h, w), the public images.
    """
    chosen = torch.from_numpy(rng.integers(len(public), size=tuple(labels.shape)))
    for label in sorted(set(labels.flatten().tolist())):
        same = (public_labels == label).nonzero().flatten().cpu()
        if len(same):
            chosen = torch.where(labels.cpu() == label, same[chosen % len(same)], chosen)
    return ImageLots(images=public[chosen], labels=labels)


def soft(labels: Tensor, network: Network, like: Tensor) -> Tensor:
    """Convert labels ``(n, k)`` to one-hot vectors ``(n, k, classes)`` of the dtype of ``like``."""
    return one_hot(labels, network.classes).to(like)


def _lot(plan: Plan, client: int) -> int:
    return max(1, round(plan.expected_lot(client)))


def _whole(shares: Tensor, k: int) -> Tensor:
    """Shares ``(n, classes)`` >= 0 -> whole numbers that sum to k in each row, by largest remainders."""
    scaled = shares * (k / shares.sum(1, keepdim=True).clamp_min(1e-12))
    counts = scaled.floor().long()
    # A stable sort gives ties to the first class on every machine.
    order = (scaled - counts).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    counts = counts + (order < (k - counts.sum(1, keepdim=True))).long()
    # A row of zeros has no shares; without this its sum would fall short of k.
    counts[:, 0] += k - counts.sum(1)
    return counts
