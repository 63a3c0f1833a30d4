"""Scales a model's input: each channel minus its mean, divided by its standard deviation, both public constants."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


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
