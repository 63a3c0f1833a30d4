"""Attack that infers membership from the probability of the candidate's label under each round's model."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...fl.candidates import Candidates
from ..attack import Knowledge
from .round_attack import SeriesAttack


@dataclass(frozen=True, kw_only=True)
class ConfidenceSeries(SeriesAttack):
    """An attack whose score is the mean probability of the candidate's label over the rounds' models; no single round
    can dominate.
    """

    def statistic(self, model: Tensor, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        with torch.no_grad():
            return torch.exp(-knowledge.network.losses(model, shown.images, shown.labels).double()).numpy()
