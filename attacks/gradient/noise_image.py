"""Noise image: returns uniform noise for every sample (null attack, the starting point of a search)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import Reconstructions
from ...fl.streams import uniform
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..uploads import check_round, upload_setting
from .objectives.image_lots import upload_of_each_image


@dataclass(frozen=True, kw_only=True)
class NoiseImage(Attack):
    """Pixels drawn uniformly in [0, 1], one image for each sample behind the uploads of ``round``."""

    null: ClassVar[bool] = True
    pixelwise: ClassVar[bool] = True
    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Images ``(n, c, h, w)``, no labels."""
        uploads = upload_of_each_image(view, knowledge, self.round)
        images = uniform(rng, (len(uploads), *knowledge.network.shape))
        return Reconstructions(images.numpy(), None, upload_setting(view), uploads)
