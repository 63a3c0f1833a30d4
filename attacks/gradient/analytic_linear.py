"""Attack that computes images in closed form from a first linear layer's gradients (Phong et al. 2017, section 3).

For one sample each row of dL/dW is the image times that row's dL/db, so their quotient is the image, exactly. For
several samples a row holds the sum over those on which its unit is active; it gives the image itself where the unit is
active on one sample only (as with ReLU).
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...fl.layout import Layout
from ...fl.models.layers import Normalisation
from ...fl.objective import TASKS
from ..attack import Knowledge, Undefined
from ..uploads import Uploads
from .image_attack import ImageAttack, ImageLots, lot_labels

# Quotients of two rows at most so far apart in each pixel come from one image: single precision keeps them to 1e-6.
_ALIKE = 1e-4
# Quotients farther apart than this come from two images.
_OTHER = 1e-2


@dataclass(frozen=True, kw_only=True)
class AnalyticLinear(ImageAttack):
    """An attack that computes the images behind one round's uploads in closed form, for models that start with a linear
    layer.

    Exact on an undefended upload of one sample. For k samples it returns the quotients in [0, 1] on which most units
    agree (a mixture of samples has different proportions at each unit), then any others. It assumes one local step:
    after several steps it finds a blend, because the weights change in between.
    """

    tasks: ClassVar[tuple[str, ...]] = TASKS

    def lots(self, uploads: Uploads, k: int, knowledge: Knowledge, rng: np.random.Generator) -> ImageLots:
        """Return the images read from each upload, and its labels. Raises Undefined if the model's first layer is not
        fully connected with a bias.
        """
        network = knowledge.network
        weights, biases = _first_layer(uploads.gradients, network.layout, network.shape)
        if network.normalisation is not None:
            weights = _of_pixels(weights, biases, network.normalisation, network.shape)
        labels = lot_labels(uploads.gradients, uploads.model, network, k, knowledge.public_images)
        images = torch.stack([lone_images(*row, k) for row in zip(weights, biases, strict=True)])
        return ImageLots(images=images.view(len(images), k, *network.shape), labels=labels)


def lone_images(weights: Tensor, biases: Tensor, k: int) -> Tensor:
    """Recover k images, shape ``(k, pixels)`` in [0, 1], from the first layer's gradients ``weights (units, pixels)``
    and ``biases (units,)``.

    For one image all rows are used, by least squares: sum of dW db over sum of db^2.
    """
    weights, biases = weights.double(), biases.double()
    if k == 1:
        return _pixels((biases @ weights / biases.square().sum().clamp_min(1e-300)).unsqueeze(0))
    # The strongest rows first: rounding affects their quotients least. A unit that no sample activates has none.
    order = biases.abs().argsort(descending=True, stable=True)
    order = order[biases[order] != 0]
    quotients = weights[order] / biases[order].unsqueeze(1)
    chosen: list[int] = []
    for rank in _ranks(quotients) if len(quotients) else []:
        if all(float((quotients[rank] - quotients[one]).abs().max()) > _OTHER for one in chosen):
            chosen.append(rank)
        if len(chosen) == k:
            break
    # With fewer active units than samples, the last image is repeated.
    filled = [*chosen, *[chosen[-1] if chosen else 0] * (k - len(chosen))]
    return _pixels(quotients[filled] if len(quotients) else weights.new_zeros(k, weights.shape[1]))


def _ranks(quotients: Tensor) -> list[int]:
    """Rows by reliability: those in [0, 1] by how many rows agree with them, then the others; ties by strength."""
    inside = (quotients.amin(1) > -_ALIKE) & (quotients.amax(1) < 1 + _ALIKE)
    agreeing = torch.stack([((quotients - row).abs().amax(1) < _ALIKE).sum() for row in quotients]) * inside
    ranked: list[int] = agreeing.argsort(descending=True, stable=True).tolist()
    return ranked


def _first_layer(gradients: Tensor, layout: Layout, shape: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """Gradients ``(n, units, pixels)`` and ``(n, units)`` of the first layer, which reads the pixels."""
    layers = list(layout.unflatten(gradients).items())
    pixels = shape[0] * shape[1] * shape[2]
    (name, weights), (_, biases) = layers[0], layers[min(1, len(layers) - 1)]
    if weights.ndim != 3 or weights.shape[2] != pixels or biases.ndim != 2:
        raise Undefined(
            f"the first layer must be fully connected with a bias, got {name} of shape {tuple(weights.shape[1:])}"
        )
    return weights, biases


def _of_pixels(weights: Tensor, biases: Tensor, constants: Normalisation, shape: tuple[int, int, int]) -> Tensor:
    """The gradients ``(n, units, pixels)`` of a layer that would read pixels instead of normalised inputs."""
    # A row is the sum of (unit's gradient) times input; with input = (pixel - mean) / std it is linear in the pixels.
    columns = (
        weights.new_tensor(values).view(-1, 1, 1).expand(shape).flatten() for values in (constants.mean, constants.std)
    )
    mean, std = columns
    return weights * std + biases.unsqueeze(-1) * mean


def _pixels(images: Tensor) -> Tensor:
    """Clamped to [0, 1], in single precision."""
    return images.clamp(0, 1).float()
