"""Attack that searches for an image whose gradient has the upload's direction (Geiping et al. 2020, equation 4)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch.nn.functional import one_hot

from ...audit.evidence import Reconstructions
from ...fl.fields import Weight
from ...fl.recorder import View
from ...fl.streams import uniform
from ..attack import Knowledge
from ..labels.idlg import inferred_labels
from ..uploads import read_uploads
from .image_attack import ImageLots, SearchAttack, lots_evidence, shown_dropout
from .search import Cosine


@dataclass(frozen=True, kw_only=True)
class GradientInversion(SearchAttack):
    """An attack that reconstructs one image per upload of the attacked ``round`` ("Inverting Gradients"), by signed
    Adam on the cosine distance from several starting points.

    Restarts begin at uniform noise in [0, 1]. It is meant for uploads of one sample; for a larger lot it finds a blend
    (see ``grad_inversion``). It does not use a defense's law: its failure under noise is no evidence on attacks that
    do. It uses what uploads reveal of dropout (see ``image_attack.shown_dropout``): all draws of one sample, and
    nothing under noise, where it inverts the gradient without dropout, which costs accuracy. Batch norm hides an
    image's contrast from its gradient, and this attack does not search for it.

    Args:
        total_variation: weight of the mean absolute difference of neighbouring pixels. The paper's 1e-6 is for natural
            images of 32x32 and 224x224 pixels under LeNet and ResNet.
        labels: how the label is inferred first; ``idlg`` is the only rule.
    """

    total_variation: Weight = 1e-4
    labels: Literal["idlg"] = "idlg"

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Return one image and label per upload, shapes ``(n, c, h, w)`` and ``(n,)``. Raises ValueError for a zero or
        non-finite upload.
        """
        uploads, network = read_uploads(view, knowledge, self.round), knowledge.network
        # The label first: a search over images and label together often converges to a wrong label.
        labels = inferred_labels(uploads.gradients, network.layout).repeat_interleave(self.restarts).unsqueeze(1)
        dropout = shown_dropout(uploads.gradients, network, knowledge.plan, uploads.senders)
        cosine = Cosine(
            network=network,
            model=uploads.model,
            gradients=uploads.gradients.repeat_interleave(self.restarts, 0),
            labels=one_hot(labels, network.classes).to(uploads.model),
            total_variation=self.total_variation,
            dropout=None if dropout is None else dropout.repeat_interleave(self.restarts, 0),
        )
        # All restarts' images in one draw, so the number of batches does not change them.
        start = uniform(rng, (len(labels), 1, *network.shape)).to(uploads.model.device)
        lots = ImageLots(images=start, labels=labels)
        found = self.search(lambda part: cosine.of(part).values, lots, network.layout.dim)
        return lots_evidence([(torch.arange(len(uploads.gradients)), found)], view)
