"""Attack that compares the target model's loss with that of reference models (Watson et al. 2022).

A candidate that is easy for every model need not be a member: each candidate's own difficulty is subtracted.
"""

from dataclasses import dataclass

from ...audit.arrays import FloatArray
from ..shadow_bank import ModelLogits, ShadowBank
from .shadow_attack import ShadowAttack


@dataclass(frozen=True, kw_only=True)
class CalibratedLoss(ShadowAttack):
    """An attack whose score is the candidate's logit under the target model minus its mean under reference models
    trained without it.

    In logits of the true class, not in losses: the losses of learnt samples are all close to zero.
    """

    def scores(self, references: ShadowBank, target: ModelLogits) -> FloatArray:
        references.check(outs=1)
        return target.candidates - references.moments(included=False).mean
