"""Attack by a malicious server that raises candidates' losses and observes if clients lower them (Nasr et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...fl.candidates import Candidates
from ...fl.fields import Weight
from ..attack import Knowledge
from .candidates import candidate_gradients
from .gradient_cosine import GradientCosine


@dataclass(frozen=True, kw_only=True)
class ActiveAscent(GradientCosine):
    """An attack whose score is the cosine between the candidate's gradient and the uploads, at models that the server
    moved along the sum of the candidates' gradients.

    Members and outsiders are raised equally, so the change itself reveals nothing. The control is the same attack with
    ``rate`` 0: what the server would have seen without deviating. Many candidates at once reduce each other's effect.

    Args:
        rate: length of the step, relative to the length of the model.
    """

    active: ClassVar[bool] = True
    rate: Weight = 0.1

    def tamper(self, models: Tensor, knowledge: Knowledge) -> Tensor:
        shown = self.shown(knowledge)
        return torch.stack([self._raised(model, knowledge, shown) for model in models])

    def _raised(self, model: Tensor, knowledge: Knowledge, shown: Candidates) -> Tensor:
        total = torch.stack([rows.sum(0) for _, rows in candidate_gradients(knowledge.network, model, shown)]).sum(0)
        # Relative to the model's length, so that one rate serves models of any size.
        stride: Tensor = self.rate * model.norm() * total / total.norm().clamp_min(1e-30)
        return model + stride
