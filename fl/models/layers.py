"""Layers of models that are no layers of PyTorch: normalisation, dropout, imprints and low-rank adapters.

An input is scaled by public constants: each channel minus its mean, divided by its standard deviation.

The masks of seeded dropout depend on the sample's seed, the layer and the place alone. They are therefore the same
whether samples are passed together, one by one or mapped by ``torch.func.vmap``, and a training step can be repeated.

A malicious server puts an imprint layer before a model to separate the images of a batch (Fowl et al. 2022). Every row
of one linear layer takes the same measurement of the image, minus a threshold of its own, followed by a ReLU. The next
layer weighs all rows equally, so that an image adds the same gradient to each row whose threshold it passes. The
difference of neighbouring rows' gradients comes from the images between the two thresholds.

Low-rank adapters are a linear layer whose own weights are frozen plus a trained product of two matrices (LoRA, Hu et
al. 2021).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...audit.wording import nearest
from ..fields import check_count, check_positive
from ..streams import uniform


@dataclass(frozen=True, kw_only=True)
class Normalisation:
    """Public constants that a model subtracts from its input and divides it by, one pair per channel or one for all.

    The images themselves stay in [0, 1]: normalisation is the first operation of the model, so that attacks reconstruct
    images and not normalised ones. The constants must not be computed from private data, because no defense protects
    them. For MNIST the usual values are mean .1307 and standard deviation .3081.

    Args:
        mean: means, one per channel or a single one; finite.
        std: standard deviations, as many as means; > 0 and finite.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.mean or len(self.mean) != len(self.std):
            raise ValueError(
                f"normalise needs as many values of mean as of std, at least one, "
                f"got {len(self.mean)} and {len(self.std)}"
            )
        if not all(math.isfinite(value) for value in self.mean):
            raise ValueError(f"normalise needs finite values of mean, got {list(self.mean)}")
        if not all(0 < value < math.inf for value in self.std):
            raise ValueError(f"normalise needs values of std > 0 and finite, got {list(self.std)}")

    def check_channels(self, channels: int) -> None:
        """Raise ValueError unless there is one value for all channels or one for each of the ``channels``."""
        if len(self.mean) not in (1, channels):
            raise ValueError(
                f"normalise needs one mean and std, or one for each of the {channels} channels, got {len(self.mean)}"
            )

    def apply(self, images: Tensor) -> Tensor:
        """Return normalised images; ``images (..., c, h, w)``."""
        mean, std = (images.new_tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (images - mean) / std


class Normalise(nn.Module):
    """A layer without parameters that normalises its input; see ``Normalisation``."""

    def __init__(self, constants: Normalisation) -> None:
        super().__init__()
        self.constants = constants

    def forward(self, images: Tensor) -> Tensor:
        # Not on the meta device, on which models are built: the constants are plain numbers.
        return self.constants.apply(images)


def normalisation_from(spec: Mapping[str, Any]) -> Normalisation:
    """Build the normalisation that a suite file specifies, such as ``{ mean = 0.1307, std = 0.3081 }`` or lists.

    Raises:
        ValueError: for another form, or numbers that ``Normalisation`` refuses.
    """
    if not isinstance(spec, Mapping) or set(spec) != {"mean", "std"}:
        raise ValueError(f"normalise must be {{ mean = NUMBERS, std = NUMBERS }}, got {spec!r}")
    mean, std = (_numbers(name, spec[name]) for name in ("mean", "std"))
    return Normalisation(mean=mean, std=std)


def _numbers(name: str, given: object) -> tuple[float, ...]:
    values = given if isinstance(given, list | tuple) else (given,)
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        raise ValueError(f"{name} of normalise must be a number or a list of numbers, got {given!r}")
    return tuple(float(value) for value in values)


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
    """Replace each of PyTorch's dropout layers in ``model``; return a model that takes seeds, or ``model`` itself if it
    has no such layer.
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


class Dropout(nn.Module):
    """A dropout layer that multiplies features by given random factors instead of drawing them.

    ``features (n, features)`` are multiplied by ``factors``, one row each or one for all; without factors they are
    unchanged.
    """

    def __init__(self, features: int, rate: float = 0.5) -> None:
        super().__init__()
        self.features, self.rate = features, rate

    def forward(self, features: Tensor, factors: Tensor | None = None) -> Tensor:
        return features if factors is None else features * factors

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
        """Draw dropout factors: 0 with probability ``rate``, else 1 / (1 - rate), which keeps the mean.

        The result has shape ``(*shape, features)``.
        """
        kept = uniform(rng, (*shape, self.features)) >= self.rate
        return kept / (1 - self.rate)


class LayerChain(nn.Sequential):
    """A sequence of layers; it passes the given dropout factors, or seeds, to the layer that takes them.

    ``dropout``: the factors, None at evaluation.
    """

    def forward(self, images: Tensor, dropout: Tensor | None = None) -> Tensor:
        features = images
        for layer in self:
            features = layer(features, dropout) if isinstance(layer, Dropout | SeededModel) else layer(features)
        return features


def dropout_of(model: nn.Module) -> Dropout | SeededModel | None:
    """Return the model's dropout layer, or the part of the model whose dropout layers take seeds; None if it has
    neither.
    """
    return next((layer for layer in model.modules() if isinstance(layer, Dropout | SeededModel)), None)


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


class LowRank(nn.Module):
    """A frozen linear layer with an adapter: ``base(x) + alpha / rank * up(down(x))``.

    ``down`` holds A ``(rank, inputs)``, drawn as PyTorch draws linear layers, and ``up`` B ``(outputs, rank)``, which
    starts at zero, so that the adapted layer starts as the frozen one. Inputs are ``(..., inputs)``.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        check_count("rank", rank)
        if rank > min(base.in_features, base.out_features):
            raise ValueError(
                f"rank must be at most {min(base.in_features, base.out_features)}, the rank of the adapted layer, "
                f"got {rank}"
            )
        check_positive("alpha", alpha)
        self.base, self.scale = base, alpha / rank
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.base(inputs) + self.scale * self.up(self.down(inputs))
        return outputs


def adapt(module: nn.Module, layers: Iterable[str], *, rank: int, alpha: float) -> None:
    """Freeze all parameters of ``module`` and add an adapter to each of its linear ``layers``, which are named as
    paths; this changes ``module`` in place.

    Raises ValueError, and leaves the module as it is, for a single string in place of paths, no path, a path that is no
    linear layer below the module or is named twice, a ``rank`` above a layer's, or an ``alpha`` that is not above 0.
    """
    paths = layers if isinstance(layers, str) else [*layers]
    if isinstance(paths, str) or not paths or len({*paths}) < len(paths):
        raise ValueError(f"layers must be a list of at least one path, and none twice, got {paths!r}")
    adapters = {path: LowRank(_linear(module, path), rank, alpha) for path in paths}
    module.requires_grad_(False)
    for path, adapter in adapters.items():
        parent, _, name = path.rpartition(".")
        setattr(module.get_submodule(parent), name, adapter)


def _linear(module: nn.Module, path: str) -> nn.Linear:
    below = dict(module.named_modules(remove_duplicate=False))
    found = below.get(path)
    # The module itself has no parent in which an adapter could replace it.
    if found is module or not isinstance(found, nn.Linear):
        linear = [name for name, layer in below.items() if name and isinstance(layer, nn.Linear)]
        got = "no layer" if found is None else "the module itself" if found is module else type(found).__name__
        raise ValueError(f"layer {path!r} must be linear to be adapted, got {got}; known: {nearest(str(path), linear)}")
    return found
