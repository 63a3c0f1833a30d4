"""Attack that infers membership from the candidate's loss under each round's model."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...fl.candidates import Candidates
from ..attack import Knowledge
from .round_attack import SeriesAttack


@dataclass(frozen=True, kw_only=True)
class LossSeries(SeriesAttack):
    """An attack whose score is minus the mean cross-entropy of the candidate over the rounds' models."""

    def statistic(self, model: Tensor, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        with torch.no_grad():
            return -knowledge.network.losses(model, shown.images, shown.labels).double().numpy()
