"""Searches for images: many candidates at once by Adam or L-BFGS, the objective and its slopes, and the best restart.

A candidate is a lot of k images. Restarts of one upload are adjacent and are searched in one batch, together with those
of as many other uploads as memory allows.

The objective is the cosine distance of gradients plus total variation (Geiping et al. 2020, eq. 4). A penalty may
compare batch-norm statistics of candidate and public images (Yin et al. 2021, section 3.2): batch norm removes a lot's
overall contrast from its gradient (a lot half as bright has the same gradient), and the statistics restore it.

L-BFGS (Nocedal 1980; two-loop recursion) has no line search and follows ``torch.optim.LBFGS`` with its defaults: a
first step of length at most 1 / |slope|_1, then the given one; pairs with too little curvature are not used.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...fl.models.network import Network

Values = Callable[[Tensor], Tensor]
"""Candidates ``(n, k, c, h, w)`` -> their objectives ``(n,)``, differentiable, lower is better. A candidate's objective
must not depend on other candidates, except for a pull between the restarts of one upload.
"""

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

    def run(self, values: Values, start: Tensor) -> Tensor:
        """Return the candidate images after the last optimisation step, in the shape of ``start (n, k, c, h, w)``."""
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
        """The uploads scaled to unit length, without inert (unused) weights, ``(n, model_dim)``."""
        kept = self.gradients[:, : self.network.layout.model_dim]
        directions: Tensor = kept / torch.linalg.vector_norm(kept, dim=1, keepdim=True)
        return directions


MEMORY = 20
"""Number of steps that are stored."""


@dataclass(frozen=True, kw_only=True)
class Minimum:
    """A minimisation's result: the best ``points (n, d)`` found and their ``values (n,)``, infinite if no finite value
    was found.
    """

    points: Tensor
    values: Tensor


@dataclass(kw_only=True)
class _Memory:
    """Pairs of steps and changes of slope, ``(n, d)`` each, the latest last; ``scale (n, 1)``: of the initial guess."""

    scale: Tensor
    pairs: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)

    def learn(self, step: Tensor, change: Tensor) -> None:
        curvature = (step * change).sum(1, keepdim=True)
        good = curvature > 1e-10
        # A pair with weight 0 has no effect in the recursion, so all problems of a batch can store equally many.
        inverse = torch.where(good, 1 / curvature, 0.0)
        self.scale = torch.where(good, curvature / change.square().sum(1, keepdim=True), self.scale)
        self.pairs = [*self.pairs, (step, change, inverse)][-MEMORY:]

    def direction(self, slope: Tensor) -> Tensor:
        """Return the L-BFGS search direction: minus the approximate inverse Hessian times the gradient."""
        q, shares = -slope, []
        for step, change, inverse in reversed(self.pairs):
            share = inverse * (step * q).sum(1, keepdim=True)
            q = q - share * change
            shares.append(share)
        q = q * self.scale
        for (step, change, inverse), share in zip(self.pairs, reversed(shares), strict=True):
            q = q + step * (share - inverse * (change * q).sum(1, keepdim=True))
        return q


def minimise(
    values: Callable[[Tensor], Tensor], start: Tensor, *, iterations: int, learning_rate: float = 1.0
) -> Minimum:
    """Minimise n independent problems at once, where ``values`` maps points ``(n, d)`` to their objectives ``(n,)``;
    the search for a problem ends when its objective is no longer finite.
    """
    known = _Memory(scale=torch.ones_like(start[:, :1]))
    point, value, slope = start, *_slope(values, start)
    best = Minimum(points=start, values=value.nan_to_num(nan=torch.inf, posinf=torch.inf))
    for iteration in range(iterations):
        direction = known.direction(slope)
        # The first direction is the plain slope, whose length has no meaning yet.
        length = (1 / slope.abs().sum(1, keepdim=True)).clamp_max(1.0) if iteration == 0 else 1.0
        step = learning_rate * length * direction
        after, (value, new) = point + step, _slope(values, point + step)
        # A problem that diverges must not stop the others in its batch.
        alive = (value.isfinite() & new.isfinite().all(1)).unsqueeze(1)
        step, new = torch.where(alive, step, 0.0), torch.where(alive, new, slope)
        known.learn(step, new - slope)
        point, slope = torch.where(alive, after, point), new
        better = alive[:, 0] & (value < best.values)
        best = Minimum(
            points=torch.where(better.unsqueeze(1), after, best.points),
            values=torch.where(better, value, best.values),
        )
    return best


def _slope(values: Callable[[Tensor], Tensor], point: Tensor) -> tuple[Tensor, Tensor]:
    point = point.detach().requires_grad_(True)
    value = values(point)
    (slope,) = torch.autograd.grad(value.sum(), point)
    return value.detach(), slope


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
