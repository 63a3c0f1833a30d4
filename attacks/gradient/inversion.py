"""Attack that searches for an image whose gradient has the upload's direction (Geiping et al. 2020, equation 4)."""

from dataclasses import dataclass

import numpy as np
import torch

from ...audit.evidence import Reconstructions
from ...fl.recorder import View
from ..attack import Knowledge
from ..labels.idlg import inferred_labels
from ..uploads import read_uploads
from .image_attack import CosineAttack, lots_evidence


@dataclass(frozen=True, kw_only=True)
class GradientInversion(CosineAttack):
    """An attack that reconstructs one image per upload of the attacked ``round`` ("Inverting Gradients"), by signed
    Adam on the cosine distance from several starting points.

    Restarts begin at uniform noise in [0, 1]. It is meant for uploads of one sample; for a larger lot it finds a blend
    (see ``grad_inversion``). It does not use a defense's law: its failure under noise is no evidence on attacks that
    do. If an upload of one sample reveals which activations dropout left out (see ``image_attack.shown_dropout``), it
    uses them; under noise it cannot, and inverts the gradient without dropout, less accurately. Batch norm hides an
    image's contrast from its gradient, and this attack does not search for it.

    Args:
        total_variation: weight of the mean absolute difference of neighbouring pixels. The paper's 1e-6 is for natural
            images of 32x32 and 224x224 pixels under LeNet and ResNet.
    """

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Return one image and label per upload, shapes ``(n, c, h, w)`` and ``(n,)``. Raises ValueError for a zero or
        non-finite upload.
        """
        uploads, network = read_uploads(view, knowledge, self.round), knowledge.network
        # The label first: a search over images and label together often converges to a wrong label.
        labels = inferred_labels(uploads.gradients, network.layout).unsqueeze(1)
        cosine = self.cosine(uploads, labels, knowledge)
        found = self.from_noise(lambda part: cosine.of(part).values, labels, uploads.model, network, rng)
        return lots_evidence([(torch.arange(len(uploads.gradients)), found)], view)
