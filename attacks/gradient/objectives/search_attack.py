"""Base class of attacks that search for images by an optimiser with several restarts."""

import math
from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ....audit.evidence import Reconstructions
from ....fl.fields import check_count, check_positive
from ....fl.view import View
from ...uploads import upload_setting
from .image_attack import ImageAttack
from .image_lots import ImageLots
from .search import Objective, Search, Slopes, best_restarts, upload_parts


@dataclass(frozen=True, kw_only=True)
class SearchAttack(ImageAttack, ABC):
    """A base class of attacks that reconstruct the images behind one round's uploads by gradient descent, with all
    restarts of many uploads in one batch.

    Each upload keeps the restart with the least objective; the choice does not use the truth.

    Args:
        iterations: steps of the search; the learning rate falls tenfold after 3/8, 5/8 and 7/8 of them.
        restarts: initial images per upload.
        learning_rate: of Adam (betas .9 and .999), in pixels.
    """

    signed: ClassVar[bool] = True
    """Whether Adam gets only the gradient's sign."""
    iterations: int = 100
    restarts: int = 2
    learning_rate: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("iterations", self.iterations)
        check_count("restarts", self.restarts)
        check_positive("learning_rate", self.learning_rate)

    def search(
        self, objective: Objective, start: ImageLots, dim: int, slopes: Callable[[slice], Slopes] | None = None
    ) -> ImageLots:
        """Optimise all candidate batches from ``start``, and return the best of the ``restarts`` candidates of each
        upload.

        The candidates of an upload are adjacent.

        Args:
            dim: size of one gradient; each image may have its own.
            slopes: gradients of the objectives of some candidates; by default those that PyTorch derives.
        """
        search = Search(iterations=self.iterations, learning_rate=self.learning_rate, signed=self.signed)
        images, labels = list[Tensor](), list[Tensor]()
        # Batch by batch: all candidates at once would not fit in memory.
        for part in self.parts(start, dim):
            values = objective(part)
            candidates = search.run(values, start.images[part], None if slopes is None else slopes(part))
            best = best_restarts(values, candidates, self.restarts)
            images.append(candidates[best])
            labels.append(start.labels[part][best])
        return ImageLots(images=torch.cat(images), labels=torch.cat(labels))

    def parts(self, start: ImageLots, dim: int) -> list[slice]:
        """Return slices of candidates, each optimised as one batch; an upload's result does not depend on the other
        uploads in its slice.
        """
        # The gradients of a lot's images take more memory than the images themselves.
        held = start.labels.shape[1] * dim + start.images[0].numel()
        return upload_parts(len(start.images), self.restarts, held)


def lots_evidence(found: Sequence[tuple[Tensor, ImageLots]], view: View) -> Reconstructions:
    """Combine the images reconstructed for several groups of uploads into one piece of evidence, in the order of the
    uploads.

    A group has its upload numbers ``(m,)`` in the view and one reconstructed batch per upload.
    """
    by_row = {
        row: (images, labels)
        for rows, lots in found
        for row, images, labels in zip(rows.tolist(), lots.images, lots.labels, strict=True)
    }
    ordered = [by_row[row] for row in sorted(by_row)]
    images, labels = (torch.cat([pair[which] for pair in ordered]).cpu().numpy() for which in (0, 1))
    # Labels that are no classes are no part of the evidence.
    classes = labels if labels.ndim == 1 else None
    # Groups interleave, so rows are put back in the order of the view's uploads.
    uploads = np.repeat(sorted(by_row), [len(pair[1]) for pair in ordered])
    return Reconstructions(images, classes, upload_setting(view), uploads)


def check_weight(name: str, weight: float) -> None:
    """Raise ValueError unless ``weight``, the weight of a term of the objective, is a number >= 0."""
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"{name} must be a number >= 0, got {weight}")
