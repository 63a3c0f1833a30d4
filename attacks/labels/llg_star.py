"""Attack that infers label counts like LLG, with the model's response to dummy images (Wainakh et al. 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import FloatArray, IntArray
from ...fl.fields import Count
from ...fl.models.network import Network
from ...fl.streams import uniform
from ..attack import Knowledge
from .label_attack import LabelAttack, LabelLots, last_layer
from .llg import picked_labels


@dataclass(frozen=True, kw_only=True)
class Response:
    """A model's measured response: how the row sums of the last layer's weight gradient depend on the labels in a
    batch.

    ``own``: impact of a lot with only one label, divided by its size; ``offset``: (classes,), the sum of a class in a
    lot of other labels.
    """

    own: float
    offset: FloatArray


def response(network: Network, model: Tensor, images: list[Tensor]) -> Response:
    """Measure how the gradient at ``model (d,)`` depends on labels, on batches in which all images have the same label.

    ``images[label]``: (m, c, h, w).

    ``own``: mean over classes of the class's own row sum, times 1 + 1/classes; ``offset``: the mean of a class's row
    sum over the lots of the other labels.
    """
    sums = np.stack([_row_sums(network, model, batch, label) for label, batch in enumerate(images)])
    own, classes = sums.diagonal(), len(sums)
    return Response(
        own=float(own.mean() * (1 + 1 / classes)),
        offset=np.asarray((sums.sum(0) - own) / (classes - 1), dtype=np.float64),
    )


@dataclass(frozen=True, kw_only=True)
class LLGStar(LabelAttack):
    """An attack that infers the label counts of each upload of one round as LLG does, with the model's measured
    response to noise images.

    Args:
        images: dummy images in each class's lot, uniform in [0, 1].
    """

    linear: ClassVar[bool] = True

    images: Count = 64

    def counts(self, lots: LabelLots, knowledge: Knowledge, rng: np.random.Generator) -> IntArray:
        network = knowledge.network
        # One batch of images per class: a shared one would make the classes' responses dependent.
        dummies = [uniform(rng, (self.images, *network.shape)) for _ in range(network.classes)]
        found = response(network, lots.model, dummies)
        return picked_labels(lots.last.row_sums, lots.sizes, found.own / lots.sizes, found.offset)


def _row_sums(network: Network, model: Tensor, images: Tensor, label: int) -> FloatArray:
    # Weights of 1 / n: uploads are mean gradients, so the response must be one too.
    labels, weights = torch.full((1, len(images)), label), torch.full((1, len(images)), 1 / len(images))
    mean = network.gradient(model.unsqueeze(0), images.unsqueeze(0), labels, weights)
    return last_layer(mean[0], network.layout).row_sums
