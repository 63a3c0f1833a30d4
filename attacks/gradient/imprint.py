"""Attack by a malicious server that reads images from an imprint layer (Fowl et al. 2022, "Robbing the Fed").

The server chose the model and otherwise follows the protocol. An image adds the same gradient to every row whose
threshold it passes (see ``fl.models.imprint``). Neighbouring rows' weight gradients differ by the sum of s(x) x over
the images x between their thresholds, their bias gradients by the sum of s(x). Where only one image lies between them,
the quotient is the image, however many images lie elsewhere. A sum over clients only makes the lot larger, so the
attack also works on sums of uploads.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...fl.models.layers import LAYER
from ...fl.objective import TASKS
from ..attack import Knowledge, Undefined
from ..uploads import Uploads
from .image_attack import ImageAttack, ImageLots, lot_labels

# How far outside [0, 1] or its bin a quotient may lie: gradients are differences of single-precision sums.
_ROUNDING = 1e-3


@dataclass(frozen=True, kw_only=True)
class Imprint(ImageAttack):
    """An attack that reads images from the gradients of a layer that the server added to the model.

    It returns as many images of each upload of ``round`` as its batch has, exact if no other image falls into the same
    bin.

    For n images and k bins of equal mass the expected share of images that are alone is ``(1 - 1/k)^(n - 1)``; the
    others are blends. There is no search and no model of noise: each bin is used as it is. The attack assumes that
    each client takes one local step, because weights that change between steps move the bins.
    """

    tasks: ClassVar[tuple[str, ...]] = TASKS

    def lots(self, uploads: Uploads, k: int, knowledge: Knowledge, rng: np.random.Generator) -> ImageLots:
        """Return the images read from each upload, and the upload's labels; several images of one upload are not
        matched to its labels. Raises Undefined if the model has no imprint layer, or training has changed it.
        """
        network = knowledge.network
        if not network.bins:
            raise Undefined(
                f'the attack needs the imprint layer of model "imprint", which the model {network.model} lacks'
            )
        layer, moved = network.layout.unflatten(uploads.model), network.layout.unflatten(uploads.gradients)
        measure, offsets = layer[f"{LAYER}.bins.weight"], layer[f"{LAYER}.bins.bias"]
        if not bool((measure == measure[0]).all()):
            raise Undefined(
                f"training has changed the imprint layer before round {self.round}, so no image can be read from it"
            )
        rows = zip(moved[f"{LAYER}.bins.weight"], moved[f"{LAYER}.bins.bias"], strict=True)
        images = torch.stack([binned_images(*row, measure[0], offsets, k) for row in rows])
        labels = lot_labels(uploads.gradients, uploads.model, network, k, knowledge.public_images)
        return ImageLots(images=images.view(len(images), k, *network.shape), labels=labels)


def binned_images(weights: Tensor, biases: Tensor, measure: Tensor, offsets: Tensor, k: int) -> Tensor:
    """Recover k images, shape ``(k, pixels)`` in [0, 1], from the imprint layer's gradients ``weights (bins, pixels)``
    and ``biases (bins,)``.

    ``measure (pixels,)`` and ``offsets (bins,)``: the layer itself, one row of its weights and its biases. Quotients
    that lie in their own bin come first, then the others, each ordered by the size of its bias gradient. With fewer
    used bins than images the first ones are repeated.
    """
    weights, biases, offsets = weights.double(), biases.double(), offsets.double()
    # Above the last threshold there is no further row to subtract.
    left = weights - torch.cat([weights[1:], weights.new_zeros(1, weights.shape[1])])
    size = biases - torch.cat([biases[1:], biases.new_zeros(1)])
    used = (size != 0).nonzero().flatten()
    if not len(used):
        return torch.zeros(k, weights.shape[1])
    quotients = left[used] / size[used].unsqueeze(1)
    # A quotient is an image of its bin only if its own measurement lies between the bin's two thresholds.
    measured, room = quotients @ measure.double(), _ROUNDING * float(measure.double().abs().sum())
    above = torch.cat([offsets[1:], offsets.new_full((1,), -torch.inf)])[used]
    own = (measured + offsets[used] > -room) & (measured + above < room)
    own &= (quotients.amin(1) > -_ROUNDING) & (quotients.amax(1) < 1 + _ROUNDING)
    order = size[used].abs().argsort(descending=True, stable=True)
    order = order[(~own[order]).long().argsort(stable=True)]
    return quotients[order[torch.arange(k) % len(order)]].clamp(0, 1).float()
