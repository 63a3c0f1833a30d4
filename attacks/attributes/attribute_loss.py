"""Attack that infers a column of a known record by the model's loss for each value (Fredrikson et al. 2014)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.observer import FINAL_MODEL, GLOBAL_MODELS, Observer
from ...fl.recorder import View
from ..attack import Knowledge
from ..membership.loss import LossThreshold
from ..membership.loss_series import LossSeries
from .attribute_attack import AttributeAttack, Prior


@dataclass(frozen=True, kw_only=True)
class AttributeLoss(AttributeAttack):
    """An attack whose score is minus the cross-entropy of the completed record under the final model. For an observer
    of the models of all rounds, the score is the mean over these models.

    The model's probability of the label is then the likelihood of the value, and with the prior of the other columns
    the guess is the most probable value a posteriori. A model that never saw the record gives such a guess as well: the
    attack is compared with the imputation, and on members with others.
    """

    observer: ClassVar[Observer] = FINAL_MODEL
    prior: Prior = "columns"

    def scores(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> FloatArray:
        attack = LossSeries() if view.observer.rank >= GLOBAL_MODELS.rank else LossThreshold()
        return attack.run(view, knowledge, rng).values
