"""Attack that compares the candidate's losses under the models of all clients (FedMIA, Zhu et al. 2024)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...fl.candidates import Candidates
from ...fl.recorder import View
from ..attack import Knowledge
from .candidates import RoundRows, client_model_losses
from .round_attack import LEAST, RoundAttack, compare_with_other_clients


@dataclass(frozen=True, kw_only=True)
class FedMIALoss(RoundAttack):
    """An attack whose score is minus the candidate's loss under the target client's model, standardised by its losses
    under the other clients' models.

    With z for the standardised value, the score is the mean of ``Phi(z)`` over rounds.

    A client's model is what the server would compute from the broadcast model and this upload alone.
    """

    averaged: ClassVar[bool] = True

    def least(self, view: View) -> int:
        return LEAST

    def table(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        return compare_with_other_clients(-client_model_losses(rows, view, knowledge, shown).numpy())
