"""Random image: a public image for each upload, without looking, sharp and plausible as SSIM and LPIPS like it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from ...audit.evidence import Reconstructions
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..uploads import check_round, count_uploads, upload_setting


@dataclass(frozen=True, kw_only=True)
class RandomImage(Attack):
    """One uniform draw from the public images for each upload of ``round``, with the image's own label."""

    null: ClassVar[bool] = True
    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Images ``(n, c, h, w)`` and labels ``(n,)``."""
        drawn = rng.integers(len(knowledge.public_images), size=count_uploads(view, self.round))
        chosen = torch.from_numpy(drawn)
        images, labels = knowledge.public_images[chosen], knowledge.public_labels[chosen]
        return Reconstructions(images.numpy(), labels.numpy(), upload_setting(view))
