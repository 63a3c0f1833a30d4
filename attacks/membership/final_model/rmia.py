"""RMIA: how many population points the candidate beats by its likelihood ratio (Zarifzadeh et al. 2024).

The ratio is of the probability under the target to that under a random model of the same kind.
"""

from dataclasses import dataclass

import numpy as np

from ....audit.arrays import FloatArray
from ...shadow_bank import Outputs, ShadowBank
from .shadow_attack import ShadowAttack, rank_among


@dataclass(frozen=True, kw_only=True)
class RMIA(ShadowAttack):
    """score = share of population points z with ``p(z) / P(z) < p(x) / P(x)``, ties counting half.

    p is the target's probability of the true class, P the mean over models that trained on the point in one case of
    two. Where no model trained on it, which is so for all of the population, its mean q over those models stands for P
    as ``((1 + a) q + 1 - a) / 2``: the probability with it is taken to be ``a q + 1 - a``.

    The score has no more values than there are points: where more non-members than a false-positive rate allows beat
    all of them, no threshold has that rate.

    Args:
        online: P of a candidate is the mean of its means over the references with it and without it; else a stands in.
        a: how much of the distance to certainty is left where the point was trained on.
    """

    online: bool = False
    a: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.online, bool):
            raise ValueError(f"online must be true or false, got {self.online!r}")
        if not 0 <= self.a <= 1:
            raise ValueError(f"a must be in [0, 1], got {self.a}")

    def scores(self, references: ShadowBank, target: Outputs) -> FloatArray:
        references.check(outs=1, ins=1 if self.online else 0)
        probability, out = _probability(references.logits), ~references.included
        without = (probability * out).sum(0) / out.sum(0)
        usual = self._usual(without)
        if self.online:
            usual = ((probability * references.included).sum(0) / references.included.sum(0) + without) / 2
        others = self._usual(_probability(references.population).mean(0))
        return rank_among(_ratio(target.candidates, usual), _ratio(target.population, others))

    def _usual(self, without: FloatArray) -> FloatArray:
        return ((1 + self.a) * without + 1 - self.a) / 2


def _probability(logits: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-np.logaddexp(0, -logits)), dtype=np.float64)


def _ratio(logits: FloatArray, usual: FloatArray) -> FloatArray:
    """ln of the target's probability over the usual one."""
    return np.asarray(-np.logaddexp(0, -logits) - np.log(usual.clip(1e-300)), dtype=np.float64)
