"""This broken noise on residuals is left out in a batch that is smaller than the others.

The real bug: noise of a fixed shape is drawn ahead, and the branch for a last batch of another shape forgets it.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....fl.vertical.protection import VerticalContext, VerticalProtection
from ...vertical.labels.label_gradient_noise import LabelGradientNoise, ResidualNoiseProtection
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class FullBatchesProtection(ResidualNoiseProtection):
    """A broken protection that leaves the residuals of a smaller batch as they are."""

    def residuals(self, values: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        full = values.shape[1] == context.plan.batch
        return super().residuals(values, context, rng) if full else values


@dataclass(frozen=True, kw_only=True)
class ControlResidualNoiseFullBatches(VerticalControl, LabelGradientNoise):
    """A deliberately broken defense (control) that states the claims of noise on residuals, which an audit with a
    person in a smaller batch must refute. Where all batches are equal it is correct.
    """

    broken: ClassVar[type[VerticalProtection] | None] = FullBatchesProtection
