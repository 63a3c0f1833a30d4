"""This broken mechanism claims amplification by shuffling, although no shuffler runs.

The real bug: the reports travel over authenticated connections, or the shuffler is a stub that keeps their order.
"""

import numpy as np

from ....audit.arrays import FloatArray
from ....audit.claim import Adjacency, Unit
from ....audit.observer import SHUFFLED
from ...accounting.clones import shuffled_bits
from ..mutant import Mutant, mechanism_claim
from .bits import randomised_response

EPSILON0, DELTA, CLIENTS = 2.0, 1e-5, 200


def mutant() -> Mutant:
    def ordered(world: int, n: int, rng: np.random.Generator) -> np.ndarray:
        bits = np.zeros((n, CLIENTS), dtype=np.int8)
        bits[:, 0] = world
        return randomised_response(bits, epsilon=EPSILON0, rng=rng)

    return Mutant(
        claim=mechanism_claim(
            epsilon=shuffled_bits(clients=CLIENTS, epsilon0=EPSILON0).epsilon(DELTA),
            delta=DELTA,
            unit=Unit.REPORT,
            adjacency=Adjacency.REPLACE_ONE,
            observer=SHUFFLED,
            mechanism=f"randomised response of {CLIENTS} clients, shuffled",
            dp_model="shuffle",
            source="exact from the law of the number of ones",
        ),
        correct=lambda world, n, rng: rng.permuted(ordered(world, n, rng), axis=1),
        broken=ordered,
        scores=(_first,),
        witness=f"one client holds 1 or 0, {CLIENTS - 1} hold 0; the report that arrives in its place",
    )


def _first(reports: np.ndarray) -> FloatArray:
    return np.asarray(reports[:, 0], dtype=np.float64)
