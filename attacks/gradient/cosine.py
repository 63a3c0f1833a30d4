"""Cosine objective: 1 minus the cosine of two gradients, plus total variation (Geiping et al. 2020, equation 4)."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...fl.network import Network
from .search import total_variation


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Of many candidates at once, each against its own upload.

    Args:
        network: model and loss.
        model: (d,), at which the uploads were computed.
        gradients: (n, d), one upload a candidate; its length does not matter, so clipping changes nothing.
        labels: (n, k, classes), one-hot.
        total_variation: weight of the image prior.
    """

    network: Network
    model: Tensor
    gradients: Tensor
    labels: Tensor
    total_variation: float

    def values(self, images: Tensor) -> Tensor:
        """``images (n, k, c, h, w)`` -> ``(n,)``, differentiable."""
        rows = self.network.lot_gradients(self.model, images, self.labels)
        return 1 - self.cosines(rows) + self.total_variation * total_variation(images)

    def cosines(self, rows: Tensor) -> Tensor:
        """Of gradients ``(n, d)`` and the uploads, ``(n,)``; 0 for a gradient of zero."""
        # Inert weights carry noise and no data: they would only dim the cosine.
        rows = rows[:, : self.network.layout.model_dim]
        # A plain product: torch's cosine_similarity divides whole rows, which takes a tenth of an iteration.
        lengths = torch.linalg.vector_norm(rows, dim=1).clamp_min(1e-30)
        cosines: Tensor = (rows * self._directions).sum(1) / lengths
        return cosines

    @cached_property
    def _directions(self) -> Tensor:
        kept = self.gradients[:, : self.network.layout.model_dim]
        directions: Tensor = kept / torch.linalg.vector_norm(kept, dim=1, keepdim=True)
        return directions
