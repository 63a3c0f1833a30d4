"""Attack that compares a candidate's logit with those of models without it (offline LiRA, Carlini et al. 2022, V-C).

The paper's test uses the probability that a model without the candidate gives it a **lower** logit than the target.
Public code uses the density of the target's logit instead, which also calls candidates with surprisingly low logits
members.
"""

from dataclasses import dataclass

from ...audit.arrays import FloatArray
from ..shadow_bank import ModelLogits, ShadowBank
from .lira_online import deviation
from .shadow_attack import ShadowAttack


@dataclass(frozen=True, kw_only=True)
class LiRAOffline(ShadowAttack):
    """An attack whose score is the candidate's logit, standardised by reference models trained without it: (logit -
    mean) / deviation.

    It orders candidates like the normal distribution function of it, without rounding to 1.
    """

    def scores(self, references: ShadowBank, target: ModelLogits) -> FloatArray:
        references.check(outs=2)
        out = references.moments(included=False)
        return (target.candidates - out.mean) / deviation(out.variance)
