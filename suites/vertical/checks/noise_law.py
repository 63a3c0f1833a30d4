"""Compare drawn noise with the distribution that a defense publishes, number by number.

The scale is that of the draws, because noise may be projected or scaled afterwards: Gaussian noise stays Gaussian then.
How large the noise is, is another check. Both p-values are upper bounds, so correct noise fails less often than stated.
"""

import math

import numpy as np
import torch
from torch import Tensor

from ....audit.arrays import FloatArray, IntArray
from ....fl.vertical.protection import Noise

_RESOLUTION, _COARSEST = 2.0**-23, 2.0**-21
"""Spacing of single precision over the numbers' size, and of a generator's values over their standard deviation."""
_DENSEST = 0.71
"""Largest density of Gaussian or Laplace noise times its standard deviation."""
_COARSER, _OFF = 4, 0.25
"""Spacing of a grid, at least, over that of single precision, and share of it by which numbers may lie off the grid."""


def least_p(drawn: Tensor, noise: Noise) -> float:
    """Return the smallest p-value over two tests of each number's noise, multiplied by the number of tests.

    ``drawn``: (draws, numbers) of one message, each number with noise. The tests: of the distance between the
    distributions (Kolmogorov and Smirnov), and of the value that repeats most often, which noise without atoms does
    only as often as single precision rounds two draws alike.
    """
    return _least_p(_ordered(drawn), noise)


def nearer_kind(drawn: Tensor, noise: Noise) -> Noise:
    """Return the kind of noise that is likelier for these draws, which are given as for ``least_p``; if both kinds are
    equally likely, return the kind of ``noise``.
    """
    ordered = _ordered(drawn)
    return max(sorted(Noise, key=lambda kind: kind is not noise), key=lambda kind: _least_p(ordered, kind))


def _ordered(drawn: Tensor) -> Tensor:
    """Each number's draws in order, (numbers, draws); numpy sorts them several times as fast as torch."""
    return torch.from_numpy(np.sort(drawn.T.contiguous().numpy(), axis=1))


def _least_p(ordered: Tensor, noise: Noise) -> float:
    if ordered.numel() == 0:
        return 1.0
    found = torch.minimum(_distance_p(ordered, noise), _repeats_p(ordered))
    return min(1.0, 2 * found.numel() * float(found.min()))


def on_grid(drawn: Tensor) -> bool:
    """Whether all draws are multiples of one number coarser than single precision, as after rounding.

    Numbers that are rounded before they are added to others are no multiples: the grid of their sum does not hold 0.
    """
    values = torch.unique(drawn)
    if len(values) < 2:
        return False
    gaps, largest = values.diff(), float(values.abs().max())
    # Numbers of single precision differ from the multiples by their own rounding, which the mean makes smaller.
    step = float(gaps[gaps < 1.5 * gaps.min()].mean())
    off = (values / step - (values / step).round()).abs().max()
    return step > _COARSER * _RESOLUTION * largest and float(off) < _OFF


def _distance_p(ordered: Tensor, noise: Noise) -> Tensor:
    """The inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant (1990)."""
    units = ordered - ordered.mean(1, keepdim=True)
    if noise is Noise.LAPLACE:
        units = units / units.abs().mean(1, keepdim=True)
        below = torch.where(units < 0, units.exp() / 2, 1 - (-units).exp() / 2)
    else:
        below = torch.special.ndtr(units / units.std(1, keepdim=True))
    draws = units.shape[1]
    steps = torch.arange(draws + 1, dtype=below.dtype) / draws
    apart = torch.maximum((steps[1:] - below).amax(1), (below - steps[:-1]).amax(1))
    return (2 * (-2 * draws * apart.square()).exp()).clamp_max(1.0)


def _repeats_p(ordered: Tensor) -> Tensor:
    """The expected number of sets of draws as large as the one of equal values, in draws without atoms."""
    draws, scale = ordered.shape[1], ordered.std(1)
    alike = torch.from_numpy(_longest(ordered.numpy())).double()
    spacing = torch.maximum(_RESOLUTION * ordered.abs().amax(1), _COARSEST * scale)
    chance = _DENSEST * draws * spacing / scale
    log = math.log(draws) + (alike - 1) * chance.log() - torch.lgamma(alike + 1)
    return log.clamp_max(0.0).exp()


def _longest(ordered: FloatArray) -> IntArray:
    """How often the most frequent value occurs in each row of numbers in order."""
    places = np.arange(ordered.shape[1])
    starts = np.ones(ordered.shape, dtype=bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.maximum.accumulate(np.where(starts, places, 0), axis=1)
    return np.asarray((places - first).max(axis=1) + 1)
