"""Each client sends only the largest numbers of its update, without DP (Zhu et al. 2019, section 5.3)."""

from dataclasses import dataclass

import numpy as np

from ...fl.laws import prune
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ..defense import Defense, Prepared, Share


@dataclass(frozen=True, kw_only=True)
class GradientPruningProtection(Protection):
    """A protection that sets a fraction of an update's numbers, the smallest in absolute value, to zero."""

    pruned: float
    sums = "mean"

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return updates.with_values(prune(updates.values, self.pruned))


@dataclass(frozen=True, kw_only=True)
class GradientPruning(Defense):
    """A defense that prunes updates but adds no noise to the numbers that are sent. The defense states no privacy
    claim, because epsilon is infinite.

    Args:
        pruned: share of the numbers that are not sent, in (0, 1); the paper finds inversion hindered from .2 on.
    """

    pruned: Share = 0.9

    def prepare(self, plan: Plan) -> Prepared:
        return Prepared(protection=GradientPruningProtection(pruned=self.pruned), claims=())
