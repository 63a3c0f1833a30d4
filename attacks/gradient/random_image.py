"""Random image: returns a random public image for every sample (null attack, the baseline for SSIM and LPIPS)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from ...audit.evidence import Reconstructions
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..uploads import check_round, upload_setting
from .objectives.image_lots import upload_of_each_image


@dataclass(frozen=True, kw_only=True)
class RandomImage(Attack):
    """One uniform draw from the public images, with its own label, for each sample behind the uploads of ``round``."""

    null: ClassVar[bool] = True
    pixelwise: ClassVar[bool] = True
    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Images ``(n, c, h, w)`` and labels ``(n,)``; no labels for a segmentation model."""
        uploads = upload_of_each_image(view, knowledge, self.round)
        drawn = rng.integers(len(knowledge.public_images), size=len(uploads))
        chosen = torch.from_numpy(drawn)
        images, labels = knowledge.public_images[chosen], knowledge.public_labels[chosen]
        # A segmentation model's public labels are masks, which are no labels of images.
        named = None if knowledge.network.segments else labels.numpy()
        return Reconstructions(images.numpy(), named, upload_setting(view), uploads)
