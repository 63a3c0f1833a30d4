"""Noise image: uniform noise for each upload, without looking: the floor that a search starts from."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import Reconstructions
from ...fl.streams import uniform
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..uploads import check_round, count_uploads, upload_setting


@dataclass(frozen=True, kw_only=True)
class NoiseImage(Attack):
    """Pixels drawn uniformly in [0, 1], an image for each upload of ``round``."""

    null: ClassVar[bool] = True
    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Images ``(n, c, h, w)``, no labels."""
        images = uniform(rng, (count_uploads(view, self.round), *knowledge.network.shape))
        return Reconstructions(images.numpy(), None, upload_setting(view))
