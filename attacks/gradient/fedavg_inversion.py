"""Attack that reconstructs images whose simulated local steps match a FedAvg update (after Dimitrov et al. 2022)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ...fl.fields import Weight
from ...fl.streams import uniform
from ..attack import Knowledge
from ..uploads import Uploads
from .image_attack import (
    ImageLots,
    SearchAttack,
    lot_labels,
    simulated_updates,
    soft,
)
from .search import Cosine, Values, total_variation


@dataclass(frozen=True, kw_only=True)
class FedAvgInversion(SearchAttack):
    """An attack that reconstructs all images behind an upload at once, by simulating the client's local steps on
    candidates.

    Number, size and learning rate of the steps are the plan's; the order in which the client used its samples is not
    known (see ``image_attack.simulated_updates``). The distance is 1 minus the cosine of the update and the simulated
    one. Labels are read from the last bias as if the update were one gradient, which is correct to first order in the
    learning rate. The attack does not use a defense's law, and it simulates without dropout, which costs accuracy.

    Args:
        total_variation: weight of the images' mean absolute difference of neighbouring pixels.
    """

    total_variation: Weight = 1e-4

    def lots(self, uploads: Uploads, k: int, knowledge: Knowledge, rng: np.random.Generator) -> ImageLots:
        """Return the reconstructed images and labels. Raises Undefined where local steps cannot be simulated (Adam, a
        client's own control variate).
        """
        network, plan, client = knowledge.network, knowledge.plan, uploads.senders[0]
        labels = lot_labels(uploads.gradients, uploads.model, network, k, knowledge.public_images)
        # Restarts of one upload are adjacent and share its labels.
        labels = labels.repeat_interleave(self.restarts, 0)
        cosine = Cosine(
            network=network,
            model=uploads.model,
            gradients=uploads.values.repeat_interleave(self.restarts, 0),
            labels=soft(labels, network, uploads.model),
            total_variation=self.total_variation,
        )

        def objective(part: slice) -> Values:
            here = cosine.of(part)

            def values(images: Tensor) -> Tensor:
                # The labels of this part only: a part holds whole uploads, not all of them.
                updates = simulated_updates(network, plan, client, uploads.model, images, here.labels)
                return 1 - here.cosines(updates) + self.total_variation * total_variation(images)

            return values

        start = uniform(rng, (len(labels), k, *network.shape)).to(uploads.model.device)
        return self.search(objective, ImageLots(images=start, labels=labels), network.layout.dim)
