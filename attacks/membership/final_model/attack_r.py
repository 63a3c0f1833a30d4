"""Attack R: how many models without the candidate know it less well than the target (Ye et al. 2022, Attack R)."""

from dataclasses import dataclass

import numpy as np

from ....audit.arrays import FloatArray
from ...shadow_bank import Outputs, ShadowBank
from .shadow_attack import ShadowAttack


@dataclass(frozen=True, kw_only=True)
class AttackR(ShadowAttack):
    """score = share of the references without the candidate whose logit of it is below the target's, ties counting
    half: one minus the p-value of a test that assumes no distribution. It has no more values than references.
    """

    def scores(self, references: ShadowBank, target: Outputs) -> FloatArray:
        references.check(outs=1)
        out = ~references.included
        below = (out & (references.logits < target.candidates)).sum(0)
        tied = (out & (references.logits == target.candidates)).sum(0)
        return np.asarray((below + 0.5 * tied) / out.sum(0), dtype=np.float64)
