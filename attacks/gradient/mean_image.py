"""Null attack that returns the mean public image for every sample (the baseline for MSE and PSNR)."""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ..attack import Knowledge
from .image_attack import NullImageAttack


@dataclass(frozen=True, kw_only=True)
class MeanImage(NullImageAttack):
    """A null attack that returns the mean public image, the constant image of least MSE, for each sample behind one
    round's uploads.
    """

    def guesses(self, knowledge: Knowledge, count: int, rng: np.random.Generator) -> tuple[Tensor, None]:
        # Rounding may leave a mean of values in [0, 1] slightly outside of it.
        return knowledge.public_images.mean(0).clamp(0, 1).expand(count, -1, -1, -1), None
