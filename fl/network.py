"""Network: a model and its loss as functions of a flat parameter vector, for one replica or a thousand. No data in
it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, one_hot

from .imprint import planted
from .layout import Layout
from .models import build_model, initial_parameters


@dataclass(frozen=True, kw_only=True)
class Network:
    """A public architecture with mean cross-entropy as its loss.

    Args:
        model: name of the architecture, see ``models.KNOWN_MODELS``.
        shape: (channels, height, width) of an image.
        classes: number of labels.
        inert: unused weights behind the model's own (see ``Layout``).
        bins: thresholds of the imprint layer, which a malicious server chose (see ``imprint``); for model ``imprint``.
    """

    model: str
    shape: tuple[int, int, int]
    classes: int
    inert: int = 0
    bins: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if (self.model == "imprint") != bool(self.bins):
            raise ValueError(f"bins are for model imprint, which needs them: got {len(self.bins)} for {self.model}")

    @cached_property
    def module(self) -> nn.Module:
        """The architecture; its own weights are never used."""
        return build_model(self.model, shape=self.shape, classes=self.classes, bins=len(self.bins) or None)

    @cached_property
    def layout(self) -> Layout:
        """Where each layer stands in the flat vector."""
        named = dict(self.module.named_parameters())
        return Layout(names=tuple(named), shapes=tuple(tuple(p.shape) for p in named.values()), inert=self.inert)

    def initial(self, rng: np.random.Generator) -> Tensor:
        """Fresh parameters ``(d,)``; inert weights start at zero, an imprint layer as its server planted it."""
        drawn = initial_parameters(self.module, rng)
        return self.layout.flatten(drawn | (planted(self.shape, self.bins) if self.bins else {}))

    def logits(self, params: Tensor, images: Tensor) -> Tensor:
        """``params (d,)``, ``images (n, c, h, w)`` -> ``(n, classes)``; differentiable in both."""
        logits: Tensor = functional_call(self.module, self.layout.unflatten(params), (images,))
        return logits

    def losses(self, params: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of each image, ``(n,)``."""
        return cross_entropy(self.logits(params, images), labels, reduction="none")

    def lot_gradients(self, params: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Gradient of the mean loss of each of n lots, ``(n, d)``; differentiable in all.

        ``params (d,)``, or ``(n, d)`` for lots at models of their own; ``images (n, k, c, h, w)``, class probabilities
        ``labels (n, k, classes)``.
        """
        # By layers: their slices are not taken apart and put together again for each lot.
        of_lots = vmap(grad(self._soft_loss), in_dims=(None if params.ndim == 1 else 0, 0, 0))
        return self.layout.flatten(of_lots(self.layout.unflatten(params), images, labels))

    def sample_gradients(self, params: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Per-sample gradients: ``params (R, d)``, ``images (R, n, c, h, w)``, ``labels (R, n)`` -> ``(R, n, d)``."""
        if self.model == "logistic":
            return self._linear_gradients(params, images, labels)
        per_sample = vmap(grad(self._loss_of_one), in_dims=(None, 0, 0))
        if len(params) == 1:
            rows: Tensor = per_sample(params[0], images[0], labels[0]).unsqueeze(0)
            return rows
        batched: Tensor = vmap(per_sample)(params, images, labels)
        return batched

    def gradient(self, params: Tensor, images: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Weighted sum of the samples' gradients: as above with ``weights (R, n)`` -> ``(R, d)``."""
        if self.model == "logistic":
            return self._linear_gradient(params, images, labels, weights)
        if len(params) == 1:
            point = params[0].detach().requires_grad_(True)
            (row,) = torch.autograd.grad((self.losses(point, images[0], labels[0]) * weights[0]).sum(), point)
            return row.unsqueeze(0)

        def weighted(point: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
            return (self.losses(point, x, y) * w).sum()

        batched: Tensor = vmap(grad(weighted))(params, images, labels, weights)
        return batched

    def _soft_loss(self, layers: Mapping[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
        logits: Tensor = functional_call(self.module, dict(layers), (images,))
        return -(labels * logits.log_softmax(-1)).sum(-1).mean()

    def _loss_of_one(self, params: Tensor, image: Tensor, label: Tensor) -> Tensor:
        return self.losses(params, image.unsqueeze(0), label.unsqueeze(0))[0]

    def _residuals(self, params: Tensor, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Softmax minus one-hot ``(R, n, classes)`` and the flat images ``(R, n, pixels)``."""
        weight, bias = self.layout.unflatten(params).values()
        flat = images.flatten(2)
        logits = flat @ weight.transpose(1, 2) + bias.unsqueeze(1)
        return logits.softmax(-1) - one_hot(labels, self.classes).to(logits.dtype), flat

    def _linear_gradients(self, params: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Closed form for one linear layer: (softmax - one-hot) outer image. Seven times faster than vmap(grad)."""
        residual, flat = self._residuals(params, images, labels)
        rows = params.new_zeros(*residual.shape[:2], self.layout.dim)
        size = self.classes * prod(self.shape)
        torch.mul(
            residual.unsqueeze(-1), flat.unsqueeze(-2), out=rows[..., :size].view(*residual.shape, flat.shape[-1])
        )
        rows[..., size : size + self.classes] = residual
        return rows

    def _linear_gradient(self, params: Tensor, images: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        residual, flat = self._residuals(params, images, labels)
        residual = residual * weights.unsqueeze(-1)
        parts = [
            (residual.transpose(1, 2) @ flat).flatten(1),
            residual.sum(1),
            params.new_zeros(len(params), self.inert),
        ]
        return torch.cat(parts, dim=1)
