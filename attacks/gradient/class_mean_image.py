"""Class mean image: the average public image of each label that an upload shows: what labels alone tell of images."""

from dataclasses import dataclass

import numpy as np

from ...audit.evidence import Reconstructions
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..labels.lots import class_means
from ..uploads import check_round, read_uploads
from .objectives.lots import lot_labels, of_equal_lots, samples_behind
from .objectives.search import Lots
from .objectives.search_attack import lots_evidence


@dataclass(frozen=True, kw_only=True)
class ClassMeanImage(Attack):
    """An image for each sample behind the uploads of ``round``. It looks at the labels and at nothing else of an upload
    (by iDLG, of lots see ``lots.lot_labels``): no null attack, yet an inversion that is not better has shown the labels
    only.
    """

    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Images ``(n, c, h, w)`` and labels ``(n,)``. Raises ValueError for a zero or non-finite upload."""
        uploads, network, images = read_uploads(view, knowledge, self.round), knowledge.network, knowledge.public_images
        means = class_means(images, knowledge.public_labels, network.classes).clamp(0, 1)
        found = []
        for rows in of_equal_lots(knowledge.plan, uploads):
            k = samples_behind(knowledge.plan, uploads.senders[int(rows[0])])
            labels = lot_labels(uploads.gradients[rows], uploads.model, network, k, images)
            found.append((rows, Lots(images=means[labels], labels=labels)))
        return lots_evidence(found, view)
