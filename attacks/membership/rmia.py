"""Attack that compares a candidate's likelihood ratio with those of population points (RMIA, Zarifzadeh et al. 2024).

The ratio is the probability under the target divided by that under a random model of the same kind.
"""

from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray
from ...fl.fields import Share
from ..shadow_bank import ModelLogits, ShadowBank, rank_among
from .shadow_attack import ShadowAttack


@dataclass(frozen=True, kw_only=True)
class RMIA(ShadowAttack):
    """An attack whose score is the share of population points z with a smaller likelihood ratio than the candidate x:
    ``p(z) / P(z) < p(x) / P(x)``; ties count half.

    p is the target's probability of the true class, P the mean over models of which half trained on the point. For
    points that no model trained on, such as the whole population, P is computed from the mean q over these models as
    ``((1 + a) q + 1 - a) / 2``: the probability with training is assumed to be ``a q + 1 - a``.

    The score has no more values than there are points: if more non-members than a false positive rate allows beat all
    points, no threshold has that rate.

    Args:
        online: whether P of a candidate is the mean of its means over the references with it and without it; otherwise
            ``a`` is used.
        a: remaining share of the distance to certainty after training on the point.
    """

    online: bool = False
    a: Share = 0.3

    def scores(self, references: ShadowBank, target: ModelLogits) -> FloatArray:
        references.check(outs=1, ins=1 if self.online else 0)
        probability, out = _probability(references.logits), ~references.included
        # Means of probabilities, not of logits, as in the paper.
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
    """ln of the target's probability divided by the usual one."""
    # Far below double precision: a probability of zero must not divide.
    return np.asarray(-np.logaddexp(0, -logits) - np.log(usual.clip(1e-300)), dtype=np.float64)
