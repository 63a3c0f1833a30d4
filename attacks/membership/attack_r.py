"""Attack that ranks the target model's logit among those of reference models (Attack R of Ye et al. 2022)."""

from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray
from ..shadow_bank import ModelLogits, ShadowBank
from .shadow_attack import ShadowAttack


@dataclass(frozen=True, kw_only=True)
class AttackR(ShadowAttack):
    """An attack whose score is the share of reference models, trained without the candidate, that give it a lower logit
    than the target model; ties count half.

    It is one minus the p-value of a test without a distributional assumption, so it has no more values than references.
    """

    def scores(self, references: ShadowBank, target: ModelLogits) -> FloatArray:
        references.check(outs=1)
        out = ~references.included
        below = (out & (references.logits < target.candidates)).sum(0)
        tied = (out & (references.logits == target.candidates)).sum(0)
        return np.asarray((below + 0.5 * tied) / out.sum(0), dtype=np.float64)
