"""What attacks on a final model share that compare it with models of known membership, trained in the same way."""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ....audit.arrays import FloatArray
from ....audit.evidence import CandidateScores
from ....audit.observer import FINAL_MODEL, Observer
from ....fl.view import View
from ...attack import Knowledge
from ...shadow_bank import Outputs, ShadowBank, true_class_logits
from ..candidate_attack import MembershipAttack


@dataclass(frozen=True, kw_only=True)
class ShadowAttack(MembershipAttack, ABC):
    """A pure function of what the target says and what the references say; who is in the target is in neither."""

    observer: ClassVar[Observer] = FINAL_MODEL

    def scores(self, references: ShadowBank, target: Outputs) -> FloatArray:
        """One score a candidate, ``(N,)``, higher means "the target trained on it".

        Raises:
            ValueError: if the references are too few.
        """
        raise TypeError(f"{type(self).__name__} does not define scores(references, target)")

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> CandidateScores:
        if knowledge.shadows is None:
            raise ValueError(f"{type(self).__name__} needs shadow models, and none is available")
        return self.evidence(self.scores(knowledge.shadows, outputs_of(view, knowledge)), view)


def outputs_of(view: View, knowledge: Knowledge) -> Outputs:
    """What the final model says of the candidates and of the public images.

    Raises:
        ValueError: if there are no candidates, or they are not those of the bank.
    """
    shown, model = knowledge.candidates, view.final_model[0]
    if shown is None:
        raise ValueError("a membership attack needs candidates, got none")
    asked = len(shown.labels), len(knowledge.public_labels)
    if (bank := knowledge.shadows) is not None and asked != (bank.logits.shape[1], bank.population.shape[1]):
        known = f"{bank.logits.shape[1]} and {bank.population.shape[1]}"
        raise ValueError(f"the bank must be of the {asked[0]} candidates and {asked[1]} public images, got {known}")
    return Outputs(
        candidates=true_class_logits(knowledge.network, model, shown.images, shown.labels),
        population=true_class_logits(knowledge.network, model, knowledge.public_images, knowledge.public_labels),
    )


def rank_among(values: FloatArray, others: FloatArray) -> FloatArray:
    """For each of ``values`` the share of ``others (m,)`` below it, ties counting half."""
    ordered = np.sort(others)
    below, up_to = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    return np.asarray((below + up_to) / (2 * len(ordered)), dtype=np.float64)
