"""This broken secure sum loses the noise shares of clients that drop out.

The real bug: every client adds its share of the noise before the secure sum, half of the clients drop out, and the
missing noise is not replaced (Kairouz, Liu, Steinke 2021, section on drop-out).
"""

import math

import numpy as np

from ....audit.arrays import FloatArray
from ..mutant import Mutant
from .noise_shares import secure_sum_claim, total

CLIENTS, DROPPED = 40, 20


def mutant() -> Mutant:
    claim, sigma = secure_sum_claim(f"Gaussian shares of {CLIENTS} clients in a secure sum")
    share = sigma / math.sqrt(CLIENTS)

    def recovered(world: int, n: int, rng: np.random.Generator) -> FloatArray:
        # The survivors add fresh shares; revealing the seeds of the missing ones would show the noise to the server.
        return total(world, n, rng, shares=CLIENTS, share=share)

    def lost(world: int, n: int, rng: np.random.Generator) -> FloatArray:
        return total(world, n, rng, shares=CLIENTS - DROPPED, share=share)

    return Mutant(
        claim=claim,
        correct=recovered,
        broken=lost,
        scores=(lambda sums: np.asarray(sums, dtype=np.float64),),
        witness=f"one client of clip norm or none, the others 0, {DROPPED} of {CLIENTS} dropped; the sum",
    )
