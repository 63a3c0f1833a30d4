"""A layer that a malicious server puts before a model to separate the images of a batch (Fowl et al. 2022).

Every row of one linear layer takes the same measurement of the image, minus a threshold of its own, followed by a ReLU.
The next layer weighs all rows equally, so that an image adds the same gradient to each row whose threshold it passes.
The difference of neighbouring rows' gradients comes from the images between the two thresholds.
"""

import math

import torch
from torch import Tensor, nn

BINS = 256
LAYER = "imprint"


class ImprintLayer(nn.Module):
    """A layer that a malicious server adds before a model, so that gradients reveal single images.

    Images ``(n, c, h, w)`` keep their shape; each is brightened by the sum of its active rows.
    """

    def __init__(self, shape: tuple[int, int, int], bins: int) -> None:
        super().__init__()
        self.bins = nn.Linear(math.prod(shape), bins)
        self.merge = nn.Linear(bins, 1, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        lit: Tensor = self.merge(torch.relu(self.bins(images.flatten(1))))
        return images + lit.view(-1, 1, 1, 1)


def direction(pixels: int) -> Tensor:
    """Return the pixel weights of the linear measurement by which the imprint layer sorts images.

    They have shape ``(pixels,)``, absolute values that sum to 1, and double precision.
    """
    # Not the mean brightness of the paper: with integer pixels many images share it, and no threshold separates them.
    weights = torch.arange(pixels, dtype=torch.float64).cos()
    return weights / weights.abs().sum()


def thresholds(public: Tensor, bins: int = BINS) -> tuple[float, ...]:
    """Return ascending thresholds that split a linear measurement of the public images into bins of equal counts.

    ``public``: images ``(n, c, h, w)``; the last bin is open.
    """
    measured = public.flatten(1).double() @ direction(public[0].numel())
    shares = torch.arange(bins, dtype=torch.float64) / bins
    lower: list[float] = torch.quantile(measured, shares)[1:].tolist()
    # Below any measurement of an image in [0, 1].
    return (-1.0, *lower)


def planted(shape: tuple[int, int, int], limits: tuple[float, ...]) -> dict[str, Tensor]:
    """Return the imprint layer's parameters by name, as the malicious server sets them."""
    # Both layers are scaled by the root of the number of bins: rows weigh no more in training than those of another
    # model, and an image is brightened by the mean of the rows.
    bins, pixels = len(limits), math.prod(shape)
    scale = bins**-0.5
    return {
        f"{LAYER}.bins.weight": (scale * direction(pixels)).float().expand(bins, pixels).clone(),
        f"{LAYER}.bins.bias": (-scale * torch.tensor(limits, dtype=torch.float64)).float(),
        f"{LAYER}.merge.weight": torch.full((1, bins), scale),
    }
