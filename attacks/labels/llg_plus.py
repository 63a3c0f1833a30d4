"""Attack that infers label counts like LLG, with the model's response to public images (Wainakh et al. 2022)."""

from dataclasses import dataclass

import numpy as np

from ...audit.evidence import LabelCounts
from ...fl.recorder import View
from ..attack import Knowledge
from .label_attack import LabelAttack, check_linear, counts_of_round, read_label_lots
from .llg import picked_labels
from .llg_star import response


@dataclass(frozen=True, kw_only=True)
class LLGPlus(LabelAttack):
    """An attack that infers the label counts of each upload of one round as LLG does, with the model's measured
    response to public images.

    The strongest of the three variants: it keeps working while the model trains, because it measures the model's
    response to real data.
    """

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Return label counts ``(n, classes)``, one row per upload.

        Raises:
            ValueError: like `read_label_lots`, if uploads are not linear in gradients, or a class has no public image.
        """
        check_linear("llg_plus", knowledge.plan)
        lots, network = read_label_lots(view, knowledge, self.round), knowledge.network
        public = [knowledge.public_images[knowledge.public_labels == label] for label in range(network.classes)]
        # A class without public images would have no response, and its count would be arbitrary.
        missing = [label for label, images in enumerate(public) if not len(images)]
        if missing:
            raise ValueError(f"public_labels must contain every class, but these are missing: {missing}")
        found = response(network, lots.model, public)
        counts = picked_labels(lots.last.row_sums, lots.sizes, found.own / lots.sizes, found.offset)
        return counts_of_round(counts, view, self.round)
