"""Control: DP-SGD that passes the noise's variance where the standard deviation is due.

The real bug: ``normal(0, var)`` for ``normal(0, var ** 0.5)``. The mean gradient's noise has a deviation below one as
soon as the lot is larger than the noise multiplier times the clip norm; its square is less still. (Above one the same
bug only adds noise.)
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ...fl.plan import Plan
from ...fl.protection import Context, State
from ..defense import Prepared, broken
from ..sample_level.dp_sgd import DPSGD, DPSGDProtection


@dataclass(frozen=True, kw_only=True)
class VarianceForDeviationProtection(DPSGDProtection):
    """Publishes the law of its correct twin; noise of deviation s^2 on the lot's mean, where the twin's is s."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        deviation = self.noise_multiplier * self.clip_norm / context.plan.expected_lot(client)
        squared = DPSGDProtection(clip_norm=self.clip_norm, noise_multiplier=self.noise_multiplier * deviation)
        return squared.local_step(gradients, present, client, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ControlVarianceForDeviation(DPSGD):
    """Signs the claim of DP-SGD and does not keep it: an audit must refute it."""

    control: ClassVar[bool] = True

    def prepare(self, plan: Plan) -> Prepared:
        return broken(super().prepare(plan), VarianceForDeviationProtection)
