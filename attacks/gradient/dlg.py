"""Attack that reconstructs images and soft labels whose gradient matches the upload (DLG, Zhu et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...fl.fields import Positive
from ...fl.models.network import Network
from ...fl.objective import TASKS
from ...fl.streams import normal
from ..attack import Knowledge
from ..uploads import Uploads
from .image_attack import ImageLots, SearchAttack
from .search import MEMORY, Minimum, minimise, upload_parts


@dataclass(frozen=True, kw_only=True)
class DLG(SearchAttack):
    """An attack that minimises the squared distance of gradients over images and labels together (Zhu et al.,
    Algorithm 1), from normally distributed starting points.

    All restarts of all uploads run in one batch; each run returns its best point, and each upload its best run. It
    converges only for a part of the starting points and on twice differentiable models (sigmoid, not ReLU), but then to
    the image itself, so success rates should be measured. The number of samples behind an upload is the plan's. The
    attack ignores dropout: it matches the gradient without dropout, which then may belong to no image.

    Args:
        iterations: evaluations of L-BFGS; the paper's code uses up to 20 x 300.
        learning_rate: step length of L-BFGS; there is no line search.
    """

    tasks: ClassVar[tuple[str, ...]] = TASKS
    learning_rate: Positive = 1.0

    def lots(self, uploads: Uploads, k: int, knowledge: Knowledge, rng: np.random.Generator) -> ImageLots:
        network = knowledge.network
        count, kept = len(uploads.senders) * self.restarts, network.layout.model_dim
        # Without inert weights, which carry noise but no data.
        targets = uploads.gradients[:, :kept].repeat_interleave(self.restarts, 0)
        pixels, found = k * int(np.prod(network.shape)), []
        start = normal(rng, (count, pixels + k * network.classes)).to(uploads.model)
        # L-BFGS stores steps and changes of the gradient, which take memory like the images themselves.
        held = k * network.layout.dim + 2 * MEMORY * start.shape[1]
        for part in upload_parts(count, self.restarts, held):

            def distance(points: Tensor, wanted: Tensor = targets[part]) -> Tensor:
                images, labels = split(points, k, network)
                rows = network.lot_gradients(uploads.model, images, network.objective.relaxed(labels))[:, :kept]
                return (rows - wanted).square().sum(1)

            best = minimise(distance, start[part], iterations=self.iterations, learning_rate=self.learning_rate)
            found.append(self._kept(best))
        images, labels = split(torch.cat(found), k, network)
        return ImageLots(images=images.clamp(0, 1), labels=network.objective.found(labels))

    def _kept(self, best: Minimum) -> Tensor:
        """The points of the best restart of each upload."""
        runs = best.values.view(-1, self.restarts).argmin(1)
        return best.points[runs + self.restarts * torch.arange(len(runs), device=runs.device)]


def split(points: Tensor, k: int, network: Network) -> tuple[Tensor, Tensor]:
    """Split the optimiser's flat variables into images ``(n, k, c, h, w)`` and label logits ``(n, k, classes)``; for a
    regression the latter are the numbers themselves.
    """
    labels = points[:, -k * network.classes :].reshape(len(points), k, network.classes)
    images = points[:, : -k * network.classes].reshape(len(points), k, *network.shape)
    return images, labels
