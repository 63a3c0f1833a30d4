"""Each client sends only the signs of its update, without DP (signSGD: Bernstein et al. 2018)."""

from dataclasses import dataclass

import numpy as np

from ...fl.fields import Positive
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ..defense import Defense, Prepared


@dataclass(frozen=True, kw_only=True)
class SignProtection(Protection):
    """A protection in which a client sends ``step`` times the sign of each number of its update; zeros stay zero."""

    step: float
    sums = "mean"

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return updates.with_values(self.step * updates.values.sign())


@dataclass(frozen=True, kw_only=True)
class Sign(Defense):
    """A defense that sends one bit per number to save bandwidth. The defense states no privacy claim, because the bits
    are a deterministic function of the data.

    Args:
        step: by which each number of the model moves where all clients agree.
    """

    step: Positive = 0.001

    def prepare(self, plan: Plan) -> Prepared:
        return Prepared(protection=SignProtection(step=self.step), claims=())
