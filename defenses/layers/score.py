"""PSI score: how strongly the gradient of each layer answers to the sensitive pixels (Xiao et al. 2025, eq. 3 to 5)."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.func import grad, jacfwd, vmap
from torch.nn.functional import pad

from ...fl.fields import check_count
from ...fl.layered_law import layer_slices, layer_starts
from ...fl.network import Network
from ...fl.task import Samples

_NUMBERS = 2**24
"""Of Jacobians held at once, at most."""


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """Which images and pixels are asked.

    Args:
        count: images over which a score is averaged, the first ones (the paper samples ten of a format).
        region: the sensitive pixels as (top, left, height, width); () for the whole image.
    """

    count: int
    region: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_count("images", self.count)
        if self.region != () and not _is_region(self.region):
            raise ValueError(
                f"region must list four whole numbers, (top, left, height, width) of at least one pixel, "
                f"got {self.region!r}"
            )

    def scores(self, samples: Samples) -> Tensor:
        """``(R, layers)``, >= 0, higher means more sensitive: over the images and the region's pixels the mean norm of
        the derivative, by that pixel, of the layer's gradient (Frobenius, over its parameters and the channels).

        Raises:
            ValueError: if the region does not lie inside the image.
        """
        network, region = samples.network, self._inside(samples.network)
        images, labels = samples.images[: self.count], samples.labels[: self.count]
        replicas, count = len(samples.models), len(images)
        measure = partial(_pixel_norms, network, region)
        numbers = network.layout.dim * network.shape[0] * region[2] * region[3]
        norms = vmap(measure, chunk_size=max(1, _NUMBERS // numbers))(
            samples.models.repeat_interleave(count, dim=0),
            images.repeat(replicas, 1, 1, 1),
            labels.repeat(replicas),
        )
        mean: Tensor = norms.view(replicas, count, *norms.shape[1:]).mean((1, 3, 4))
        return mean

    def _inside(self, network: Network) -> tuple[int, int, int, int]:
        _, height, width = network.shape
        if not self.region:
            return 0, 0, height, width
        top, left, rows, columns = self.region
        if top + rows > height or left + columns > width:
            raise ValueError(f"region must lie inside images of {height} x {width} pixels, got {self.region}")
        return top, left, rows, columns


def _is_region(region: object) -> bool:
    if not isinstance(region, tuple) or len(region) != 4:
        return False
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in region)
    return whole and min(region[:2]) >= 0 and min(region[2:]) >= 1


def _pixel_norms(
    network: Network, region: tuple[int, int, int, int], params: Tensor, image: Tensor, label: Tensor
) -> Tensor:
    """``(layers, rows, columns)``: equation 4 for every layer at once; only the region's pixels are differentiated."""
    (top, left, rows, columns), (channels, height, width) = region, network.shape
    around = (left, width - left - columns, top, height - top - rows)

    def loss(point: Tensor, patch: Tensor) -> Tensor:
        return network.losses(point, (image + pad(patch, around)).unsqueeze(0), label.unsqueeze(0))[0]

    jacobian = jacfwd(grad(loss), argnums=1)(params, image.new_zeros(channels, rows, columns))
    layers = layer_slices(layer_starts(network.layout))
    return torch.stack([jacobian[layer].square().sum((0, 1)).sqrt() for layer in layers])
