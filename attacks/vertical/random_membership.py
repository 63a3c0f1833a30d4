"""Null attack that draws scores of candidates of a vertical federation at random, without using the view."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import CandidateScores
from ...fl.vertical.view import VerticalView
from .attack import PeopleMembershipAttack, VerticalKnowledge


@dataclass(frozen=True, kw_only=True)
class RandomMembership(PeopleMembershipAttack):
    """A null attack that draws uniform membership scores."""

    null: ClassVar[bool] = True

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> CandidateScores:
        """Return scores ``(n,)``, one per candidate; raise ValueError for knowledge without candidates."""
        return self.evidence(rng.random(len(self.shown(knowledge))), view)
