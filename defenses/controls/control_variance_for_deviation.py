"""This broken DP-SGD uses the variance of the noise where its standard deviation belongs.

The real bug: ``normal(0, var)`` for ``normal(0, var ** 0.5)``. The noise on the mean gradient has a standard deviation
below one as soon as the lot is larger than the noise multiplier times the clip norm, and then its square is smaller
still. (Above one the same bug only adds noise.)
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ...fl.protection import Context, Protection, State
from ..sample_level.dp_sgd import DPSGD, DPSGDProtection
from .control import Control


@dataclass(frozen=True, kw_only=True)
class VarianceForDeviationProtection(DPSGDProtection):
    """A broken protection that adds noise of standard deviation s^2 to the mean gradient; the correct version adds
    noise of standard deviation s.
    """

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        # The deviation on the mean as the correct version has it; multiplied in once more it becomes its square.
        deviation = self.noise_multiplier * self.clip_norm / context.plan.expected_lot(client)
        squared = DPSGDProtection(clip_norm=self.clip_norm, noise_multiplier=self.noise_multiplier * deviation)
        return squared.local_step(gradients, present, client, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ControlVarianceForDeviation(Control, DPSGD):
    """A deliberately broken defense (control) that states the claim of DP-SGD but violates it, so an audit must refute
    it.
    """

    broken: ClassVar[type[Protection]] = VarianceForDeviationProtection
