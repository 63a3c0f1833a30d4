"""Measure how strongly each layer's gradient depends on sensitive pixels (PSI score: Xiao et al. 2025, eq. 3 to 5)."""

from dataclasses import dataclass
from functools import partial
from math import prod

import torch
from torch import Tensor
from torch.func import grad, jacfwd, vmap

from ...fl.fields import check_count
from ...fl.laws import layer_slices, layer_starts
from ...fl.models.network import Network
from ...fl.task import Samples

# Upper bound on the numbers held at once in Jacobians and in what they are computed from.
_NUMBERS = 2**24
_HELD_PER_PIXEL = 64
# 1 / g and 1 / g^2 of the plastic number g: the fractional parts of their multiples fill the square evenly.
_ROBERTS = (0.7548776662466927, 0.5698402909980532)


@dataclass(frozen=True, kw_only=True)
class LayerScorer:
    """A function object that computes how sensitive each layer's gradient is to chosen pixels of chosen images.

    Args:
        count: number of images over which a score is averaged, the first ones (the paper samples ten of a format).
        region: the sensitive pixels as (top, left, height, width); () for the whole image.
        pixels: how many of the region's pixels are used, spread evenly; None: all. Each costs a forward-mode derivative
            of the gradient, three times a training step. The score is a mean over pixels, so a few of them estimate it
            well.
    """

    count: int
    region: tuple[int, ...] = ()
    pixels: int | None = None

    def __post_init__(self) -> None:
        check_count("images", self.count)
        if self.pixels is not None:
            check_count("pixels", self.pixels)
        if self.region != () and not is_region(self.region):
            raise ValueError(
                f"region must list four whole numbers, (top, left, height, width) of at least one pixel, "
                f"got {self.region!r}"
            )

    def scores(self, samples: Samples) -> Tensor:
        """Compute one score >= 0 per layer, array of shape ``(R, layers)`` for R models; higher means more sensitive.

        The mean over images and pixels of the norm of the derivative, by that pixel, of the layer's gradient
        (Frobenius, over its parameters and the channels).

        Raises:
            ValueError: if the region does not lie inside the image.
        """
        network, places = samples.network, self.places(samples.network)
        images, labels = samples.images[: self.count], samples.labels[: self.count]
        replicas, count = len(samples.models), len(images)
        measure = partial(_pixel_norms, network, places)
        # The memory of a backward pass is estimated as a fixed number of activations per pixel.
        held = len(places) * network.shape[0] * (network.layout.dim + _HELD_PER_PIXEL * prod(network.shape[1:]))
        # Chunks bound the memory of the Jacobians, which grows with pixels times parameters.
        norms = vmap(measure, chunk_size=max(1, _NUMBERS // held))(
            samples.models.repeat_interleave(count, dim=0),
            images.repeat(replicas, 1, 1, 1),
            labels.repeat(replicas, *[1] * (labels.ndim - 1)),
        )
        mean: Tensor = norms.view(replicas, count, *norms.shape[1:]).mean((1, 3))
        return mean

    def places(self, network: Network) -> Tensor:
        """Return the positions of the sensitive pixels, array of shape ``(m,)``, counted line by line through the
        image.

        Raises:
            ValueError: if the region does not lie inside the image.
        """
        _, height, width = network.shape
        top, left, rows, columns = self.region or (0, 0, height, width)
        if top + rows > height or left + columns > width:
            raise ValueError(f"region must lie inside images of {height} x {width} pixels, got {self.region}")
        if self.pixels is None or self.pixels >= rows * columns:
            down, across = torch.arange(rows).repeat_interleave(columns), torch.arange(columns).repeat(rows)
        else:
            # Roberts's sequence in the plane: a lattice would use the same columns in each row.
            steps = 0.5 + torch.outer(
                torch.arange(self.pixels, dtype=torch.float64), torch.tensor(_ROBERTS, dtype=torch.float64)
            )
            down, across = (steps % 1 * torch.tensor([rows, columns])).long().unbind(1)
        return (top + down) * width + left + across


def is_region(region: object) -> bool:
    """Return whether the value describes a rectangle of at least one pixel by four whole numbers (top, left, height,
    width).
    """
    if not isinstance(region, tuple) or len(region) != 4:
        return False
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in region)
    return whole and min(region[:2]) >= 0 and min(region[2:]) >= 1


def _pixel_norms(network: Network, places: Tensor, params: Tensor, image: Tensor, label: Tensor) -> Tensor:
    """``(layers, m)``: equation 4 for every layer at once; only the pixels at ``places (m,)`` are differentiated."""

    def loss(point: Tensor, moves: Tensor) -> Tensor:
        # Moves of the chosen pixels only: forward mode costs one pass per pixel.
        moved = image.flatten(1).index_add(1, places, moves).view_as(image)
        return network.losses(point, moved.unsqueeze(0), label.unsqueeze(0))[0]

    jacobian = jacfwd(grad(loss), argnums=1)(params, image.new_zeros(len(image), len(places)))
    layers = layer_slices(layer_starts(network.layout))
    return torch.stack([jacobian[layer].square().sum((0, 1)).sqrt() for layer in layers])
