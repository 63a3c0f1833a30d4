"""What attacks that search for images share: their fields, the bounds of these, the optimiser, the evidence."""

import math
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ....audit.evidence import Reconstructions
from ....fl.fields import check_count, check_positive
from ....fl.view import View
from ...attack import Attack
from ...uploads import check_round, upload_setting
from .search import Lots, Objective, Search, best_restarts, upload_parts


@dataclass(frozen=True, kw_only=True)
class SearchAttack(Attack, ABC):
    """Images of the uploads of ``round``, found by gradient descent in all restarts of many uploads in one batch.

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
        check_count("iterations", self.iterations)
        check_count("restarts", self.restarts)
        check_positive("learning_rate", self.learning_rate)

    def search(self, objective: Objective, start: Lots, dim: int) -> Lots:
        """From ``start``, ``restarts`` candidates an upload side by side, to the best of each upload.

        Args:
            dim: numbers of one gradient; each image may have one of its own.
        """
        search = Search(iterations=self.iterations, learning_rate=self.learning_rate, signed=self.signed)
        images, labels = list[Tensor](), list[Tensor]()
        for part in self.parts(start, dim):
            values = objective(part)
            candidates = search.run(values, start.images[part])
            best = best_restarts(values, candidates, self.restarts)
            images.append(candidates[best])
            labels.append(start.labels[part][best])
        return Lots(images=torch.cat(images), labels=torch.cat(labels))

    def parts(self, start: Lots, dim: int) -> list[slice]:
        """Candidates that are searched in one batch: an upload's finds do not hang on who else is in its part."""
        held = start.labels.shape[1] * dim + start.images[0].numel()
        return upload_parts(len(start.images), self.restarts, held)


def lots_evidence(found: Sequence[tuple[Tensor, Lots]], view: View) -> Reconstructions:
    """Evidence, upload by upload, of groups of uploads: each with its rows ``(m,)`` in the view and a lot a row."""
    by_row = {
        row: (images, labels)
        for rows, lots in found
        for row, images, labels in zip(rows.tolist(), lots.images, lots.labels, strict=True)
    }
    ordered = [by_row[row] for row in sorted(by_row)]
    images, labels = (torch.cat([pair[which] for pair in ordered]).cpu().numpy() for which in (0, 1))
    uploads = np.repeat(sorted(by_row), [len(pair[1]) for pair in ordered])
    return Reconstructions(images, labels, upload_setting(view), uploads)


def check_weight(name: str, weight: float) -> None:
    """Raise ValueError unless ``weight`` is a number >= 0."""
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"{name} must be a number >= 0, got {weight}")
