"""Penalty that compares batch-norm statistics of candidate and public images (Yin et al. 2021, section 3.2).

Batch norm removes a lot's overall contrast from its gradient: a lot half as bright has the same gradient. The
statistics restore it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ....fl.models.network import Network


@dataclass(frozen=True, kw_only=True)
class BatchStatistics:
    """A penalty that measures how far candidates' batch-norm statistics at ``model (d,)`` are from those of public
    images.

    The paper uses the running averages of its global model. No model here has any; ``public`` holds what they would
    average: mean and variance of each batch norm's inputs, ``(2, channels)``.
    """

    network: Network
    model: Tensor
    public: tuple[Tensor, ...]

    @classmethod
    def of(cls, network: Network, model: Tensor, images: Tensor) -> "BatchStatistics":
        """Compute the batch-norm statistics of public ``images (m, c, h, w)``, taken as one batch."""
        with torch.no_grad():
            found = network.lot_statistics(model, images.unsqueeze(0))
        return cls(network=network, model=model, public=tuple(layer[0] for layer in found))

    def distances(self, images: Tensor) -> Tensor:
        """Compute one distance per candidate batch of ``images (n, k, c, h, w)``, shape ``(n,)``: the Euclidean
        distances of means and of variances to those of public images, summed over batch-norm layers.

        Zeros for a model without batch norm. Differentiable.
        """
        apart = images.new_zeros(len(images))
        # Norms, not squares, as in the paper: one layer far off must not hide the others.
        for found, known in zip(self.network.lot_statistics(self.model, images), self.public, strict=True):
            apart = apart + torch.linalg.vector_norm(found - known, dim=2).sum(1)
        return apart
