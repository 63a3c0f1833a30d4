"""Null attack that returns uniform noise for every sample (the starting point of a search for images)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ...fl.streams import uniform
from ..attack import Knowledge
from .image_attack import NullImageAttack


@dataclass(frozen=True, kw_only=True)
class NoiseImage(NullImageAttack):
    """A null attack that returns an image of uniform noise in [0, 1] for each sample behind the uploads of
    one round.
    """

    def guesses(self, knowledge: Knowledge, count: int, rng: np.random.Generator) -> tuple[Tensor, None]:
        return uniform(rng, (count, *knowledge.network.shape)), None
