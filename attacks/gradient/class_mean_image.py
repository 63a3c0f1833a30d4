"""Baseline attack that infers labels from an upload and returns the mean public image of each label."""

from dataclasses import dataclass

import numpy as np

from ...audit.evidence import Reconstructions
from ...fl.recorder import View
from ..attack import Knowledge
from ..labels.label_attack import class_means
from ..uploads import read_uploads
from .image_attack import ImageAttack, ImageLots, lot_labels, lots_evidence, of_equal_lots, samples_behind


@dataclass(frozen=True, kw_only=True)
class ClassMeanImage(ImageAttack):
    """An attack that returns one image for each sample behind one round's uploads: the mean public image of the
    inferred label.

    Labels are inferred as by iDLG (for lots see ``image_attack.lot_labels``). It is not a null attack, but an inversion
    that does no better has revealed only the labels.
    """

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Return one image and label per sample, shapes ``(n, c, h, w)`` and ``(n,)``. Raises ValueError for a zero or
        non-finite upload.
        """
        uploads, network, images = read_uploads(view, knowledge, self.round), knowledge.network, knowledge.public_images
        # Rounding may leave a mean of values in [0, 1] slightly outside of it.
        means = class_means(images, knowledge.public_labels, network.classes).clamp(0, 1)
        found = []
        for rows in of_equal_lots(knowledge.plan, uploads):
            k = samples_behind(knowledge.plan, uploads.senders[int(rows[0])])
            labels = lot_labels(uploads.gradients[rows], uploads.model, network, k, images)
            found.append((rows, ImageLots(images=means[labels], labels=labels)))
        return lots_evidence(found, view)
