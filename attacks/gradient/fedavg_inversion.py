"""Attack that reconstructs images whose simulated local steps match a FedAvg update (after Dimitrov et al. 2022)."""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from ..attack import Knowledge
from ..uploads import Uploads
from .image_attack import CosineAttack, ImageLots, lot_labels, simulated_updates
from .search import Values, total_variation


@dataclass(frozen=True, kw_only=True)
class FedAvgInversion(CosineAttack):
    """An attack that reconstructs all images behind an upload at once, by simulating the client's local steps on
    candidates.

    Number, size and learning rate of the steps are the plan's; the order in which the client used its samples is not
    known (see ``image_attack.simulated_updates``). The distance is 1 minus the cosine of the update and the simulated
    one. Labels are read from the last bias as if the update were one gradient, which is correct to first order in the
    learning rate. The attack does not use a defense's law, and it simulates without dropout, which costs accuracy.

    Args:
        total_variation: weight of the images' mean absolute difference of neighbouring pixels.
    """

    def lots(self, uploads: Uploads, k: int, knowledge: Knowledge, rng: np.random.Generator) -> ImageLots:
        """Return the reconstructed images and labels. Raises Undefined if local steps cannot be simulated, because of
        Adam or a client's own control variate.
        """
        network, plan, client = knowledge.network, knowledge.plan, uploads.senders[0]
        labels = lot_labels(uploads.gradients, uploads.model, network, k, knowledge.public_images)
        # Of the update itself, whose inert weights and length do not count either.
        cosine = self.cosine(replace(uploads, gradients=uploads.values), labels, knowledge)

        def objective(part: slice) -> Values:
            here = cosine.of(part)

            def values(images: Tensor) -> Tensor:
                # The labels of this part only: a part holds whole uploads, not all of them.
                updates = simulated_updates(network, plan, client, uploads.model, images, here.labels)
                return 1 - here.cosines(updates) + self.total_variation * total_variation(images)

            return values

        return self.from_noise(objective, labels, uploads.model, network, rng)
