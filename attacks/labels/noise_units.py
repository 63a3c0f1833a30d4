"""Computes the noise level in each coordinate of an upload's gradient from the defense's published distribution."""

import numpy as np
import torch
from torch import Tensor

from ...fl.laws.law import GaussianLaw, Law, ReportLaw
from ...fl.laws.layered_law import LayeredGaussianLaw, spread_layers
from ...fl.plan import Plan

# Numbers drawn to measure the noise of a law without a formula.
_DRAWN = 2**21

# The whole report's variance counts as so many numbers of each layer, so that no small layer seems to have no noise.
_SHRUNK = 100


def noise_units(law: Law | None, plan: Plan, rng: np.random.Generator) -> tuple[Tensor, float]:
    """Return a unit of noise for each coordinate of a gradient, and the noise's standard deviation in these units.

    The units have shape ``(d,)``, or are one for all coordinates.

    One Gaussian noise for all coordinates needs no units, nor does a release without noise. A law of layers is measured
    in each layer's own noise, so that a noisy layer has less weight. For any other law with independent coordinates,
    reports of zero are drawn, and their root mean square in each layer is taken as the noise. A law with dependent
    coordinates, such as reports of a few coordinates, counts as no noise.
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
        # The law itself refuses a density by coordinate where its coordinates are dependent.
        law.log_densities(nothing, nothing)
    except ValueError:
        return False
    return True


def _drawn_stds(law: Law, plan: Plan, rng: np.random.Generator) -> Tensor:
    """Root mean square of a report of zero, equal within a layer, ``(d,)``."""
    layout = plan.layout
    rows = min(4096, max(4, _DRAWN // layout.dim))
    squares = law.sample(torch.zeros(rows, layout.dim), rng).double().square()
    whole, stds = squares.mean(), torch.empty(layout.dim, dtype=torch.float64)
    for layer in layout.slices.values():
        own = squares[:, layer]
        stds[layer] = ((own.sum() + _SHRUNK * whole) / (own.numel() + _SHRUNK)).sqrt()
    return stds
