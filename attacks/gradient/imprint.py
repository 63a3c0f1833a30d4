"""Imprint: reads images out of the bins of a malicious server's imprint layer (Fowl et al. 2022, "Robbing the Fed").

The server chose the model, and follows the protocol otherwise. An image moves alike every row whose threshold it
passes (see ``fl.imprint``): neighbouring rows' weight gradients differ by the sum of s(x) x over the images x between
their thresholds, their bias gradients by the sum of s(x). Where one image lies there alone the quotient is the image,
however many lie elsewhere. Sums of uploads keep that: a sum over clients only makes the lot larger.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...audit.evidence import Reconstructions
from ...fl.models.imprint import LAYER
from ...fl.view import View
from ..attack import Attack, Knowledge, Undefined
from ..uploads import check_round, read_uploads
from .objectives.lots import lot_labels, of_equal_lots, samples_behind
from .objectives.search import Lots
from .objectives.search_attack import lots_evidence

_ROUNDING = 1e-3
"""How far beyond [0, 1] or its bin a quotient may lie: gradients are differences of single-precision sums."""


@dataclass(frozen=True, kw_only=True)
class Imprint(Attack):
    """As many images of each upload of ``round`` as its lot has, exact where an image has its bin to itself.

    Of n images and k bins of equal mass the expected share that is alone is ``(1 - 1/k)^(n - 1)``; others come out as
    blends. It searches for nothing and knows no noise: each bin is trusted as it stands. One local step: weights that
    move between steps move the bins.
    """

    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Images and labels, upload by upload; which label belongs to which image of a lot it does not say.

        Raises:
            Undefined: if the model has no imprint layer, or training has moved it.
            ValueError: for a zero or non-finite upload.
        """
        network = knowledge.network
        if not network.bins:
            raise Undefined(f"the model {network.model} has no imprint layer: its server did not plant one")
        uploads = read_uploads(view, knowledge, self.round)
        trap, moved = network.layout.unflatten(uploads.model), network.layout.unflatten(uploads.gradients)
        measure, offsets = trap[f"{LAYER}.bins.weight"], trap[f"{LAYER}.bins.bias"]
        if not bool((measure == measure[0]).all()):
            raise Undefined(f"training has moved the imprint layer before round {self.round}: its rows differ")
        found = []
        for rows in of_equal_lots(knowledge.plan, uploads):
            k = samples_behind(knowledge.plan, uploads.senders[int(rows[0])])
            labels = lot_labels(uploads.gradients[rows], uploads.model, network, k, knowledge.public_images)
            images = [
                binned_images(
                    moved[f"{LAYER}.bins.weight"][row], moved[f"{LAYER}.bins.bias"][row], measure[0], offsets, k
                )
                for row in rows.tolist()
            ]
            found.append((rows, Lots(images=torch.stack(images).view(len(rows), k, *network.shape), labels=labels)))
        return lots_evidence(found, view)


def binned_images(weights: Tensor, biases: Tensor, measure: Tensor, offsets: Tensor, k: int) -> Tensor:
    """Gradients of the layer's ``weights (bins, pixels)`` and ``biases (bins,)`` -> k images ``(k, pixels)`` in [0, 1].

    ``measure (pixels,)`` and ``offsets (bins,)``: the layer itself, one row of its weights and its biases. First come
    quotients that are images of their own bin, then others, each by the size of its bias gradient; with fewer bins in
    use than images the first come again.
    """
    weights, biases, offsets = weights.double(), biases.double(), offsets.double()
    # Above the last threshold there is no other row to take away.
    left = weights - torch.cat([weights[1:], weights.new_zeros(1, weights.shape[1])])
    size = biases - torch.cat([biases[1:], biases.new_zeros(1)])
    used = (size != 0).nonzero().flatten()
    if not len(used):
        return torch.zeros(k, weights.shape[1])
    quotients = left[used] / size[used].unsqueeze(1)
    measured, room = quotients @ measure.double(), _ROUNDING * float(measure.double().abs().sum())
    above = torch.cat([offsets[1:], offsets.new_full((1,), -torch.inf)])[used]
    own = (measured + offsets[used] > -room) & (measured + above < room)
    own &= (quotients.amin(1) > -_ROUNDING) & (quotients.amax(1) < 1 + _ROUNDING)
    order = size[used].abs().argsort(descending=True, stable=True)
    order = order[(~own[order]).long().argsort(stable=True)]
    return quotients[order[torch.arange(k) % len(order)]].clamp(0, 1).float()
