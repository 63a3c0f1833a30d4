"""Class mean image: the average public image of the label that iDLG reads: what the label alone tells of an image."""

from dataclasses import dataclass

import numpy as np
import torch

from ...audit.evidence import Reconstructions
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..labels.idlg import inferred_labels
from ..uploads import check_round, read_uploads, upload_setting


@dataclass(frozen=True, kw_only=True)
class ClassMeanImage(Attack):
    """One image for each upload of ``round``. It looks at the label and at nothing else of the upload: no null attack,
    yet an inversion that is not better has shown the label only.
    """

    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Images ``(n, c, h, w)`` and labels ``(n,)``. Raises ValueError for a zero or non-finite upload."""
        labels = inferred_labels(read_uploads(view, knowledge, self.round).gradients, knowledge.network.layout)
        images, known = knowledge.public_images, knowledge.public_labels
        # A label that public data lacks: the mean of all.
        same = [known == label for label in labels.tolist()]
        means = torch.stack([images[rows if rows.any() else slice(None)].mean(0) for rows in same])
        return Reconstructions(means.clamp(0, 1).numpy(), labels.numpy(), upload_setting(view))
