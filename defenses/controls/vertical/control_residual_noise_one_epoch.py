"""This broken noise on residuals is added in the first epoch only.

The real bug: the noise is attached to a loss that is built once, and later epochs use the plain one.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....fl.vertical.protection import VerticalContext, VerticalProtection
from ...vertical.labels.label_gradient_noise import LabelGradientNoise, ResidualNoiseProtection
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class OneEpochProtection(ResidualNoiseProtection):
    """A broken protection that leaves residuals as they are from the second epoch on."""

    def residuals(self, values: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        return values if context.epoch else super().residuals(values, context, rng)


@dataclass(frozen=True, kw_only=True)
class ControlResidualNoiseOneEpoch(VerticalControl, LabelGradientNoise):
    """A deliberately broken defense (control) that states the claims of noise on residuals, which an audit over several
    epochs must refute. In one epoch it is correct.
    """

    broken: ClassVar[type[VerticalProtection] | None] = OneEpochProtection
