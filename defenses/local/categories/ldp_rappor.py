"""Each client sends a few sampled coordinates as grid levels by RAPPOR (local DP; Erlingsson et al. 2014)."""

import math
from functools import cache

import numpy as np

from ....audit.claim import Value
from ....fl.plan import Plan
from ...randomisers.categories.rappor import Rappor
from .grid import Gridded, GriddedDefense

_BITS = 12
_HASHES = 2
_COHORTS = 100


class LDPRappor(GriddedDefense):
    """A local DP defense that encodes each coordinate's grid level in a Bloom filter of 12 bits with 2 hash functions,
    and flips every bit at random (RAPPOR's permanent step).

    The hash functions are public: those of the first hundred cohorts with the shortest decoder. A client decodes its
    bits before it sends them, and sends one number.
    """

    mechanism = "RAPPOR"
    source = f"{Rappor.source}; sampling: Wang et al. 2019, Algorithm 4"

    def number(self, epsilon: float) -> Gridded:
        cohort = _best_cohort(self.levels)
        return Gridded(randomiser=_rappor(epsilon, self.levels, cohort), levels=self.levels)

    def published(self, plan: Plan) -> dict[str, Value]:
        return super().published(plan) | {"bits": _BITS, "hashes": _HASHES, "cohort": _best_cohort(self.levels)}


def _rappor(epsilon: float, levels: int, cohort: int) -> Rappor:
    return Rappor(epsilon=epsilon, domain=levels, bits=_BITS, hashes=_HASHES, cohort=cohort)


@cache
def _best_cohort(levels: int) -> int:
    """The cohort with the shortest decoder, among those whose filters distinguish all levels and share no bit between
    both ends.
    """

    def length(cohort: int) -> float:
        filters = _rappor(1.0, levels, cohort).encoded(np.arange(levels)).astype(np.float64)
        grid = np.linspace(-1, 1, levels)
        weights, _, rank, _ = np.linalg.lstsq(filters, grid, rcond=None)
        # Levels whose filters share bits use less than the budget; both ends must use all of it.
        apart = np.abs(filters[0] - filters[-1]).sum() == 2 * _HASHES
        return float(np.linalg.norm(weights)) if apart and rank == levels else math.inf

    return min(range(_COHORTS), key=length)
