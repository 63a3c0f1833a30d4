"""Batch statistics: how far a candidate lot's are from those of public images (Yin et al. 2021, section 3.2).

Batch norm takes a lot's common contrast out of its gradient: half as bright a lot has the same. Statistics put it back.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ....fl.models.network import Network


@dataclass(frozen=True, kw_only=True)
class BatchStatistics:
    """Of candidates at ``model (d,)``.

    The paper takes the running averages that its global model carries. No model here has any; ``public`` holds what
    they average: for each batch norm the mean and variance of its inputs, ``(2, channels)``.
    """

    network: Network
    model: Tensor
    public: tuple[Tensor, ...]

    @classmethod
    def of(cls, network: Network, model: Tensor, images: Tensor) -> "BatchStatistics":
        """Those of public ``images (m, c, h, w)``, taken as one lot."""
        with torch.no_grad():
            found = network.lot_statistics(model, images.unsqueeze(0))
        return cls(network=network, model=model, public=tuple(layer[0] for layer in found))

    def distances(self, images: Tensor) -> Tensor:
        """``images (n, k, c, h, w)`` -> ``(n,)``: over the batch norms the sum of the Euclidean distances of means and
        of variances; zeros for a model without batch norm. Differentiable.
        """
        apart = images.new_zeros(len(images))
        for found, known in zip(self.network.lot_statistics(self.model, images), self.public, strict=True):
            apart = apart + torch.linalg.vector_norm(found - known, dim=2).sum(1)
        return apart
