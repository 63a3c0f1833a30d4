"""Search: Adam over the pixels of many candidate images at once, and the choice of the best restart.

A candidate is a lot of k images. Restarts of one upload stand side by side and are searched in one batch, with those of
as many other uploads as memory bears.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Values = Callable[[Tensor], Tensor]
"""Candidates ``(n, k, c, h, w)`` -> their objectives ``(n,)``, differentiable, less is better; a candidate's own must
depend on no other's, but for a pull of an upload's restarts to each other.
"""

Objective = Callable[[slice], Values]
"""Some of all candidates, whole uploads -> their objectives."""

_DECAYS = (3 / 8, 5 / 8, 7 / 8)
_HELD = 2**22
"""Numbers of gradients and images that one batch holds; a step of a search keeps some 20 times as many on its way."""


@dataclass(frozen=True, kw_only=True)
class Lots:
    """Candidate lots: ``images (n, k, c, h, w)`` in [0, 1] with their ``labels (n, k)``."""

    images: Tensor
    labels: Tensor


@dataclass(frozen=True, kw_only=True)
class Search:
    """Adam (Kingma and Ba 2015, Algorithm 1, betas .9 and .999), each step cut back to [0, 1].

    Args:
        iterations: steps; the learning rate falls tenfold after 3/8, 5/8 and 7/8 of them (Geiping et al. 2020).
        learning_rate: of Adam, in pixels.
        signed: whether Adam is fed the slope's sign only.
    """

    iterations: int
    learning_rate: float
    signed: bool

    def run(self, values: Values, start: Tensor) -> Tensor:
        """Candidates like ``start (n, k, c, h, w)`` after the last step."""
        images, mean, square = start.clamp(0, 1), torch.zeros_like(start), torch.zeros_like(start)
        for step in range(1, self.iterations + 1):
            slope = slopes(values, images)
            slope = slope.sign() if self.signed else slope
            mean = 0.9 * mean + 0.1 * slope
            square = 0.999 * square + 0.001 * slope.square()
            stride = (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + _least(slope, self.signed))
            images = (images - self.rate(step) * stride).clamp(0, 1)
        return images

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 1."""
        decays = sum(step > share * self.iterations for share in _DECAYS)
        return self.learning_rate * 0.1**decays


def upload_parts(lots: int, restarts: int, numbers: int) -> list[slice]:
    """``lots`` candidates, ``restarts`` an upload, in parts that one batch holds: whole uploads, one at least.

    Args:
        numbers: that one candidate holds.
    """
    size = restarts * max(1, _HELD // (restarts * numbers))
    return [slice(first, min(first + size, lots)) for first in range(0, lots, size)]


def slopes(values: Values, images: Tensor) -> Tensor:
    """Gradient of each candidate's objective by its pixels, of ``images``' shape."""
    point = images.detach().requires_grad_(True)
    (found,) = torch.autograd.grad(values(point).sum(), point)
    return found


def best_restarts(values: Values, candidates: Tensor, restarts: int) -> Tensor:
    """``(uploads * restarts, k, ...)`` -> the index ``(uploads,)`` of each upload's candidate of least objective, the
    first of equals. The truth has no say.
    """
    with torch.no_grad():
        found = values(candidates).view(-1, restarts)
    # A candidate whose objective is not a number is no find.
    best = found.nan_to_num(nan=torch.inf).argmin(1)
    return best + restarts * torch.arange(len(best), device=best.device)


def total_variation(images: Tensor) -> Tensor:
    """Anisotropic, ``(n, ..., h, w)`` -> ``(n,)``: mean absolute difference down plus across, as Geiping et al."""
    down = (images[..., 1:, :] - images[..., :-1, :]).abs().flatten(1).mean(1)
    across = (images[..., 1:] - images[..., :-1]).abs().flatten(1).mean(1)
    return down + across


def _least(slope: Tensor, signed: bool) -> float:
    # Adam's 1e-8 is for losses near 1: a plain slope may be of any unit.
    return 1e-8 if signed else 1e-30
