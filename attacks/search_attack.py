"""What attacks that search for images share: their fields, the bounds of these, the optimiser, the evidence."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ..audit.evidence import Reconstructions
from ..fl.view import View
from .attack import Attack
from .gradient.search import Search, Values, best_restarts
from .uploads import check_round, upload_setting


@dataclass(frozen=True, kw_only=True)
class SearchAttack(Attack):
    """Images of the uploads of ``round``, found by gradient descent in all restarts of all uploads in one batch.

    The restart that an upload keeps is the one with the least objective: the truth has no say.

    Args:
        iterations: steps of the search; the learning rate falls tenfold after 3/8, 5/8 and 7/8 of them.
        restarts: initial images an upload.
        learning_rate: of Adam (betas .9 and .999), in pixels.
    """

    signed: ClassVar[bool] = True
    """Whether Adam is fed the slope's sign only."""
    iterations: int = 100
    restarts: int = 2
    learning_rate: float = 0.1
    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)
        for name, count in (("iterations", self.iterations), ("restarts", self.restarts)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"{name} must be a whole number >= 1, got {count!r}")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise ValueError(f"learning_rate must be a number > 0, got {self.learning_rate}")

    def found(self, values: Values, start: Tensor, labels: Tensor, view: View) -> Reconstructions:
        """Search from ``start (uploads * restarts, k, c, h, w)``, each candidate with its ``labels (., k)``."""
        search = Search(iterations=self.iterations, learning_rate=self.learning_rate, signed=self.signed)
        candidates = search.run(values, start)
        best = best_restarts(values, candidates, self.restarts)
        return lot_evidence(candidates[best], labels[best], view)


def lot_evidence(images: Tensor, labels: Tensor | None, view: View) -> Reconstructions:
    """Evidence of ``images (uploads, k, c, h, w)`` and ``labels (uploads, k)``, upload by upload."""
    uploads = torch.arange(len(images)).repeat_interleave(images.shape[1])
    named = None if labels is None else labels.flatten().cpu().numpy()
    return Reconstructions(images.flatten(0, 1).cpu().numpy(), named, upload_setting(view), uploads.numpy())


def check_weight(name: str, weight: float) -> None:
    """Raise ValueError unless ``weight`` is a number >= 0."""
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"{name} must be a number >= 0, got {weight}")
