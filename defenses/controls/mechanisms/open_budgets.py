"""This broken mechanism sends clients' personal budgets with their reports, so a budget that only one client has
identifies it.

The real bug: the analyser needs each client's budget to debias its report, so the budget is sent in the same message. A
client with a rare budget can then be found among the shuffled reports.
"""

import numpy as np
from scipy.special import expit

from ....audit.arrays import FloatArray
from ....audit.claim import Adjacency, Unit
from ....audit.observer import SHUFFLED
from ...accounting.counts import binomial, bit_among
from ..mutant import Mutant, mechanism_claim
from .bits import randomised_response

RARE, COMMON, DELTA, CLIENTS = 2.0, 1.0, 1e-5, 200


def mutant() -> Mutant:
    pair = bit_among(binomial(CLIENTS - 1, float(expit(-COMMON))), epsilon=RARE)

    return Mutant(
        claim=mechanism_claim(
            epsilon=pair.epsilon(DELTA),
            delta=DELTA,
            unit=Unit.REPORT,
            adjacency=Adjacency.REPLACE_ONE,
            observer=SHUFFLED,
            mechanism=f"randomised response of {CLIENTS} clients with budgets of their own, shuffled",
            dp_model="shuffle",
            source="exact from the law of the number of ones",
        ),
        correct=lambda world, n, rng: _reports(world, n, rng, linked=False),
        broken=lambda world, n, rng: _reports(world, n, rng, linked=True),
        scores=(_with_the_rare_budget,),
        witness=f"one client of budget {RARE:g} holds 1 or 0, {CLIENTS - 1} of budget {COMMON:g} hold 0; the report "
        "that arrives with the rare budget",
    )


def _reports(world: int, n: int, rng: np.random.Generator, *, linked: bool) -> FloatArray:
    """(n, clients, 2): bit and budget in a shuffled order; the budgets stay with their bits if ``linked``, else they
    are shuffled separately.
    """
    budgets = np.full((n, CLIENTS), COMMON)
    budgets[:, 0] = RARE
    bits = np.zeros((n, CLIENTS))
    bits[:, :1] = randomised_response(np.full((n, 1), world), epsilon=RARE, rng=rng)
    bits[:, 1:] = randomised_response(bits[:, 1:], epsilon=COMMON, rng=rng)
    # Bits and budgets are the same draws in both versions; only the link between them differs.
    order = rng.permuted(np.tile(np.arange(CLIENTS), (n, 1)), axis=1)
    other = order if linked else rng.permuted(order, axis=1)
    return np.stack([np.take_along_axis(bits, order, 1), np.take_along_axis(budgets, other, 1)], axis=2)


def _with_the_rare_budget(reports: np.ndarray) -> FloatArray:
    place = reports[..., 1].argmax(axis=1)
    return np.asarray(reports[np.arange(len(reports)), place, 0], dtype=np.float64)
