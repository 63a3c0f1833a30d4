"""A small causal transformer that predicts the next token of a text (Vaswani et al. 2017; Radford et al. 2019)."""

import torch
from torch import Tensor, nn

from ...fields import check_count
from .transformer import LONGEST, Block


def text_transformer(
    shape: tuple[int, int, int], classes: int, *, width: int = 64, heads: int = 4, layers: int = 2
) -> nn.Module:
    """Build a transformer that gives, at each place of a text, the logits ``(n, length, classes)`` of the next token.

    Inputs are ``(n, 1, 1, length)`` whole numbers in [0, classes), the tokens, 4096 at most. Positions are learned,
    layer norm comes first in each block, the embedding is not tied to the output layer, and there is no dropout.
    ``width``: features of a place, a multiple of ``heads``.
    """
    for name, value in (("width", width), ("heads", heads), ("layers", layers)):
        check_count(name, value)
    if width % heads:
        raise ValueError(f"width must be a multiple of heads, got width {width} and heads {heads}")
    if shape[:2] != (1, 1) or shape[2] > LONGEST:
        raise ValueError(f"it needs texts, samples of shape (1, 1, length up to {LONGEST}), got shape {shape}")
    return _TextTransformer(shape[2], classes, width, heads, layers)


class _TextTransformer(nn.Module):
    def __init__(self, length: int, classes: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(classes, width)
        self.positions = nn.Parameter(torch.empty(length, width))
        # As in GPT-2; PyTorch's embeddings of variance 1 would drown the positions.
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions, std=0.02)
        self.blocks = nn.Sequential(*(Block(width, heads, causal=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, classes)

    def forward(self, texts: Tensor) -> Tensor:
        places = self.tokens(texts.flatten(1).long()) + self.positions[: texts.shape[-1]]
        logits: Tensor = self.output(self.norm(self.blocks(places)))
        return logits
