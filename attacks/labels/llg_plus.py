"""Attack that infers label counts like LLG, with the model's response to public images (Wainakh et al. 2022)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.arrays import IntArray
from ..attack import Knowledge
from .label_attack import LabelAttack, LabelLots
from .llg import picked_labels
from .llg_star import response


@dataclass(frozen=True, kw_only=True)
class LLGPlus(LabelAttack):
    """An attack that infers the label counts of each upload of one round as LLG does, with the model's measured
    response to public images.

    The strongest of the three variants: it keeps working while the model trains, because it measures the model's
    response to real data.
    """

    linear: ClassVar[bool] = True

    def counts(self, lots: LabelLots, knowledge: Knowledge, rng: np.random.Generator) -> IntArray:
        network = knowledge.network
        public = [knowledge.public_images[knowledge.public_labels == label] for label in range(network.classes)]
        # A class without public images would have no response, and its count would be arbitrary.
        missing = [label for label, images in enumerate(public) if not len(images)]
        if missing:
            raise ValueError(f"public_labels must contain every class, but these are missing: {missing}")
        found = response(network, lots.model, public)
        return picked_labels(lots.last.row_sums, lots.sizes, found.own / lots.sizes, found.offset)
