"""Attack that compares cosines of the candidate's gradient with all clients' uploads (FedMIA, Zhu et al. 2024)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...fl.candidates import Candidates
from ...fl.recorder import View
from ..attack import Knowledge
from .candidates import RoundRows, align
from .round_attack import LEAST, RoundAttack, compare_with_other_clients


@dataclass(frozen=True, kw_only=True)
class FedMIACosine(RoundAttack):
    """An attack whose score is the cosine between the candidate's gradient and the target client's upload, standardised
    in each round by the other clients' cosines.

    With z for the standardised cosine, the score is the mean of ``Phi(z)`` over rounds. The non-members are chosen
    before training.
    """

    averaged: ClassVar[bool] = True

    def least(self, view: View) -> int:
        return LEAST

    def table(self, rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> np.ndarray:
        return compare_with_other_clients(align(rows, knowledge, shown).cosines.numpy())
