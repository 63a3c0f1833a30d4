"""Attack that infers a batch's classes from row minima of the last layer's weight gradient (Yin et al. 2021)."""

from dataclasses import dataclass

import numpy as np

from ...audit.arrays import IntArray
from ..attack import Knowledge
from .bias_sign import present_classes
from .label_attack import LabelAttack, LabelLots


@dataclass(frozen=True, kw_only=True)
class RowMinimum(LabelAttack):
    """An attack that infers which classes are behind each upload of one round: those whose row of the last layer's
    weight gradient has a negative minimum.

    The paper (GradInversion) takes as many classes as the lot has samples, assuming labels that do not repeat. Here
    only classes with a negative lowest entry are taken. Where features are not negative, this is correct for every
    class in the lot that has a feature shared by few other samples, and an absent class's row has no negative entry.
    The rule does not infer repetitions, so all classes found get equal counts.
    """

    def counts(self, lots: LabelLots, knowledge: Knowledge, rng: np.random.Generator) -> IntArray:
        return present_classes(lots.last.weight.min(-1), lots.sizes)
