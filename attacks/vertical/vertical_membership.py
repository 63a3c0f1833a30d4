"""Attack that infers who took part in a vertical federation from losses of the final models (Yeom et al. 2018)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch.nn.functional import cross_entropy

from ...audit.arrays import FloatArray
from ...audit.evidence import CandidateScores
from ...fl.streams import Streams
from ...fl.vertical.network import VerticalModels
from ...fl.vertical.protection import VerticalProtection
from ...fl.vertical.task import People, predicted
from ...fl.vertical.view import VerticalView
from ..shadow_bank import rank_among
from .attack import PeopleMembershipAttack, VerticalKnowledge


@dataclass(frozen=True, kw_only=True)
class VerticalMembership(PeopleMembershipAttack):
    """An attack whose score is minus the candidate's cross-entropy under the final models of all parties, or its rank
    among public people.

    Embeddings are computed without the defense's protection of predictions.

    Args:
        calibration: ``"none"``, or ``"public"``: the score is the share of public people of the same class, or of all
            if there are none, whose loss is larger; ties count half (Attack P of Ye et al. 2022, by class).
    """

    calibration: Literal["none", "public"] = "none"

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> CandidateScores:
        """Return scores ``(n,)``, one per candidate.

        Raises ValueError for knowledge without candidates, or a view without the final models.
        """
        shown = self.shown(knowledge)
        if view.final is None:
            raise ValueError("view must hold the final models of all parties, got none")
        losses = _losses(view.final, shown, view)
        if self.calibration == "none":
            return self.evidence(-losses, view)
        public, labels = _losses(view.final, knowledge.public, view), knowledge.public.labels.numpy()
        scores = np.empty(len(losses))
        for label in np.unique(shown.labels.numpy()):
            mine, same = shown.labels.numpy() == label, labels == label
            scores[mine] = 1 - rank_among(losses[mine], public[same] if same.any() else public)
        return self.evidence(scores, view)


def _losses(models: VerticalModels, people: People, view: VerticalView) -> FloatArray:
    first = VerticalModels(
        bottoms=tuple(tuple(layer[:1] for layer in layers) for layers in models.bottoms),
        top=tuple(layer[:1] for layer in models.top),
    )
    # No protection, so that no stream is drawn from.
    logits = predicted(first, people, view.plan, VerticalProtection(), Streams(0))[0]
    return np.asarray(cross_entropy(logits.double(), people.labels, reduction="none").numpy(), dtype=np.float64)
