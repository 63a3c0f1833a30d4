"""Calibrated loss: how much better the target knows a candidate than models that never saw it (Watson et al. 2022).

What is easy for every model is no sign of membership: each candidate's own difficulty is taken off.
"""

from dataclasses import dataclass

from ....audit.arrays import FloatArray
from ...shadow_bank import Outputs, ShadowBank
from .shadow_attack import ShadowAttack


@dataclass(frozen=True, kw_only=True)
class CalibratedLoss(ShadowAttack):
    """score = logit at the target minus its mean over the references without the candidate.

    In the logit of the true class, not in the loss: losses of what is learnt crowd at zero.
    """

    def scores(self, references: ShadowBank, target: Outputs) -> FloatArray:
        references.check(outs=1)
        return target.candidates - references.moments(included=False).mean
