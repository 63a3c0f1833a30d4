"""Searches for images: runs Adam over the pixels of many candidates at once, and chooses the best restart.

A candidate is a lot of k images. Restarts of one upload are adjacent and are searched in one batch, together with those
of as many other uploads as memory allows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

Values = Callable[[Tensor], Tensor]
"""Candidates ``(n, k, c, h, w)`` -> their objectives ``(n,)``, differentiable, lower is better. A candidate's objective
must not depend on other candidates, except for a pull between the restarts of one upload.
"""

Slopes = Callable[[Tensor], Tensor]
"""Candidates ``(n, k, c, h, w)`` -> the gradients of their objectives with respect to their pixels, of that shape."""

Objective = Callable[[slice], Values]
"""A slice of the candidates, whole uploads -> their objectives."""

_DECAYS = (3 / 8, 5 / 8, 7 / 8)
# Gradients and images in one batch hold at most so many numbers; a step of a search needs about 20 times that memory.
_HELD = 2**22


@dataclass(frozen=True, kw_only=True)
class Search:
    """An optimiser of pixels: Adam (Kingma and Ba 2015, Algorithm 1, betas .9 and .999), clamped to [0, 1] after each
    step.

    Args:
        iterations: steps; the learning rate falls tenfold after 3/8, 5/8 and 7/8 of them (Geiping et al. 2020).
        learning_rate: of Adam, in pixels.
        signed: whether Adam gets only the gradient's sign.
    """

    iterations: int
    learning_rate: float
    signed: bool

    def run(self, values: Values, start: Tensor, slopes_of: Slopes | None = None) -> Tensor:
        """Return the candidate images after the last optimisation step, in the shape of ``start (n, k, c, h, w)``.

        ``slopes_of``: computes the gradients of ``values``; by default ``slopes``.
        """
        slopes_of = slopes_of or partial(slopes, values)
        images, mean, square = start.clamp(0, 1), torch.zeros_like(start), torch.zeros_like(start)
        for step in range(1, self.iterations + 1):
            slope = slopes_of(images)
            slope = slope.sign() if self.signed else slope
            mean = 0.9 * mean + 0.1 * slope
            square = 0.999 * square + 0.001 * slope.square()
            stride = (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + _least(slope, self.signed))
            images = (images - self.rate(step) * stride).clamp(0, 1)
        return images

    def rate(self, step: int) -> float:
        """Return the learning rate of an optimisation step; steps are counted from 1."""
        decays = sum(step > share * self.iterations for share in _DECAYS)
        return self.learning_rate * 0.1**decays


def upload_parts(lots: int, restarts: int, numbers: int) -> list[slice]:
    """Split all candidates (``restarts`` for each upload) into batches, with all candidates of an upload in the same
    batch.

    Args:
        numbers: size of one candidate, in numbers.
    """
    size = restarts * max(1, _HELD // (restarts * numbers))
    return [slice(first, min(first + size, lots)) for first in range(0, lots, size)]


def slopes(values: Values, images: Tensor) -> Tensor:
    """Compute the gradient of each candidate's objective with respect to its pixels, in the shape of ``images``."""
    point = images.detach().requires_grad_(True)
    (found,) = torch.autograd.grad(values(point).sum(), point)
    return found


def best_restarts(values: Values, candidates: Tensor, restarts: int) -> Tensor:
    """Return the index ``(uploads,)`` of each upload's candidate with the least objective, among ``candidates`` of
    shape ``(uploads * restarts, k, ...)``.

    The first of ties. The choice does not use the truth.
    """
    with torch.no_grad():
        found = values(candidates).view(-1, restarts)
    # A candidate whose objective is NaN must not win.
    best = found.nan_to_num(nan=torch.inf).argmin(1)
    return best + restarts * torch.arange(len(best), device=best.device)


def total_variation(images: Tensor) -> Tensor:
    """Compute the anisotropic total variation of images ``(n, ..., h, w)``, shape ``(n,)``: the mean absolute
    difference of vertical neighbours plus that of horizontal neighbours (Geiping et al. 2020).
    """
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().flatten(1).mean(1)
    across = (images[..., 1:] - images[..., :-1]).abs().flatten(1).mean(1)
    return down + across


def _least(slope: Tensor, signed: bool) -> float:
    # Adam's usual 1e-8 is meant for losses near 1; a gradient used as it is may be far smaller.
    return 1e-8 if signed else 1e-30
