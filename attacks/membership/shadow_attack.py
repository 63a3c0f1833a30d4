"""Base class of attacks on a final model that compare it with reference models of known membership."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.evidence import CandidateScores
from ...audit.observer import FINAL_MODEL, Observer
from ...fl.objective import CLASSIFICATION
from ...fl.recorder import View
from ..attack import Knowledge
from ..shadow_bank import ModelLogits, ShadowBank, true_class_logits
from .candidates import MembershipAttack


@dataclass(frozen=True, kw_only=True)
class ShadowAttack(MembershipAttack, ABC):
    """A base class of attacks that score candidates by their logits under the target model and reference models,
    without knowing which candidates the target model was trained on.
    """

    observer: ClassVar[Observer] = FINAL_MODEL
    tasks: ClassVar[tuple[str, ...]] = (CLASSIFICATION,)

    @abstractmethod
    def scores(self, references: ShadowBank, target: ModelLogits) -> FloatArray:
        """Compute one score per candidate, ``(N,)``; a higher score means that the target model was trained on it.

        Raises:
            ValueError: if there are too few references.
        """

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> CandidateScores:
        if knowledge.shadows is None:
            raise ValueError(f"{type(self).__name__} needs shadow models, and none is available")
        return self.evidence(self.scores(knowledge.shadows, target_logits(view, knowledge)), view)


def target_logits(view: View, knowledge: Knowledge) -> ModelLogits:
    """Compute the final model's logits of the candidates and of the public images.

    Raises:
        ValueError: if there are no candidates, or the bank holds others.
    """
    shown, model = knowledge.candidates, view.final_model[0]
    if shown is None:
        raise ValueError("a membership attack needs candidates, got none")
    counts = len(shown.labels), len(knowledge.public_labels)
    # A bank of other candidates would give plausible but meaningless scores.
    if (bank := knowledge.shadows) is not None and counts != (bank.logits.shape[1], bank.population.shape[1]):
        known = f"{bank.logits.shape[1]} and {bank.population.shape[1]}"
        raise ValueError(
            f"the shadow models' logits must cover the {counts[0]} candidates and {counts[1]} public images, got "
            f"{known}"
        )
    return ModelLogits(
        candidates=true_class_logits(knowledge.network, model, shown.images, shown.labels),
        population=true_class_logits(knowledge.network, model, knowledge.public_images, knowledge.public_labels),
    )
