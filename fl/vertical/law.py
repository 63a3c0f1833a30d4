"""The public description of the randomness in the messages of a vertical federation."""

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor


class Noised(StrEnum):
    """The message, or the number from which messages are computed, that receives a defense's randomness."""

    TARGETS = "targets"
    RESIDUALS = "residuals"
    GRADIENTS = "gradients"
    EMBEDDINGS = "embeddings"
    COLUMNS = "columns"


class Noise(StrEnum):
    """A distribution of additive noise, independent for each number."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"


@dataclass(frozen=True, kw_only=True, eq=False)
class VerticalLaw:
    """The distribution of what is released about one person in a vertical federation.

    Args:
        noised: what the randomness is added to.
        channel: (classes, classes), the probability that a label (row) is released as another (column); each row sums
            to 1. For embeddings (2, 2): that the sign of each number, minus or plus, is released as another. For
            columns: that a number's bucket is released as another. None for additive noise.
        noise: the kind of additive noise; None for a channel.
        scale: of the additive noise: the standard deviation of Gaussian, the scale of Laplace noise.
        clip: the norm (L2 for Gaussian, L1 for Laplace noise) to which the message is clipped before; None: it is not.
        releases: independent releases about one person over the whole training.

    Raises:
        ValueError: unless exactly one of channel and noise is given, or for a channel that is none, a scale <= 0, or no
            release.
    """

    noised: Noised
    releases: int
    channel: Tensor | None = None
    noise: Noise | None = None
    scale: float = 0.0
    clip: float | None = None

    def __post_init__(self) -> None:
        if (self.channel is None) == (self.noise is None):
            raise ValueError("a law has either a channel (of labels) or additive noise, got both or neither")
        if self.releases < 1:
            raise ValueError(f"releases must be >= 1, got {self.releases}")
        if self.noise is not None and not self.scale > 0:
            raise ValueError(f"scale of the noise must be > 0, got {self.scale}")
        if self.channel is not None:
            rows = self.channel.sum(1)
            if self.channel.ndim != 2 or (self.channel < 0).any() or not torch.allclose(rows, torch.ones_like(rows)):
                raise ValueError("channel must be a square table of probabilities, each row with sum 1")
