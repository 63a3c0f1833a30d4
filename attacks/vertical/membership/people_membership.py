"""Base class of attacks that infer whether people took part in a vertical federation."""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ....audit.claim import Unit
from ....audit.evidence import CandidateScores
from ....audit.observer import FINAL_MODEL, Observer
from ....fl.vertical.task import People
from ....fl.vertical.view import VerticalView
from ..attack import VerticalAttack, VerticalKnowledge, setting_of


@dataclass(frozen=True, kw_only=True)
class PeopleMembershipAttack(VerticalAttack, ABC):
    """A base class of attacks that score candidates, of whom the adversary knows all columns and the label."""

    observer: ClassVar[Observer] = FINAL_MODEL
    infers: ClassVar[Literal["membership"]] = "membership"

    def shown(self, knowledge: VerticalKnowledge) -> People:
        """Return the candidates; raise ValueError if there are none."""
        if knowledge.candidates is None:
            raise ValueError(f"{type(self).__name__} needs candidates, got none")
        return knowledge.candidates

    def evidence(self, scores: np.ndarray, view: VerticalView) -> CandidateScores:
        """Return the attack's result; ``scores``: (n,), higher means member."""
        return CandidateScores(scores, setting_of(view, Unit.SAMPLE))
