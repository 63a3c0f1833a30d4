"""Attack that infers whether a client took part from its samples' loss under the final model (Yeom et al. 2018)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from ...audit.observer import FINAL_MODEL, Observer
from ...fl.candidates import OwnerCandidates
from ...fl.recorder import View
from ..attack import Knowledge
from .owner_attack import OwnerAttack


@dataclass(frozen=True, kw_only=True)
class ClientLoss(OwnerAttack):
    """An attack whose score is minus the mean cross-entropy of a client's samples under the final model.

    It is the loss threshold attack for clients.

    It needs a federation that holds some clients out (``held_out``).
    """

    observer: ClassVar[Observer] = FINAL_MODEL
    handles_reduced_views: ClassVar[bool] = False

    def scores(
        self, view: View, knowledge: Knowledge, shown: OwnerCandidates, rng: np.random.Generator
    ) -> dict[int, np.ndarray]:
        with torch.no_grad():
            losses = knowledge.network.losses(view.final_model[0], shown.images, shown.labels).double()
        # Every owner is shown by equally many samples, so none of these counts is zero.
        each = torch.bincount(shown.owner, minlength=shown.count)
        means = torch.bincount(shown.owner, weights=losses) / each
        return {view.plan.rounds: np.asarray(-means.numpy(), dtype=np.float64)}
