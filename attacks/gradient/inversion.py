"""Gradient inversion: search for the image whose gradient points where the upload does (Geiping et al. 2020, eq. 4)."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import one_hot

from ...audit.evidence import Reconstructions
from ...fl.network import Network
from ...fl.streams import uniform
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..labels.idlg import inferred_labels
from ..uploads import Uploads, check_round, read_uploads, upload_setting

_DECAYS = (3 / 8, 5 / 8, 7 / 8)


@dataclass(frozen=True, kw_only=True)
class Objective:
    """1 - cosine of two gradients + total variation: of many candidate images at once, each against its own upload.

    Args:
        network: model and loss.
        model: (d,), at which the uploads were computed.
        gradients: (n, d), one upload a candidate; its length does not matter, so clipping changes nothing.
        labels: (n, classes), one-hot.
        total_variation: weight of the image prior.
    """

    network: Network
    model: Tensor
    gradients: Tensor
    labels: Tensor
    total_variation: float

    def values(self, images: Tensor) -> Tensor:
        """``images (n, c, h, w)`` -> ``(n,)``, differentiable; a candidate's value depends on no other candidate."""
        per_sample = vmap(grad(self.network.loss_with_soft_label), in_dims=(None, 0, 0))
        rows = per_sample(self.model, images, self.labels)
        # Inert weights carry noise and no data: they would only dim the cosine.
        kept = self.network.layout.model_dim
        cosine = torch.cosine_similarity(rows[:, :kept], self.gradients[:, :kept], dim=1, eps=1e-12)
        return 1 - cosine + self.total_variation * total_variation(images)

    def slopes(self, images: Tensor) -> Tensor:
        """Gradient of each candidate's value by its pixels, ``(n, c, h, w)``."""
        # Plain autograd around a vmapped inner gradient: .29 ms a candidate, where vmap(grad) around it takes .41.
        point = images.detach().requires_grad_(True)
        (slopes,) = torch.autograd.grad(self.values(point).sum(), point)
        return slopes


@dataclass(frozen=True, kw_only=True)
class GradientInversion(Attack):
    """One image an upload of ``round``, by "Inverting Gradients": signed Adam on the cosine, several restarts.

    Every restart of every upload runs in one batch, and the restart that an upload keeps is the one with the least
    objective: the truth has no say. Meant for uploads of one sample; of a larger lot it finds one blend.
    It does not use a defense's law: that it fails under noise says nothing of an attack that does.

    Args:
        iterations: steps of the search; the learning rate falls tenfold after 3/8, 5/8 and 7/8 of them.
        restarts: initial images an upload, drawn uniformly in [0, 1].
        learning_rate: of Adam (betas .9 and .999), which is fed the slope's sign only.
        total_variation: weight of the mean absolute difference of neighbouring pixels. The paper's 1e-6 is for natural
            images of 32x32 and 224x224 pixels under LeNet and ResNet.
        labels: how the label is found first; ``idlg`` is the only rule.
    """

    iterations: int = 100
    restarts: int = 2
    learning_rate: float = 0.1
    total_variation: float = 1e-4
    labels: Literal["idlg"] = "idlg"
    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)
        for name, count in (("iterations", self.iterations), ("restarts", self.restarts)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"{name} must be a whole number >= 1, got {count!r}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"learning_rate must be a number > 0, got {self.learning_rate}")
        if not (math.isfinite(self.total_variation) and self.total_variation >= 0):
            raise ValueError(f"total_variation must be a number >= 0, got {self.total_variation}")
        if self.labels != "idlg":
            raise ValueError(f"labels must be 'idlg', got {self.labels!r}")

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        """Images ``(n, c, h, w)`` and labels ``(n,)``. Raises ValueError for a zero or non-finite upload."""
        uploads = read_uploads(view, knowledge, self.round)
        network, labels = knowledge.network, inferred_labels(uploads.gradients, knowledge.network.layout)
        objective = self._objective(uploads, labels, network)
        start = uniform(rng, (len(labels) * self.restarts, *network.shape))
        candidates = self._search(objective, start)
        best = objective.values(candidates).detach().view(-1, self.restarts).argmin(1)
        images = candidates.view(-1, self.restarts, *network.shape)[torch.arange(len(labels)), best]
        return Reconstructions(images.numpy(), labels.numpy(), upload_setting(view))

    def _objective(self, uploads: Uploads, labels: Tensor, network: Network) -> Objective:
        """Restarts of one upload stand side by side."""
        return Objective(
            network=network,
            model=uploads.model,
            gradients=uploads.gradients.repeat_interleave(self.restarts, 0),
            labels=one_hot(labels, network.classes).to(uploads.model).repeat_interleave(self.restarts, 0),
            total_variation=self.total_variation,
        )

    def _search(self, objective: Objective, images: Tensor) -> Tensor:
        """Adam (Kingma and Ba 2015, Algorithm 1) on the sign of the slope, each step cut back to [0, 1]."""
        mean, square = torch.zeros_like(images), torch.zeros_like(images)
        for step in range(1, self.iterations + 1):
            sign = objective.slopes(images).sign()
            mean = 0.9 * mean + 0.1 * sign
            square = 0.999 * square + 0.001 * sign.square()
            stride = (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + 1e-8)
            images = (images - self._rate(step) * stride).clamp(0, 1)
        return images

    def _rate(self, step: int) -> float:
        """Learning rate of a step, counted from 1."""
        decays = sum(step > share * self.iterations for share in _DECAYS)
        return self.learning_rate * 0.1**decays


def total_variation(images: Tensor) -> Tensor:
    """Anisotropic, ``(n, c, h, w)`` -> ``(n,)``: mean absolute difference down plus across, as Geiping et al."""
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().mean((1, 2, 3))
    across = (images[..., 1:] - images[..., :-1]).abs().mean((1, 2, 3))
    return down + across
