"""LiRA offline: a one-sided test against models without the candidate (Carlini et al. 2022, section V-C).

The paper's test asks for the chance that a model without the candidate knows it **less** well than the target. The
density of the target's logit there, which public code takes in its place, calls "member" also what the target knows
surprisingly badly.
"""

from dataclasses import dataclass

from ....audit.arrays import FloatArray
from ...shadow_bank import Outputs, ShadowBank
from .lira_online import deviation
from .shadow_attack import ShadowAttack


@dataclass(frozen=True, kw_only=True)
class LiRAOffline(ShadowAttack):
    """score = (logit - mean) / deviation, both over the references without the candidate: orders as the normal
    distribution function of it does, and is not rounded to 1.
    """

    def scores(self, references: ShadowBank, target: Outputs) -> FloatArray:
        references.check(outs=2)
        out = references.moments(included=False)
        return (target.candidates - out.mean) / deviation(out.variance)
