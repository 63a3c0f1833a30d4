"""Objective of gradient inversion: cosine distance of gradients plus total variation (Geiping et al. 2020, eq. 4)."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ....fl.models.network import Network
from .search import total_variation

# Below this length a row counts as zero.
_LEAST = 1e-30


class _Cosines(torch.autograd.Function):
    """Cosines ``(n,)`` of rows ``(n, d)`` with unit rows, and their gradient, in two passes over the rows."""

    # Rows are large: the intermediate results that autograd would store take a tenth of an iteration.

    @staticmethod
    def forward(ctx: Any, rows: Tensor, directions: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(rows, dim=1).clamp_min(_LEAST)
        # Not a matrix product, which sums less accurately: at the end of a search cosines are within 1e-6 of 1.
        cosines: Tensor = (rows * directions).sum(1) / lengths
        ctx.save_for_backward(rows, directions, lengths, cosines)
        return cosines

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        rows, directions, lengths, cosines = ctx.saved_tensors
        scale = (slope / lengths).unsqueeze(1)
        return (directions * scale).addcmul_(rows, -scale * (cosines / lengths).unsqueeze(1)), None


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """An objective that compares the gradients of many candidate images at once, each with the gradient of its own
    upload.

    Args:
        network: model and loss.
        model: (d,), at which the uploads were computed.
        gradients: (n, d), one upload per candidate; the length has no effect, so clipping changes nothing.
        labels: (n, k, classes), one-hot.
        total_variation: weight of the image prior.
        dropout: (n, 1 or k, features), the factors that the uploads reveal; None for a model without dropout.
    """

    network: Network
    model: Tensor
    gradients: Tensor
    labels: Tensor
    total_variation: float
    dropout: Tensor | None = None

    def of(self, part: slice) -> "Cosine":
        """Return the same objective restricted to some of the candidate images."""
        dropout = None if self.dropout is None else self.dropout[part]
        return replace(self, gradients=self.gradients[part], labels=self.labels[part], dropout=dropout)

    def values(self, images: Tensor) -> Tensor:
        """Compute the objective (cosine distance plus total variation) of candidate ``images (n, k, c, h, w)``, shape
        ``(n,)``; it is differentiable.
        """
        rows = self.network.lot_gradients(self.model, images, self.labels, self.dropout)
        return 1 - self.cosines(rows) + self.total_variation * total_variation(images)

    def cosines(self, rows: Tensor) -> Tensor:
        """Compute the cosines ``(n,)`` between gradients ``(n, d)`` and the uploads; 0 for a gradient of zero."""
        # Inert weights carry noise but no data: they would only reduce the cosine.
        rows = rows[:, : self.network.layout.model_dim]
        cosines: Tensor = _Cosines.apply(rows, self.directions)
        return cosines

    @cached_property
    def directions(self) -> Tensor:
        """The uploads at unit length, without inert weights, ``(n, model_dim)``."""
        kept = self.gradients[:, : self.network.layout.model_dim]
        directions: Tensor = kept / torch.linalg.vector_norm(kept, dim=1, keepdim=True)
        return directions
