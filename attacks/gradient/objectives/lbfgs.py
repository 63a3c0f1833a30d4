"""Minimises many independent problems in one batch by L-BFGS (Nocedal 1980; two-loop recursion), without line search.

Follows ``torch.optim.LBFGS`` with its defaults: a first step of length at most 1 / |slope|_1, then the given one; pairs
with too little curvature are not used.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

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

    length: int
    scale: Tensor
    pairs: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)

    def learn(self, step: Tensor, change: Tensor) -> None:
        curvature = (step * change).sum(1, keepdim=True)
        good = curvature > 1e-10
        # A pair with weight 0 has no effect in the recursion, so all problems of a batch can store equally many.
        inverse = torch.where(good, 1 / curvature, 0.0)
        self.scale = torch.where(good, curvature / change.square().sum(1, keepdim=True), self.scale)
        self.pairs = [*self.pairs, (step, change, inverse)][-self.length :]

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
    values: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    iterations: int,
    learning_rate: float = 1.0,
    memory: int = MEMORY,
) -> Minimum:
    """Minimise n independent problems at once, where ``values`` maps points ``(n, d)`` to their objectives ``(n,)``;
    the search for a problem ends when its objective is no longer finite.
    """
    known = _Memory(length=memory, scale=torch.ones_like(start[:, :1]))
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
