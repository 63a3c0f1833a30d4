"""Baseline attack that infers labels from an upload and returns the mean public image of each label."""

from dataclasses import dataclass

import numpy as np

from ..attack import Knowledge
from ..labels.label_attack import class_means
from ..uploads import Uploads
from .image_attack import ImageAttack, ImageLots, lot_labels


@dataclass(frozen=True, kw_only=True)
class ClassMeanImage(ImageAttack):
    """An attack that returns one image for each sample behind one round's uploads: the mean public image of the
    inferred label.

    Labels are inferred as by iDLG (for lots see ``image_attack.lot_labels``). It is not a null attack, but an inversion
    that does no better has revealed only the labels.
    """

    def lots(self, uploads: Uploads, k: int, knowledge: Knowledge, rng: np.random.Generator) -> ImageLots:
        network, images = knowledge.network, knowledge.public_images
        # Rounding may leave a mean of values in [0, 1] slightly outside of it.
        means = class_means(images, knowledge.public_labels, network.classes).clamp(0, 1)
        labels = lot_labels(uploads.gradients, uploads.model, network, k, images)
        return ImageLots(images=means[labels], labels=labels)
