"""Base classes of attacks that return images, found by a search or (for null attacks) without the uploads; the number,
the labels and the simulated updates of the samples behind an upload.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...audit.arrays import IntArray
from ...audit.evidence import Reconstructions
from ...fl.algorithms import FedAvg
from ...fl.fields import Count, Positive, Weight
from ...fl.models.network import Network
from ...fl.objective import OBJECTIVES
from ...fl.plan import Plan
from ...fl.recorder import View
from ...fl.streams import uniform
from ..attack import Knowledge, Undefined
from ..labels.idlg import inferred_labels
from ..labels.label_attack import whole_counts
from ..uploads import UploadAttack, Uploads, read_uploads, upload_senders, upload_setting
from .search import Cosine, Objective, Search, best_restarts, upload_parts

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
    """Return the number of samples from which one upload was computed: the batch size times the local steps, at most
    the client's number of samples.

    Under Poisson sampling it is the expected number, rounded, at least 1.
    """
    return min(plan.sizes[client], _lot(plan, client) * plan.algorithm.local_steps)


def upload_of_each_image(view: View, knowledge: Knowledge, round: int) -> IntArray:
    """Return, for each image that an attack guesses, the index of the upload from which it is guessed, in ascending
    order.

    A null attack reads nothing else of a view.
    """
    behind = [samples_behind(knowledge.plan, client) for client in upload_senders(view, round)]
    return np.repeat(np.arange(len(behind)), behind)


def of_equal_lots(plan: Plan, uploads: Uploads) -> list[Tensor]:
    """Group uploads by batch size and by the number of samples from which each was computed; return the indices of each
    group's uploads in ascending order.
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
    counts = torch.from_numpy(whole_counts((mean - bias).clamp_min(0).cpu(), [k] * len(bias))).to(bias.device)
    classes = torch.arange(network.classes, device=counts.device)
    return torch.stack([classes.repeat_interleave(row) for row in counts])


def simulated_updates(
    network: Network, plan: Plan, client: int, model: Tensor, images: Tensor, labels: Tensor
) -> Tensor:
    """Compute the update ``(n, d)`` that ``client`` would send after training on each candidate batch; the update is
    differentiable with respect to the candidates.

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
    """Draw a random public image for each entry of ``labels (n, k)``; the drawn image has that label if any public
    image has it.

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


@dataclass(frozen=True, kw_only=True)
class ImageAttack(UploadAttack, ABC):
    """A base class of attacks that return images for the samples behind the clients' uploads of one round."""

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Return the images and labels that `lots` finds, upload by upload. Raises ValueError for a zero or non-finite
        upload.
        """
        uploads, found = read_uploads(view, knowledge, self.round), []
        for rows in of_equal_lots(knowledge.plan, uploads):
            alike = uploads.only(rows)
            found.append((rows, self.lots(alike, samples_behind(knowledge.plan, alike.senders[0]), knowledge, rng)))
        return lots_evidence(found, view)

    def lots(self, uploads: Uploads, k: int, knowledge: Knowledge, rng: np.random.Generator) -> ImageLots:
        """Return one batch of k images and labels for each of these ``uploads``; each upload was computed from k
        samples, in lots of equal size.
        """
        raise TypeError(
            f"every image attack must define lots(uploads, k, knowledge, rng), but {type(self).__name__} does not"
        )


@dataclass(frozen=True, kw_only=True)
class NullImageAttack(ImageAttack, ABC):
    """A base class of null attacks, which return an image for each sample behind one round's uploads without using the
    uploads.
    """

    null: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = tuple(OBJECTIVES)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        uploads = upload_of_each_image(view, knowledge, self.round)
        images, labels = self.guesses(knowledge, len(uploads), rng)
        named = None if labels is None else labels.numpy()
        return Reconstructions(images.numpy(), named, upload_setting(view), uploads)

    @abstractmethod
    def guesses(self, knowledge: Knowledge, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor | None]:
        """Return guessed images ``(count, c, h, w)`` and their labels ``(count,)``, or None in place of labels."""


@dataclass(frozen=True, kw_only=True)
class SearchAttack(ImageAttack, ABC):
    """A base class of attacks that reconstruct the images behind one round's uploads by gradient descent, with all
    restarts of many uploads in one batch.

    Each upload keeps the restart with the least objective; the choice does not use the truth.

    Args:
        iterations: steps of the search; the learning rate falls tenfold after 3/8, 5/8 and 7/8 of them.
        restarts: initial images per upload.
        learning_rate: of Adam (betas .9 and .999), in pixels.
    """

    signed: ClassVar[bool] = True
    """Whether Adam gets only the gradient's sign."""
    iterations: Count = 100
    restarts: Count = 2
    learning_rate: Positive = 0.1

    def search(self, objective: Objective, start: ImageLots, dim: int) -> ImageLots:
        """Optimise all candidate batches from ``start``, and return the best of the ``restarts`` candidates of each
        upload.

        The candidates of an upload are adjacent.

        Args:
            dim: size of one gradient; each image may have its own.
        """
        search = Search(iterations=self.iterations, learning_rate=self.learning_rate, signed=self.signed)
        images, labels = list[Tensor](), list[Tensor]()
        # Batch by batch: all candidates at once would not fit in memory.
        for part in self.parts(start, dim):
            values = objective(part)
            candidates = search.run(values, start.images[part])
            best = best_restarts(values, candidates, self.restarts)
            images.append(candidates[best])
            labels.append(start.labels[part][best])
        return ImageLots(images=torch.cat(images), labels=torch.cat(labels))

    def parts(self, start: ImageLots, dim: int) -> list[slice]:
        """Return slices of candidates, each optimised as one batch; an upload's result does not depend on the other
        uploads in its slice.
        """
        # The gradients of a lot's images take more memory than the images themselves.
        held = start.labels.shape[1] * dim + start.images[0].numel()
        return upload_parts(len(start.images), self.restarts, held)


@dataclass(frozen=True, kw_only=True)
class CosineAttack(SearchAttack, ABC):
    """A base class of searches by the cosine distance of gradients plus total variation, from uniform noise.

    Args:
        total_variation: weight of the images' mean absolute difference of neighbouring pixels.
    """

    total_variation: Weight = 1e-4

    def cosine(self, uploads: Uploads, labels: Tensor, knowledge: Knowledge) -> Cosine:
        """Return the objective of all restarts, which are adjacent and share their upload's ``labels (n, k)``."""
        network, restarts = knowledge.network, self.restarts
        dropout = shown_dropout(uploads.gradients, network, knowledge.plan, uploads.senders)
        return Cosine(
            network=network,
            model=uploads.model,
            gradients=uploads.gradients.repeat_interleave(restarts, 0),
            labels=soft(labels.repeat_interleave(restarts, 0), network, uploads.model),
            total_variation=self.total_variation,
            dropout=None if dropout is None else dropout.repeat_interleave(restarts, 0),
        )

    def from_noise(
        self, objective: Objective, labels: Tensor, model: Tensor, network: Network, rng: np.random.Generator
    ) -> ImageLots:
        """Return the best restarts of a ``search`` from noise, for uploads with these ``labels (n, k)``."""
        labels = labels.repeat_interleave(self.restarts, 0)
        # All restarts' images in one draw, so the number of batches does not change them.
        start = uniform(rng, (*labels.shape, *network.shape)).to(model.device)
        return self.search(objective, ImageLots(images=start, labels=labels), network.layout.dim)


def lots_evidence(found: Sequence[tuple[Tensor, ImageLots]], view: View) -> Reconstructions:
    """Combine the images reconstructed for several groups of uploads into one piece of evidence, in the order of the
    uploads.

    A group has its upload numbers ``(m,)`` in the view and one reconstructed batch per upload.
    """
    by_row = {
        row: (images, labels)
        for rows, lots in found
        for row, images, labels in zip(rows.tolist(), lots.images, lots.labels, strict=True)
    }
    ordered = [by_row[row] for row in sorted(by_row)]
    images, labels = (torch.cat([pair[which] for pair in ordered]).cpu().numpy() for which in (0, 1))
    # Labels that are no classes are no part of the evidence.
    classes = labels if labels.ndim == 1 else None
    # Groups interleave, so rows are put back in the order of the view's uploads.
    uploads = np.repeat(sorted(by_row), [len(pair[1]) for pair in ordered])
    return Reconstructions(images, classes, upload_setting(view), uploads)
