"""FedMIA on losses: the candidate's loss under the target's own model against the others' (Zhu et al. 2024)."""

from dataclasses import dataclass

import numpy as np

from ....fl.probe import Candidates
from ....fl.view import View
from ...attack import Knowledge
from ..alignment import RoundRows
from ..own_models import own_losses
from .other_clients import LEAST, one_for_all
from .round_attack import RoundAttack


@dataclass(frozen=True, kw_only=True)
class FedMIALoss(RoundAttack):
    """Mean over rounds of ``Phi`` of minus the target's standardised loss.

    A client's model is the broadcast one plus its own update, as if it were alone: what the server would combine from
    this upload only.
    """

    def least(self, view: View) -> int:
        return LEAST

    def table(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        return one_for_all(-own_losses(rows, view, knowledge, shown).numpy())

    def total(self, sums: np.ndarray, rounds: np.ndarray) -> np.ndarray:
        return np.asarray(sums / rounds[:, None], dtype=np.float64)
