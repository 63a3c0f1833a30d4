"""Null attack that returns a random public image for every sample (the baseline for SSIM and LPIPS)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..attack import Knowledge
from .image_attack import NullImageAttack


@dataclass(frozen=True, kw_only=True)
class RandomImage(NullImageAttack):
    """A null attack that returns a random public image, with its own label, for each sample behind one
    round's uploads.
    """

    def guesses(self, knowledge: Knowledge, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor | None]:
        chosen = torch.from_numpy(rng.integers(len(knowledge.public_images), size=count))
        # Other labels, such as the masks of a segmentation, are no classes of images.
        labels = knowledge.public_labels[chosen] if knowledge.network.objective.classifies else None
        return knowledge.public_images[chosen], labels
