"""Attack that reconstructs a batch from its gradient, with restarts pulled to their mean (after Yin et al. 2021)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor
from torch.nn.functional import one_hot

from ...fl.fields import Count, Weight
from ..attack import Knowledge
from ..uploads import Uploads
from .image_attack import PUBLIC, CosineAttack, ImageLots, lot_labels
from .search import BatchStatistics, Values


@dataclass(frozen=True, kw_only=True)
class GradInversion(CosineAttack):
    """An attack that reconstructs all images of an upload's batch at once from their mean gradient; the batch size is
    public.

    Labels come from the last bias (see ``image_attack.lot_labels``) and are the same in all restarts. Each restart is
    pulled towards the mean of its upload's restarts, for images whose label is unique in the lot: images of one label
    may be in another order in each restart. The paper (section 3) registers restarts to each other before taking that
    mean. The distance is the cosine, which clipping does not change, where the paper uses L2. The attack does not use a
    defense's law. It uses what uploads reveal of dropout (see ``image_attack.shown_dropout``). They do not reveal which
    sample of a lot dropped a feature, or anything under noise; that costs accuracy.

    Args:
        total_variation: weight of the images' mean absolute difference of neighbouring pixels.
        consistency: weight of the mean squared distance to the mean of the upload's restarts.
        statistics: weight of the distance between the lot's batch statistics and those of public images, see
            ``batch_statistics``; without effect on a model without batch norm.
    """

    restarts: Count = 4
    total_variation: Weight = 1e-3
    consistency: Weight = 1e-2
    statistics: Weight = 1e-2

    def lots(self, uploads: Uploads, k: int, knowledge: Knowledge, rng: np.random.Generator) -> ImageLots:
        network = knowledge.network
        labels = lot_labels(uploads.gradients, uploads.model, network, k, knowledge.public_images)
        cosine = self.cosine(uploads, labels, knowledge)
        # Only unique labels fix the order of a lot's images between restarts.
        known = unique_labels(labels, network.classes).repeat_interleave(self.restarts, 0)
        # Statistics of a thousand images are stable, and all would take much longer.
        public = knowledge.public_images[:PUBLIC].to(uploads.model)
        statistics = BatchStatistics.of(network, uploads.model, public) if network.mixes and self.statistics else None

        def objective(part: slice) -> Values:
            here, agreed = cosine.of(part), known[part]

            def values(images: Tensor) -> Tensor:
                found = here.values(images) + self.consistency * discord(images, agreed, self.restarts)
                return found if statistics is None else found + self.statistics * statistics.distances(images)

            return values

        return self.from_noise(objective, labels, uploads.model, network, rng)


def unique_labels(labels: Tensor, classes: int) -> Tensor:
    """Return a boolean per label of ``labels (n, k)``, true if the label occurs exactly once in its batch."""
    counts = one_hot(labels, classes).sum(1)
    return counts.gather(1, labels) == 1


def discord(images: Tensor, known: Tensor, restarts: int) -> Tensor:
    """Compute the mean squared distance ``(n,)`` of each candidate's images from their mean over the upload's restarts.

    Only the images with ``known`` order count.
    """
    by_upload = images.view(-1, restarts, *images.shape[1:])
    apart = (by_upload - by_upload.mean(1, keepdim=True)).square().flatten(3).mean(3).view(known.shape)
    return (apart * known).sum(1) / known.sum(1).clamp_min(1)
