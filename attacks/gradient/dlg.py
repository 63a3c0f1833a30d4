"""DLG: images and soft labels whose gradient is the upload, by L-BFGS (Zhu, Liu and Han 2019, Algorithm 1)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...audit.evidence import Reconstructions
from ...fl.models.network import Network
from ...fl.streams import normal
from ...fl.view import View
from ..attack import Knowledge
from ..uploads import Uploads, read_uploads
from .objectives.lbfgs import MEMORY, Minimum, minimise
from .objectives.lots import of_equal_lots, samples_behind
from .objectives.search import Lots, upload_parts
from .objectives.search_attack import SearchAttack, lots_evidence


@dataclass(frozen=True, kw_only=True)
class DLG(SearchAttack):
    """Least squared distance of gradients over images and label logits together, from normal draws, all restarts of all
    uploads in one batch; the best point of each run counts, the best run of each upload is kept.

    It converges for a part of the starts only, on twice differentiable models (sigmoid, not ReLU), and there to the
    image itself: measure rates. The number of samples behind an upload is the plan's. It does not look for
    dropout's draws: it matches the gradient without, which no image need have then.

    Args:
        iterations: evaluations of L-BFGS; the paper's code makes up to 20 x 300.
        learning_rate: step length of L-BFGS; there is no line search.
    """

    learning_rate: float = 1.0

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Images and labels, upload by upload. Raises ValueError for a zero or non-finite upload."""
        uploads, found = read_uploads(view, knowledge, self.round), []
        for rows in of_equal_lots(knowledge.plan, uploads):
            k = samples_behind(knowledge.plan, uploads.senders[int(rows[0])])
            found.append((rows, self._matched(rows, k, uploads, knowledge.network, rng)))
        return lots_evidence(found, view)

    def _matched(self, rows: Tensor, k: int, uploads: Uploads, network: Network, rng: np.random.Generator) -> Lots:
        count, kept = len(rows) * self.restarts, network.layout.model_dim
        targets = uploads.gradients[rows, :kept].repeat_interleave(self.restarts, 0)
        pixels, found = k * int(np.prod(network.shape)), []
        start = normal(rng, (count, pixels + k * network.classes)).to(uploads.model)
        # L-BFGS remembers steps and changes of slope.
        held = k * network.layout.dim + 2 * MEMORY * start.shape[1]
        for part in upload_parts(count, self.restarts, held):

            def distance(points: Tensor, wanted: Tensor = targets[part]) -> Tensor:
                images, labels = split(points, k, network)
                rows = network.lot_gradients(uploads.model, images, labels.softmax(-1))[:, :kept]
                return (rows - wanted).square().sum(1)

            best = minimise(distance, start[part], iterations=self.iterations, learning_rate=self.learning_rate)
            found.append(self._kept(best))
        images, labels = split(torch.cat(found), k, network)
        return Lots(images=images.clamp(0, 1), labels=labels.argmax(-1))

    def _kept(self, best: Minimum) -> Tensor:
        """The points of the best restart of each upload."""
        runs = best.values.view(-1, self.restarts).argmin(1)
        return best.points[runs + self.restarts * torch.arange(len(runs), device=runs.device)]


def split(points: Tensor, k: int, network: Network) -> tuple[Tensor, Tensor]:
    """Flat points -> images ``(n, k, c, h, w)`` and label logits ``(n, k, classes)``."""
    labels = points[:, -k * network.classes :].reshape(len(points), k, network.classes)
    images = points[:, : -k * network.classes].reshape(len(points), k, *network.shape)
    return images, labels
