"""This broken Laplace mechanism adds noise in single precision, and low bits of the result reveal the value.

The real bug: floating-point numbers lie closer together near 0 than near 1, so the low bits of ``x + noise`` reveal x
(Mironov 2012, "On significance of the least significant bits for differential privacy").
"""

import math

import numpy as np

from ....audit.arrays import FloatArray
from ..mutant import Mutant, report_claim

EPSILON = 1.0
_GRID = 2.0**-10
# Near 1 - noise, every single-precision sum is a multiple of 2^-24; near 0 hardly any is.
_COARSE = 2.0**24
_NEAR = 2.0**-5


def mutant() -> Mutant:
    return Mutant(
        claim=report_claim(
            epsilon=EPSILON,
            mechanism="Laplace on [0, 1]",
            source="Dwork et al. 2006; discrete Laplace: Ghosh, Roughgarden, Sundararajan 2012",
        ),
        correct=_discrete,
        broken=_single_precision,
        scores=(_score,),
        witness=f"the values 1 and 0; the event {{output within {_NEAR:g} of 0 and a multiple of 2^-24}}",
    )


def _discrete(world: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Laplace on a grid of 2^-10: the difference of two geometric numbers, which is exact in any precision."""
    stop = -math.expm1(-EPSILON * _GRID)
    steps = rng.geometric(stop, size=n) - rng.geometric(stop, size=n)
    return np.asarray(world + steps * _GRID, dtype=np.float64)


def _single_precision(world: int, n: int, rng: np.random.Generator) -> np.ndarray:
    size = rng.standard_exponential(n, dtype=np.float32) / np.float32(EPSILON)
    sign = np.where(rng.random(n) < 0.5, np.float32(-1), np.float32(1))
    return np.asarray(np.float32(world) + sign * size, dtype=np.float32)


def _score(outputs: np.ndarray) -> FloatArray:
    exact = outputs.astype(np.float64)
    on_the_grid = np.mod(exact * _COARSE, 1.0) == 0
    # Both conditions are needed: far from 0 single precision lies on the coarse grid under either input.
    return np.asarray((np.abs(exact) < _NEAR) & on_the_grid, dtype=np.float64)
