"""A small transformer on the patches of an image (Vaswani et al. 2017; Dosovitskiy et al. 2021)."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from ...fields import check_count

LONGEST = 4096
"""Patches or tokens of a sample, at most: attention takes the square of them."""


def transformer(
    shape: tuple[int, int, int], classes: int, *, width: int = 64, heads: int = 4, layers: int = 2, patch: int = 4
) -> nn.Module:
    """Build a transformer of two layers that reads an image as a sequence of patches of ``patch`` pixels per side.

    Images are padded with zeros on the right and below to whole patches; a table of one row has patches of one row.
    Layer norm comes first in each block, the logits are computed from the mean over patches, and there is no dropout.
    ``width``: features of a patch, a multiple of ``heads``. Raises ValueError for more than 4096 patches.
    """
    for name, value in (("width", width), ("heads", heads), ("layers", layers), ("patch", patch)):
        check_count(name, value)
    if width % heads:
        raise ValueError(f"width must be a multiple of heads, got width {width} and heads {heads}")
    return _Transformer(shape, classes, width, heads, layers, patch)


class _Transformer(nn.Module):
    def __init__(
        self, shape: tuple[int, int, int], classes: int, width: int, heads: int, layers: int, patch: int
    ) -> None:
        super().__init__()
        channels, height, length = shape
        size = (min(patch, height), min(patch, length))
        down, right = (math.ceil(side / part) for side, part in zip((height, length), size, strict=True))
        if down * right > LONGEST:
            raise ValueError(f"a sample must have at most {LONGEST} patches, got {down * right}: set a larger patch")
        self._padding = (0, right * size[1] - length, 0, down * size[0] - height)
        self.patches = nn.Conv2d(channels, width, size, stride=size)
        self.positions = nn.Parameter(torch.empty(down * right, width))
        nn.init.normal_(self.positions, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(pad(images, self._padding)).flatten(2).transpose(1, 2) + self.positions
        logits: Tensor = self.output(self.norm(self.blocks(tokens)).mean(1))
        return logits


class Block(nn.Module):
    """Attention and two linear layers, each behind a layer norm and with a shortcut.

    Inputs and outputs are ``(n, tokens, width)``. ``causal``: whether a token attends to itself and earlier ones only.
    """

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.hidden, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.merge(self._mixed(self.attention(self.norm1(tokens))))
        after: Tensor = tokens + self.back(gelu(self.hidden(self.norm2(tokens))))
        return after

    def _mixed(self, both: Tensor) -> Tensor:
        """Attention by matrix products, which gradient inversion differentiates twice; ``(n, tokens, 3 * width)``."""
        n, count, _ = both.shape
        query, key, value = both.view(n, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(2, 3) / math.sqrt(query.shape[-1])
        if self.causal:
            later = torch.ones(count, count, dtype=torch.bool, device=both.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        mixed: Tensor = (scores.softmax(-1) @ value).transpose(1, 2).reshape(n, count, -1)
        return mixed
