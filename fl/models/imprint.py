"""Imprint layer: the server's trap before a model, which sorts images into bins (Fowl et al. 2022, "Robbing the Fed").

Every row of one linear layer takes the same measurement of the image, each minus a threshold of its own, and a ReLU
follows. The layer behind weighs all rows alike, so that an image moves each row that it lights by the same gradient:
the difference of neighbouring rows' gradients is what the images between the two thresholds left.
"""

import math

import torch
from torch import Tensor, nn

BINS = 256
LAYER = "imprint"


class Imprint(nn.Module):
    """Images ``(n, c, h, w)`` -> the same, each brighter by the sum of its lit rows: the model behind still sees it."""

    def __init__(self, shape: tuple[int, int, int], bins: int) -> None:
        super().__init__()
        self.bins = nn.Linear(math.prod(shape), bins)
        self.merge = nn.Linear(bins, 1, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        lit: Tensor = self.merge(torch.relu(self.bins(images.flatten(1))))
        return images + lit.view(-1, 1, 1, 1)


def direction(pixels: int) -> Tensor:
    """The measurement: weights ``(pixels,)`` whose sizes sum to 1, in double precision.

    Cosines of the pixels' numbers. Mean brightness, as in the paper, is the same for many images where pixels are whole
    numbers: those no threshold parts.
    """
    weights = torch.arange(pixels, dtype=torch.float64).cos()
    return weights / weights.abs().sum()


def thresholds(public: Tensor, bins: int = BINS) -> tuple[float, ...]:
    """Ascending, such that each bin holds an equal share of ``public`` images ``(n, c, h, w)``; the last bin is open.

    The first lies below whatever an image in [0, 1] can measure.
    """
    measured = public.flatten(1).double() @ direction(public[0].numel())
    shares = torch.arange(bins, dtype=torch.float64) / bins
    lower: list[float] = torch.quantile(measured, shares)[1:].tolist()
    return (-1.0, *lower)


def planted(shape: tuple[int, int, int], limits: tuple[float, ...]) -> dict[str, Tensor]:
    """The trap's parameters by name. Both layers by the root of the number of bins: no row weighs more in training than
    another model's, and an image is brightened by the mean of the rows.
    """
    bins, pixels = len(limits), math.prod(shape)
    scale = bins**-0.5
    return {
        f"{LAYER}.bins.weight": (scale * direction(pixels)).float().expand(bins, pixels).clone(),
        f"{LAYER}.bins.bias": (-scale * torch.tensor(limits, dtype=torch.float64)).float(),
        f"{LAYER}.merge.weight": torch.full((1, bins), scale),
    }
