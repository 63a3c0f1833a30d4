"""Random image: a public image for each sample, without looking, sharp and plausible as SSIM and LPIPS like it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from ...audit.evidence import Reconstructions
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..uploads import check_round, upload_setting
from .objectives.lots import upload_of_each_image


@dataclass(frozen=True, kw_only=True)
class RandomImage(Attack):
    """One uniform draw from the public images, with its own label, for each sample behind the uploads of ``round``."""

    null: ClassVar[bool] = True
    pixelwise: ClassVar[bool] = True
    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Images ``(n, c, h, w)`` and labels ``(n,)``, of a segmenter none."""
        uploads = upload_of_each_image(view, knowledge, self.round)
        drawn = rng.integers(len(knowledge.public_images), size=len(uploads))
        chosen = torch.from_numpy(drawn)
        images, labels = knowledge.public_images[chosen], knowledge.public_labels[chosen]
        named = None if knowledge.network.segments else labels.numpy()
        return Reconstructions(images.numpy(), named, upload_setting(view), uploads)
