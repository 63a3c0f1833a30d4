"""Noise of a published law, layer by layer: what each coordinate of an upload's gradient is measured in."""

import numpy as np
import torch
from torch import Tensor

from ...fl.laws.law import GaussianLaw, Law, ReportLaw
from ...fl.laws.layered_law import LayeredGaussianLaw, spread_layers
from ...fl.plan import Plan

_DRAWN = 2**21
"""Numbers of reports that are drawn to see how loud a law is."""

_SHRUNK = 100
"""Numbers of the whole report that stand beside a layer's own, so that no layer that was hardly drawn looks silent."""


def noise_units(law: Law | None, plan: Plan, rng: np.random.Generator) -> tuple[Tensor, float]:
    """In what coordinates of a gradient are measured, ``(d,)`` or one for all, and the noise of one in these units.

    One Gaussian noise needs no units, nor does none. A law of layers is measured in each layer's own noise, so that a
    loud layer weighs as little as it tells. Of any other law that reports each coordinate by itself, reports of zero
    are drawn, and their root mean square in each layer stands for the noise. One whose coordinates hang together, as
    where a few are sent, counts as none.
    """
    gradient = plan.algorithm.gradient
    if isinstance(law, GaussianLaw):
        return torch.ones(1, dtype=torch.float64), float(gradient(torch.tensor(law.noise_std)).abs())
    if not isinstance(law, ReportLaw) or not _by_coordinate(law, plan.layout.dim):
        return torch.ones(1, dtype=torch.float64), 0.0
    if isinstance(law, LayeredGaussianLaw):
        stds = spread_layers(torch.tensor(law.noise_stds, dtype=torch.float64), law.starts, plan.layout.dim)
    else:
        stds = _drawn_stds(law, plan, rng)
    return gradient(stds).abs(), 1.0


def _by_coordinate(law: ReportLaw, dim: int) -> bool:
    nothing = torch.zeros(1, dim)
    try:
        law.log_densities(nothing, nothing)
    except ValueError:
        return False
    return True


def _drawn_stds(law: Law, plan: Plan, rng: np.random.Generator) -> Tensor:
    """Root mean square of a report of zero, the same within a layer, ``(d,)``."""
    layout = plan.layout
    rows = min(4096, max(4, _DRAWN // layout.dim))
    squares = law.sample(torch.zeros(rows, layout.dim), rng).double().square()
    whole, stds = squares.mean(), torch.empty(layout.dim, dtype=torch.float64)
    for layer in layout.slices.values():
        own = squares[:, layer]
        stds[layer] = ((own.sum() + _SHRUNK * whole) / (own.numel() + _SHRUNK)).sqrt()
    return stds
