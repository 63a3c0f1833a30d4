"""The Renyi divergence multiplies by the variance of the noise where it should divide, so less noise costs less."""

import numpy as np

from dp_faults import Case, Claim, Program

from ._exact import ORDERS, epsilon_of_rdp

SIGMA, DELTA = 0.5, 1e-3


def stated(rdp):
    return min(epsilon_of_rdp(rdp(order), order, DELTA) for order in ORDERS)


def release(data, rng):
    return np.array([np.clip(data, 0, 1).sum() + rng.normal(scale=SIGMA)])


def program(rdp):
    claim = Claim(epsilon=stated(rdp), delta=DELTA, adjacency="add_remove")
    law = {"mechanism": "gaussian", "noise_multiplier": SIGMA, "rate": 1.0, "steps": 1}
    return Program(claim=claim, release=release, parts={"law": law})


CASE = Case(
    fault="accounting",
    correct=program(lambda order: order / (2 * SIGMA**2)),
    broken=program(lambda order: order * SIGMA**2 / 2),
    neighbours=(np.array([0.5]), np.array([0.5, 1.0])),
    source="https://github.com/OpenMined/PySyft/issues/6914",
    ideal="the divergence of Gaussian noise is order / (2 sigma^2): epsilon is 7.6",
    event=lambda released: released[0] > 1.25,
    proof="the sums are two standard deviations apart, and the stated epsilon is below 2",
)
