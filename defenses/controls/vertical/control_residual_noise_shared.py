"""This broken noise on residuals is drawn once per batch, and added to the residuals of all its people.

The real bug: noise of the shape of one row is broadcast over the batch.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....fl.vertical.protection import VerticalContext, VerticalProtection
from ...vertical.labels.label_gradient_noise import LabelGradientNoise, ResidualNoiseProtection
from ...vertical.noise import drawn
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class SharedResidualNoiseProtection(ResidualNoiseProtection):
    """A broken protection whose noise is equal for all people of a batch."""

    def residuals(self, values: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        return values + drawn(self.noise, self.scale, (len(values), 1, values.shape[2]), rng)


@dataclass(frozen=True, kw_only=True)
class ControlResidualNoiseShared(VerticalControl, LabelGradientNoise):
    """A deliberately broken defense (control) that states the claims of noise on residuals, which an audit must refute:
    the difference of two people's residuals has no noise.
    """

    broken: ClassVar[type[VerticalProtection] | None] = SharedResidualNoiseProtection
