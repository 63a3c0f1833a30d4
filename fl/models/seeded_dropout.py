"""Dropout layers whose masks follow from a seed per sample, for models of one's own that contain PyTorch's dropout.

A mask depends on the sample's seed, the layer and the place alone. It is therefore the same whether samples are passed
together, one by one or mapped by ``torch.func.vmap``, and a training step can be repeated.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

_CHANNELWISE = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


class SeededDropout(nn.Module):
    """A dropout layer whose mask is computed from the seeds of the samples; without seeds it changes nothing.

    Args:
        rate: probability that a feature is dropped, in [0, 1).
        number: the layer's number in the model; layers of different numbers have independent masks.
        channelwise: whether all places of a channel share one draw.
    """

    def __init__(self, rate: float, number: int, *, channelwise: bool = False) -> None:
        super().__init__()
        self.rate, self.number, self.channelwise = rate, number, channelwise
        self._seeds: Tensor | None = None
        self._calls = 0

    def begin(self, seeds: Tensor | None) -> None:
        """Set the seeds ``(n, 1)`` for the next pass of the model; None: nothing is dropped."""
        self._seeds, self._calls = seeds, 0

    def forward(self, features: Tensor) -> Tensor:
        if self._seeds is None or not self.rate:
            return features
        if len(features) != len(self._seeds):
            raise ValueError(
                "the first dimension of a dropout layer's input must be that of the batch, "
                f"got input {tuple(features.shape)} for {len(self._seeds)} samples"
            )
        # A layer that is used twice draws twice.
        stream, self._calls = torch.tensor(self.number + 1000 * self._calls), self._calls + 1
        drawn = features.shape[1:2] if self.channelwise else features.shape[1:]
        kept = _uniform(_mixed(self._seeds + stream * _ODD), math.prod(drawn)) >= self.rate
        shape = (len(features), *drawn, *[1] * (features.ndim - 1 - len(drawn)))
        return features * kept.view(shape) / (1 - self.rate)


class SeededModel(nn.Module):
    """A model whose dropout layers get the seeds of the samples as an argument; ``model`` is the module itself."""

    def __init__(self, model: nn.Module, layers: Sequence[SeededDropout]) -> None:
        super().__init__()
        self.model = model
        self._layers = tuple(layers)

    @property
    def rate(self) -> float:
        """The largest share of features that a layer drops."""
        return max(layer.rate for layer in self._layers)

    def forward(self, images: Tensor, dropout: Tensor | None = None) -> Tensor:
        for layer in self._layers:
            layer.begin(dropout)
        try:
            logits: Tensor = self.model(images)
            return logits
        finally:
            for layer in self._layers:
                layer.begin(None)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
        """Draw one seed per sample; the result has shape ``(*shape, 1)``."""
        return torch.from_numpy(rng.integers(2**63, size=(*shape, 1)))


def with_seeded_dropout(model: nn.Module) -> nn.Module:
    """Replace each of PyTorch's dropout layers in ``model``; return a model that takes seeds, or the same if it has
    none.
    """
    layers = list[SeededDropout]()
    for parent in list(model.modules()):
        for name, layer in parent.named_children():
            if isinstance(layer, (nn.Dropout, *_CHANNELWISE)):
                seeded = SeededDropout(float(layer.p), len(layers), channelwise=isinstance(layer, _CHANNELWISE))
                setattr(parent, name, seeded)
                layers.append(seeded)
    return SeededModel(model, layers) if any(layer.rate for layer in layers) else model


# SplitMix64 (Steele, Lea and Flood 2014) in 64-bit integers that wrap around; the constants are its own, as signed.
_ODD = 0x9E3779B97F4A7C15 - 2**64
_FIRST, _SECOND = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


def _uniform(seeds: Tensor, count: int) -> Tensor:
    """Numbers in [0, 1) from seeds ``(n, 1)``, ``(n, count)``."""
    # Of the 64 bits the upper 53 fit into a double.
    bits = _shifted(_mixed(seeds + torch.arange(1, count + 1) * _ODD), 11)
    return bits.double() * 2.0**-53


def _mixed(values: Tensor) -> Tensor:
    values = (values ^ _shifted(values, 30)) * _FIRST
    values = (values ^ _shifted(values, 27)) * _SECOND
    return values ^ _shifted(values, 31)


def _shifted(values: Tensor, bits: int) -> Tensor:
    """Shift to the right with zeros from the left, which torch does for no signed number."""
    return (values >> bits) & ((1 << (64 - bits)) - 1)
