"""Mean image: returns the mean public image for every sample (null attack, the baseline for MSE and PSNR)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import Reconstructions
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..uploads import check_round, upload_setting
from .objectives.image_lots import upload_of_each_image


@dataclass(frozen=True, kw_only=True)
class MeanImage(Attack):
    """The same image for each sample behind the uploads of ``round``: the constant guess of least expected MSE."""

    null: ClassVar[bool] = True
    pixelwise: ClassVar[bool] = True
    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Images ``(n, c, h, w)``, no labels."""
        mean = knowledge.public_images.mean(0).clamp(0, 1)
        uploads = upload_of_each_image(view, knowledge, self.round)
        images = mean.expand(len(uploads), -1, -1, -1)
        return Reconstructions(images.numpy(), None, upload_setting(view), uploads)
